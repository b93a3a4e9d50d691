{{/*
The successor of each former name of a setting under config. Generated.
*/}}
{{- define "keyshared.renamed" -}}
lend_after: "give config.detach_after with the same value"
poison: "give config.on_exhausted with the same value"
max_leases_per_key: "give config.one_in_flight_per_key: true for config.max_leases_per_key: 1"
leases_per_worker: "give config.prefetch_records with the same value"
lease_bytes_per_worker: "give config.prefetch_bytes with the same value"
reliable: "give config.delivery: at-most-once for config.reliable: false, or config.delivery: at-least-once for config.reliable: true"
dlq_limit_in_a_row: "give config.dlq_limit_consecutive with the same value"
{{- end -}}
