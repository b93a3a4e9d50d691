{{/* Names and labels, as charts have them. */}}
{{- define "keyshared.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "keyshared.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name with an ending; the whole is at most 63 characters. */}}
{{- define "keyshared.named" -}}
{{- printf "%s-%s" (include "keyshared.fullname" .root | trunc (int (sub 62 (len .ending))) | trimSuffix "-") .ending -}}
{{- end -}}

{{- define "keyshared.selectorLabels" -}}
app.kubernetes.io/name: {{ include "keyshared.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "keyshared.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "keyshared.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "keyshared.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "keyshared.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "keyshared.image" -}}
{{- $registry := default .Values.image.registry .Values.global.imageRegistry -}}
{{- with $registry }}{{ . }}/{{ end -}}
{{- .Values.image.repository -}}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ default .Chart.AppVersion .Values.image.tag }}{{ end -}}
{{- end -}}

{{/* Seconds: what the package needs to stop, rounded up. 25 is the package's own default. */}}
{{- define "keyshared.stopSeconds" -}}
{{- dig "stop_timeout" 25 .Values.config | float64 | ceil | int -}}
{{- end -}}

{{- define "keyshared.graceSeconds" -}}
{{- $least := add (include "keyshared.stopSeconds" . | int) 15 -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds }}{{ $least }}{{ else }}{{ int .Values.terminationGracePeriodSeconds }}{{ end -}}
{{- end -}}

{{/* How a setting of the client is called in the environment: sasl.password, KEYSHARED_KAFKA_SASL_PASSWORD. */}}
{{- define "keyshared.envName" -}}
KEYSHARED_KAFKA_{{ . | upper | replace "." "_" }}
{{- end -}}

{{/*
"yes" for a client setting, or its name in the environment, whose value nobody may read: as the
package masks them, but for addresses and paths that only sound like secrets.
*/}}
{{- define "keyshared.isSecret" -}}
{{- $name := .name | lower | replace "_" "." -}}
{{- $sounds := regexMatch `password|passphrase|secret|token|key\.pem|private\.key|^ssl\.key$|oauthbearer\.config$` $name -}}
{{- $is := regexMatch `endpoint\.url$|\.file$` $name | not -}}
{{- if or (and $sounds $is) (contains "PRIVATE KEY" (toString .value)) -}}yes{{- end -}}
{{- end -}}

{{/* A dict as TOML: the values first, because what follows the head of a table belongs to the table. */}}
{{- define "keyshared.toml" -}}
{{- $path := .path -}}
{{- range $name, $value := .values -}}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) }}
{{ include "keyshared.tomlKey" $name }} = {{ toRawJson $value }}
{{- end -}}
{{- end -}}
{{- range $name, $value := .values -}}
{{- if and (kindIs "map" $value) $value -}}
{{- $table := append $path (include "keyshared.tomlKey" $name) }}

[{{ join "." $table }}]
{{- include "keyshared.toml" (dict "values" $value "path" $table) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "keyshared.tomlKey" -}}
{{- if regexMatch `^[A-Za-z0-9_-]+$` . }}{{ . }}{{ else }}{{ toRawJson . }}{{ end -}}
{{- end -}}

{{/* keyshared.toml: the values under config, and where the files of the secrets are. */}}
{{- define "keyshared.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $kafka := default dict $config.kafka -}}
{{- range $secret := .Values.existingSecrets -}}
{{- range $setting, $key := default dict $secret.files -}}
{{- $_ := set $kafka $setting (printf "/etc/keyshared/secrets/%s/%s" $secret.name $key) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $config "kafka" $kafka -}}
{{- include "keyshared.toml" (dict "values" $config "path" list) | trim -}}
{{- end -}}

{{/* What a pod is restarted for: text that is in the ConfigMaps, and nothing else that is in them. */}}
{{- define "keyshared.checksum" -}}
{{- list (include "keyshared.config" .) .Values.app.files | toJson | sha256sum -}}
{{- end -}}
