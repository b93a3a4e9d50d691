{{/* What the Deployment's pod and the test's pod have in common. */}}
{{- define "keyshared.podSpec" -}}
serviceAccountName: {{ include "keyshared.serviceAccountName" . }}
automountServiceAccountToken: false
# A Service called keyshared would otherwise put KEYSHARED_PORT and the like into the environment,
# where the package looks for its settings. It passes over what it can tell; better there is nothing.
enableServiceLinks: false
shareProcessNamespace: {{ .Values.shareProcessNamespace }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
volumes:
  - name: config
    configMap:
      name: {{ include "keyshared.named" (dict "root" . "ending" "config") }}
  - name: tmp
    emptyDir: {}
  {{- if .Values.app.files }}
  - name: app
    configMap:
      name: {{ include "keyshared.named" (dict "root" . "ending" "app") }}
  {{- end }}
  {{- range $index, $secret := .Values.existingSecrets }}
  {{- if $secret.files }}
  - name: secret-{{ $index }}
    secret:
      secretName: {{ $secret.name }}
      defaultMode: 0440
      items:
        {{- range $key := values $secret.files | uniq | sortAlpha }}
        - key: {{ $key }}
          path: {{ $key }}
        {{- end }}
  {{- end }}
  {{- end }}
  {{- with .Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "keyshared.appDir" -}}
{{- ternary "/etc/keyshared/app" .Values.app.dir (not (empty .Values.app.files)) -}}
{{- end -}}

{{/* What their containers have in common; the verb of `keyshared` is the argument. */}}
{{- define "keyshared.container" -}}
{{- $root := .root -}}
{{- with .root -}}
image: {{ include "keyshared.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
# In the exec form, so that SIGTERM reaches the package and not a shell.
command: [keyshared]
args:
  - {{ $.verb }}
  - {{ .Values.handler | quote }}
  - --config
  - /etc/keyshared/config/keyshared.toml
  - --app-dir
  - {{ include "keyshared.appDir" . | quote }}
# Where path/file.py:ATTR is looked for.
workingDir: {{ include "keyshared.appDir" . | quote }}
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
env:
  # The file system is read-only: compiled modules have no place to go.
  - name: PYTHONDONTWRITEBYTECODE
    value: "1"
  {{- range $secret := .Values.existingSecrets }}
  {{- range $setting, $key := default dict $secret.env }}
  - name: {{ include "keyshared.envName" $setting }}
    valueFrom:
      secretKeyRef:
        name: {{ $secret.name }}
        key: {{ $key }}
  {{- end }}
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumeMounts:
  - name: config
    mountPath: /etc/keyshared/config
    readOnly: true
  - name: tmp
    mountPath: /tmp
  {{- if .Values.app.files }}
  - name: app
    mountPath: /etc/keyshared/app
    readOnly: true
  {{- end }}
  {{- range $index, $secret := .Values.existingSecrets }}
  {{- if $secret.files }}
  - name: secret-{{ $index }}
    mountPath: /etc/keyshared/secrets/{{ $secret.name }}
    readOnly: true
  {{- end }}
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
{{- end -}}
