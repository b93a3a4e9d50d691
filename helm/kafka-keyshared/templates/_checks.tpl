{{/*
What the schema cannot say: values that are right one by one and wrong together. All that is wrong is
told at once.
*/}}
{{- define "keyshared.checks" -}}
{{- $v := .Values -}}
{{- $config := $v.config -}}
{{- $kafka := default dict $config.kafka -}}
{{- $wrong := list -}}
{{- $envNames := list -}}
{{- range $v.extraEnv }}{{ $envNames = append $envNames .name }}{{ end -}}

{{- if not $v.image.repository -}}
{{- $wrong = append $wrong "image.repository is empty: give the image that holds the package and your handler" -}}
{{- end -}}
{{- if not $v.handler -}}
{{- $wrong = append $wrong "handler is empty: give MODULE:ATTR, such as app:handle" -}}
{{- end -}}
{{- range $name, $example := dict "bootstrap" "kafka:9092" "topics" "[orders]" "group" "billing" -}}
{{- if not (or (get $config $name) (has (printf "KEYSHARED_%s" (upper $name)) $envNames)) -}}
{{- $wrong = append $wrong (printf "config.%s is empty: give it, such as %s" $name $example) -}}
{{- end -}}
{{- end -}}

{{- range $former, $text := include "keyshared.renamed" . | fromYaml -}}
{{- if hasKey $config $former -}}
{{- $wrong = append $wrong (printf "config.%s has been renamed: %s" $former $text) -}}
{{- end -}}
{{- end -}}

{{- $stop := include "keyshared.stopSeconds" . | int -}}
{{- $grace := include "keyshared.graceSeconds" . | int -}}
{{- if lt $grace (add $stop 15 | int) -}}
{{- $wrong = append $wrong (printf "terminationGracePeriodSeconds is %d, less than config.stop_timeout (%d s) and 15 s: the pod would be killed while it commits. Give at least %d, or leave it out" $grace $stop (add $stop 15)) -}}
{{- end -}}

{{- range $setting, $value := $kafka -}}
{{- if include "keyshared.isSecret" (dict "name" $setting "value" $value) -}}
{{- $wrong = append $wrong (printf "config.kafka has %q, a secret, and a ConfigMap is no place for one: name the Secret that holds it under existingSecrets" $setting) -}}
{{- end -}}
{{- end -}}
{{- range $v.extraEnv -}}
{{- $setting := dict "name" (trimPrefix "KEYSHARED_KAFKA_" .name) "value" .value -}}
{{- if and (hasPrefix "KEYSHARED_KAFKA_" .name) (hasKey . "value") (include "keyshared.isSecret" $setting) -}}
{{- $wrong = append $wrong (printf "extraEnv gives %s as plain text: name the Secret that holds it under existingSecrets" .name) -}}
{{- end -}}
{{- end -}}

