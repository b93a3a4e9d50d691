{{/*
The error for each former name of a setting under config. Generated.
*/}}
{{- define "keyshared.renamed" -}}
lend_after: "config.lend_after has been renamed: give config.detach_after with the same value"
poison: "config.poison has been renamed: give config.on_exhausted with the same value"
max_leases_per_key: "config.max_leases_per_key has been renamed: give config.one_in_flight_per_key: true for config.max_leases_per_key: 1"
leases_per_worker: "config.leases_per_worker has been renamed: give config.prefetch_records with the same value"
lease_bytes_per_worker: "config.lease_bytes_per_worker has been renamed: give config.prefetch_bytes with the same value"
reliable: "config.reliable has been renamed: give config.delivery: at-most-once for config.reliable: false, or config.delivery: at-least-once for config.reliable: true"
dlq_limit_in_a_row: "config.dlq_limit_in_a_row has been renamed: give config.dlq_limit_consecutive with the same value"
{{- end -}}
