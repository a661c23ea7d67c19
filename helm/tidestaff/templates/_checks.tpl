{{/* What the schema cannot say. Each failure tells which value, why, and what to write instead. */}}
{{- define "tidestaff.checks" -}}
{{- $values := .Values -}}
{{- if eq $values.image.tag "latest" -}}
{{- fail "image.tag: 'latest' is not a version, and a restart would change the program: give a release or a digest" -}}
{{- end -}}
{{- if and (not $values.serviceAccount.create) (not $values.serviceAccount.name) (include "tidestaff.distributed" .) -}}
{{- fail (printf "serviceAccount.name: job.mode %s needs a service account that may start executors: give its name, or set serviceAccount.create" $values.job.mode) -}}
{{- end -}}
{{- $names := list -}}
{{- range $values.clusters -}}
{{- if has .name $names -}}
{{- fail (printf "clusters: %s stands there twice: give each cluster a name of its own" .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- $cluster := . -}}
{{- range $key, $_ := .options -}}
{{- if regexMatch "(?i)(password|jaas|token$|secret$|\\.key$)" $key -}}
{{- fail (printf "clusters: options.%s of %s is a secret and would stand in a ConfigMap: put it into a Secret, name that with existingSecret, and write secretKeys: {%s: KEY}" $key $cluster.name $key) -}}
{{- end -}}
{{- end -}}
{{- if and (or .secretKeys .commandConfigKey) (not .existingSecret) -}}
{{- fail (printf "clusters: %s names keys of a Secret and no Secret: give existingSecret" .name) -}}
{{- end -}}
{{- if and (include "tidestaff.distributed" $) (ne (default "deployment" .collect) "deployment") (ne $values.persistence.accessMode "ReadWriteMany") -}}
{{- fail (printf "clusters: %s is collected inside the job, and executors read its journal: with job.mode %s set collect: deployment, or persistence.accessMode: ReadWriteMany" .name $values.job.mode) -}}
{{- end -}}
{{- end -}}
{{- if and (include "tidestaff.hasCollectors" .) (not $values.transport.bootstrapServers) -}}
{{- fail "transport.bootstrapServers: collectors publish to a topic, and no brokers for it are given: give them, or set collect: job for each cluster" -}}
{{- end -}}
{{- if has "transport" $names -}}
{{- fail "clusters: the name transport is the transport's own: give the cluster another" -}}
{{- end -}}
{{- range $key, $_ := $values.transport.properties -}}
{{- if regexMatch "(?i)(password|jaas|\\.key$)" $key -}}
{{- fail (printf "transport.properties.%s is a secret and would stand in a ConfigMap: put it into transport.existingSecret and write transport.secretKeys: {%s: KEY}" $key $key) -}}
{{- end -}}
{{- end -}}
{{- if and (or $values.transport.secretKeys $values.transport.commandConfigKey) (not $values.transport.existingSecret) -}}
{{- fail "transport: keys of a Secret are named and no Secret: give transport.existingSecret" -}}
{{- end -}}
{{- if and (include "tidestaff.distributed" .) (not $values.checkpoint) (ne $values.persistence.accessMode "ReadWriteMany") -}}
{{- fail (printf "job.mode %s: driver and executors share the checkpoint, and a %s claim is mounted by one node only: set checkpoint to an object store, or persistence.accessMode to ReadWriteMany" $values.job.mode $values.persistence.accessMode) -}}
{{- end -}}
{{- if and $values.web.enabled (not $values.web.tokenSecret) (not $values.web.userHeader) (or $values.web.ingress.enabled $values.web.httpRoute.enabled) -}}
{{- fail "web: a page that is reached from outside must know its people: give web.tokenSecret, or web.userHeader behind a proxy that logs them in" -}}
{{- end -}}
{{- if and (or $values.web.ingress.enabled $values.web.httpRoute.enabled) (not $values.web.enabled) -}}
{{- fail "web.enabled is false, and an Ingress or HTTPRoute leads to it: set web.enabled, or neither of them" -}}
{{- end -}}
{{- if and $values.serviceMonitor.enabled $values.podMonitor.enabled -}}
{{- fail "serviceMonitor.enabled and podMonitor.enabled: the same metrics would be scraped twice: set one of them" -}}
{{- end -}}
{{- if and (or $values.agent.enabled $values.agent.strimzi.enabled) (not $values.agent.tokenSecret) -}}
{{- fail "agent.tokenSecret: the agent answers other machines only to those who know its token: make a Secret with one of 16 characters or more, and name it" -}}
{{- end -}}
{{- if and $values.agent.strimzi.enabled (or (not $values.agent.strimzi.namespace) (not $values.agent.strimzi.cluster)) -}}
{{- fail "agent.strimzi: give namespace and cluster of the Kafka resource" -}}
{{- end -}}
{{- range $key, $value := $values.job.sparkConf -}}
{{- if and (regexMatch "(?i)(password|jaas|\\.secret$|secret\\.?key$|access\\.key$|account\\.key|oauthToken$)" $key) (not (hasPrefix "${" (toString $value))) -}}
{{- fail (printf "job.sparkConf: %s is a secret and would stand in a ConfigMap: put it into a Secret, name that in secretMounts, and write %s: ${file:/etc/tidestaff/secrets/NAME/KEY}" $key $key) -}}
{{- end -}}
{{- end -}}
{{- if and $values.encryption.existingSecret (not $values.encryption.enabled) -}}
{{- fail "encryption.existingSecret names a secret and encryption.enabled is false: set it, or name none" -}}
{{- end -}}
{{- range $key := list "work_dir" "clusters" "transport" "metrics" "web" "sinks" "spark" "checkpoint_dir" -}}
{{- if hasKey $values.config $key -}}
{{- fail (printf "config.%s: the chart writes this section by itself: use the value of that name (clusters, transport, metrics, web, sinks, job, checkpoint, persistence)" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