{{- $given := dict -}}
{{- range $setting, $_ := $kafka }}{{ $_ := set $given $setting "config.kafka" }}{{ end -}}
{{- $names := list -}}
{{- range $secret := $v.existingSecrets -}}
{{- if has $secret.name $names -}}
{{- $wrong = append $wrong (printf "existingSecrets lists %s twice: put env and files of a secret into one entry" $secret.name) -}}
{{- end -}}
{{- $names = append $names $secret.name -}}
{{- range $map := list (default dict $secret.env) (default dict $secret.files) -}}
{{- range $setting, $_ := $map -}}
{{- if hasKey $given $setting -}}
{{- $wrong = append $wrong (printf "%q is given twice, by %s and by the secret %s: leave one of them out" $setting (get $given $setting) $secret.name) -}}
{{- end -}}
{{- $_ := set $given $setting (printf "the secret %s" $secret.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $setting, $origin := $given -}}
{{- if has (include "keyshared.envName" $setting) $envNames -}}
{{- $wrong = append $wrong (printf "%q is given twice, by %s and by extraEnv: leave one of them out" $setting $origin) -}}
{{- end -}}
{{- end -}}

{{- $http := $config.http_port -}}
{{- if and $http (regexMatch `^(127\.|localhost$|::1$|\[::1\]$)` (default "127.0.0.1" $config.http_host)) -}}
{{- $wrong = append $wrong (printf "config.http_host is %s, where the kubelet's probes cannot reach it: give 0.0.0.0, or :: for IPv6" (default "127.0.0.1" $config.http_host)) -}}
{{- end -}}
{{- if and $v.podMonitor.enabled (not $http) -}}
{{- $wrong = append $wrong "podMonitor.enabled needs metrics, and config.http_port is null: give a port, or leave the PodMonitor out" -}}
{{- end -}}

{{- range $name := list "CONFIG" "STOP_TIMEOUT" "HTTP_PORT" "HTTP_HOST" -}}
{{- if has (printf "KEYSHARED_%s" $name) $envNames -}}
{{- $wrong = append $wrong (printf "extraEnv gives KEYSHARED_%s, which the pod's ports, probes and grace period would not follow: %s" $name (eq $name "CONFIG" | ternary "the chart gives it itself" (printf "set config.%s" (lower $name)))) -}}
{{- end -}}
{{- end -}}

{{- if has "KEYSHARED_KAFKA_GROUP_INSTANCE_ID" $envNames -}}
{{- $wrong = append $wrong "extraEnv gives KEYSHARED_KAFKA_GROUP_INSTANCE_ID: the pods of a Deployment keep neither name nor id, and the partitions of one that went wait for its session timeout. Leave it out" -}}
{{- end -}}
{{- if hasKey $kafka "group.instance.id" -}}
{{- if gt (int $v.replicaCount) 1 -}}
{{- $wrong = append $wrong (printf "config.kafka has \"group.instance.id\" and replicaCount is %d: all pods would be the same member and throw each other out. Leave it out, or run one pod" (int $v.replicaCount)) -}}
{{- else if ne $v.strategy.type "Recreate" -}}
{{- $wrong = append $wrong (printf "config.kafka has \"group.instance.id\" and strategy.type is %s: the new pod would throw the old one out before it has committed. Set strategy.type to Recreate" $v.strategy.type) -}}
{{- end -}}
{{- end -}}
{{- if eq (get $kafka "group.protocol" | toString | lower) "consumer" -}}
{{- range $setting := list "session.timeout.ms" "heartbeat.interval.ms" "partition.assignment.strategy" "group.protocol.type" -}}
{{- if hasKey $kafka $setting -}}
{{- $wrong = append $wrong (printf "config.kafka has %q, which the client refuses with \"group.protocol\"=\"consumer\" (KIP-848: the broker decides): leave it out" $setting) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if and (eq (get $config "on_exhausted" | toString) "dead_letter") (not $config.dlq) -}}
{{- $wrong = append $wrong "config.on_exhausted is dead_letter and there is no config.dlq: give the topic, or true for <topic>.dlq" -}}
{{- end -}}
{{- if and $config.dlq_create (not $config.dlq) -}}
{{- $wrong = append $wrong "config.dlq_create makes a dead-letter topic and there is no config.dlq: give the topic, or true for <topic>.dlq" -}}
{{- end -}}
{{- $most := subf (divf (get $kafka "max.poll.interval.ms" | default 300000 | float64) 2000) 0.5 -}}
{{- $revoke := dig "revoke_deadline" 5 $config | float64 -}}
{{- if gt $revoke $most -}}
{{- $wrong = append $wrong (printf "config.revoke_deadline is %g s, above %g s, half of \"max.poll.interval.ms\" less 0.5 s: lower the first, or raise the second" $revoke $most) -}}
{{- end -}}

{{- if $wrong -}}
{{- fail (printf "these values cannot work:\n  - %s\n" (join "\n  - " $wrong)) -}}
{{- end -}}
{{- end -}}
