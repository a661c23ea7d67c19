{{/* The source of one cluster, as conf/tidestaff.yaml has it. Call with the cluster's entry. */}}
{{- define "tidestaff.cluster" -}}
{{- $folder := printf "/etc/tidestaff/clusters/%s" .name -}}
{{- $options := deepCopy (default (dict) .options) -}}
{{- if .commandConfigKey -}}
{{- $_ := set $options "command_config" (printf "%s/%s" $folder .commandConfigKey) -}}
{{- end -}}
{{- $source := dict "type" "direct" "collector" (default "brokers" .collector) "round_interval_ms" (default 5000 .roundIntervalMs) "options" $options -}}
{{- $secrets := dict -}}
{{- range $option, $key := default (dict) .secretKeys -}}
{{- $_ := set $secrets $option (printf "${file:%s/%s}" $folder $key) -}}
{{- end -}}
{{- if $secrets -}}{{- $_ := set $source "secrets" $secrets -}}{{- end -}}
{{- dict "name" .name "source" $source | toJson -}}
{{- end -}}

{{/* What collectors publish, read by the job. */}}
{{- define "tidestaff.transportSource" -}}
{{- $transport := .Values.transport -}}
{{- $properties := deepCopy $transport.properties -}}
{{- range $property, $key := $transport.secretKeys -}}
{{- $_ := set $properties $property (printf "${file:/etc/tidestaff/transport/%s}" $key) -}}
{{- end -}}
{{- $source := dict "type" "kafka" "bootstrap_servers" $transport.bootstrapServers "topics" (list $transport.topic) "starting_offsets" $transport.startingOffsets "max_offsets_per_trigger" $transport.maxOffsetsPerTrigger "properties" $properties -}}
{{- dict "name" "transport" "source" $source | toJson -}}
{{- end -}}

{{/* Settings of Spark's that the mode asks for; job.sparkConf has the last word. */}}
{{- define "tidestaff.sparkConf" -}}
{{- $conf := dict -}}
{{- if eq .Values.job.mode "local" -}}
{{- $_ := set $conf "spark.local.dir" "/var/tmp/tidestaff/spark" -}}
{{- else if eq .Values.job.mode "client" -}}
{{- $service := printf "%s-driver.%s.svc" (include "tidestaff.fullname" .) .Release.Namespace -}}
{{- $conf = dict
  "spark.driver.host" (printf "${env:POD_NAME}.%s" $service)
  "spark.driver.bindAddress" "0.0.0.0"
  "spark.driver.port" 7078
  "spark.driver.blockManager.port" 7079
  "spark.blockManager.port" 7079
  "spark.local.dir" "/var/tmp/tidestaff/spark"
  "spark.kubernetes.driver.pod.name" "${env:POD_NAME}"
  "spark.kubernetes.namespace" .Release.Namespace
  "spark.kubernetes.container.image" (include "tidestaff.image" .)
  "spark.kubernetes.container.image.pullPolicy" .Values.image.pullPolicy
  "spark.kubernetes.authenticate.serviceAccountName" (include "tidestaff.serviceAccount" .)
  "spark.kubernetes.authenticate.executor.serviceAccountName" (include "tidestaff.serviceAccount" .)
  "spark.kubernetes.executor.podTemplateFile" "/etc/tidestaff/executor/pod.yaml"
  "spark.kubernetes.executor.podNamePrefix" (printf "%s-executor" (include "tidestaff.fullname" .))
  "spark.executor.instances" .Values.executor.instances
  "spark.executor.cores" .Values.executor.cores
  "spark.executor.memory" .Values.executor.memory
  "spark.executor.memoryOverhead" .Values.executor.memoryOverhead
  "spark.kubernetes.executor.request.cores" .Values.executor.cores
  "spark.kubernetes.executor.limit.cores" .Values.executor.cores
-}}
{{- $conf = merge $conf (include "tidestaff.executorRights" . | fromJson) (include "tidestaff.encryption" . | fromJson) -}}
{{- end -}}
{{- merge (dict) .Values.job.sparkConf $conf | toJson -}}
{{- end -}}

{{/* Nobody talks to driver or executors who does not know the job's secret, and nobody listens. */}}
{{- define "tidestaff.encryption" -}}
{{- $conf := dict -}}
{{- if .Values.encryption.enabled -}}
{{- $conf = dict
  "spark.authenticate" "true"
  "spark.network.crypto.enabled" "true"
  "spark.network.crypto.cipher" "AES/GCM/NoPadding"
  "spark.network.crypto.authEngineVersion" "2"
-}}
{{- if .Values.encryption.existingSecret -}}
{{- $_ := set $conf "spark.authenticate.secret.file" (printf "/etc/tidestaff/spark/%s" .Values.encryption.secretKey) -}}
{{- end -}}
{{- end -}}
{{- $conf | toJson -}}
{{- end -}}

{{/* Whether driver and executors mount the secret they know each other by. */}}
{{- define "tidestaff.mountsSparkSecret" -}}
{{- if and .Values.encryption.enabled .Values.encryption.existingSecret (include "tidestaff.distributed" .) }}yes{{ end -}}
{{- end -}}

{{/* With these the driver needs no right but on pods. */}}
{{- define "tidestaff.executorRights" -}}
{{- dict
  "spark.kubernetes.executor.disableConfigMap" "true"
  "spark.kubernetes.driver.ownPersistentVolumeClaim" "false"
  "spark.kubernetes.driver.reusePersistentVolumeClaim" "false"
  "spark.kubernetes.driver.service.deleteOnTermination" "false"
  | toJson -}}
{{- end -}}

{{- define "tidestaff.jobConfig" -}}
{{- $config := deepCopy .Values.config -}}
{{- $clusters := list -}}
{{- range .Values.clusters -}}
{{- if ne (default "deployment" .collect) "deployment" -}}
{{- $clusters = append $clusters (include "tidestaff.cluster" . | fromJson) -}}
{{- end -}}
{{- end -}}
{{- if include "tidestaff.hasCollectors" . -}}
{{- $clusters = append $clusters (include "tidestaff.transportSource" . | fromJson) -}}
{{- end -}}
{{- $master := ternary (printf "local[%d]" (int .Values.job.cores)) "k8s://https://kubernetes.default.svc" (eq .Values.job.mode "local") -}}
{{- $spark := dict "master" $master "driver_memory" .Values.job.driverMemory "shuffle_partitions" .Values.job.shufflePartitions "conf" (include "tidestaff.sparkConf" . | fromJson) -}}
{{- $_ := set $config "work_dir" "/var/lib/tidestaff" -}}
{{- if $clusters -}}{{- $_ := set $config "clusters" $clusters -}}{{- end -}}
{{- if .Values.checkpoint -}}{{- $_ := set $config "checkpoint_dir" .Values.checkpoint -}}{{- end -}}
{{- $_ := set $config "spark" $spark -}}
{{- $_ := set $config "sinks" .Values.sinks -}}
{{- $_ := set $config "metrics" (dict "enabled" true "host" "0.0.0.0" "port" .Values.metrics.port) -}}
{{- $_ := set $config "web" (dict "enabled" false) -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The page's container has a file of its own: it holds no secret of a cluster. */}}
{{- define "tidestaff.webConfig" -}}
{{- $values := .Values -}}
{{- $hosts := concat $values.web.allowedHosts $values.web.httpRoute.hostnames -}}
{{- range $values.web.ingress.hosts }}{{ $hosts = append $hosts .host }}{{ end -}}
{{- $name := printf "%s-web" (include "tidestaff.fullname" .) -}}
{{- $hosts = concat $hosts (list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.%s" $name .Release.Namespace $values.clusterDomain)) -}}
{{- $known := or $values.web.tokenSecret $values.web.userHeader -}}
{{- $web := dict "enabled" true "host" (ternary "0.0.0.0" "127.0.0.1" (not (empty $known))) "port" $values.web.port "allowed_hosts" (uniq $hosts) -}}
{{- if $values.web.tokenSecret -}}
{{- $_ := set $web "token" (printf "${file:/etc/tidestaff/web/%s}" $values.web.tokenKey) -}}
{{- end -}}
{{- if $values.web.userHeader -}}
{{- $_ := set $web "user_header" $values.web.userHeader -}}
{{- with $values.web.trustedProxies -}}{{- $_ := set $web "trusted_proxies" . -}}{{- end -}}
{{- end -}}
{{- $config := dict "work_dir" "/var/lib/tidestaff" "web" $web -}}
{{- range $section := list "operator" "alerts" "view" -}}
{{- if hasKey $values.config $section -}}{{- $_ := set $config $section (get $values.config $section) -}}{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Call with (list $ cluster). */}}
{{- define "tidestaff.collectorConfig" -}}
{{- $root := index . 0 -}}
{{- $given := $root.Values.transport -}}
{{- $transport := dict "bootstrap_servers" $given.bootstrapServers "topic" $given.topic "buffer_rounds" $given.bufferRounds -}}
{{- if $given.commandConfigKey -}}
{{- $_ := set $transport "command_config" (printf "/etc/tidestaff/transport/%s" $given.commandConfigKey) -}}
{{- end -}}
{{- dict "work_dir" "/var/lib/tidestaff" "clusters" (list (include "tidestaff.cluster" (index . 1) | fromJson)) "transport" $transport | toYaml -}}
{{- end -}}
