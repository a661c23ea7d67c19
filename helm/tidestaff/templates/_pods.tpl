{{/* Everything that places a pod. Call with (list values labels): one of job, executor, collectors,
agent, and the labels of its pods, by which a spread counts them unless it says otherwise. */}}
{{- define "tidestaff.placement" -}}
{{- $values := index . 0 -}}
{{- $selector := dict "labelSelector" (dict "matchLabels" (index . 1 | fromYaml)) -}}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{- ternary . (merge (dict) . $selector) (hasKey . "labelSelector") | toYaml | nindent 4 }}
  {{- end }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of a pod. Call with (list $ "component" values annotations). */}}
{{- define "tidestaff.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $values := index . 2 -}}
{{- $annotations := merge (dict) (index . 3) $values.podAnnotations $root.Values.commonAnnotations -}}
labels:
  {{- include "tidestaff.labels" (list $root (index . 1)) | nindent 2 }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "tidestaff.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "tidestaff.jobVolumes" -}}
- name: config
  configMap:
    name: {{ include "tidestaff.fullname" . }}-config
- name: work
  persistentVolumeClaim:
    claimName: {{ include "tidestaff.claim" . }}
{{ include "tidestaff.sharedVolumes" . }}
{{- range .Values.clusters }}
{{- if and .existingSecret (ne (default "deployment" .collect) "deployment") }}
- name: cluster-{{ include "tidestaff.slug" .name }}
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- range .Values.secretMounts }}
- name: secret-{{ . | replace "." "-" }}
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- if and .Values.web.enabled .Values.web.tokenSecret }}
- name: web
  secret:
    secretName: {{ .Values.web.tokenSecret }}
    defaultMode: 0440
{{- end }}
{{- if eq .Values.job.mode "client" }}
- name: executor
  configMap:
    name: {{ include "tidestaff.fullname" . }}-executor
{{- end }}
{{- if include "tidestaff.distributed" . }}
# As the kubelet would mount it, but for the job's container only: the page may start no pods.
- name: api-token
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3607}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end }}
{{- end -}}

{{/* Volumes that the driver and the executors have alike. */}}
{{- define "tidestaff.sharedVolumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: 1Gi
- name: scratch
  emptyDir:
    sizeLimit: {{ .Values.persistence.scratchSize }}
{{- if and .Values.transport.existingSecret (include "tidestaff.hasCollectors" .) }}
- name: transport
  secret:
    secretName: {{ .Values.transport.existingSecret }}
    defaultMode: 0440
{{- end }}
{{- if include "tidestaff.mountsSparkSecret" . }}
- name: spark-secret
  secret:
    secretName: {{ .Values.encryption.existingSecret }}
    defaultMode: 0440
{{- end }}
{{- with .Values.job.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tidestaff.sharedMounts" -}}
- name: tmp
  mountPath: /tmp
- name: scratch
  mountPath: /var/tmp/tidestaff
{{- if and .Values.transport.existingSecret (include "tidestaff.hasCollectors" .) }}
- name: transport
  mountPath: /etc/tidestaff/transport
  readOnly: true
{{- end }}
{{- if include "tidestaff.mountsSparkSecret" . }}
- name: spark-secret
  mountPath: /etc/tidestaff/spark
  readOnly: true
{{- end }}
{{- with .Values.job.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tidestaff.jobMounts" -}}
- name: config
  mountPath: /etc/tidestaff/config
  readOnly: true
- name: work
  mountPath: /var/lib/tidestaff
{{ include "tidestaff.sharedMounts" . }}
{{- range .Values.clusters }}
{{- if and .existingSecret (ne (default "deployment" .collect) "deployment") }}
- name: cluster-{{ include "tidestaff.slug" .name }}
  mountPath: /etc/tidestaff/clusters/{{ .name }}
  readOnly: true
{{- end }}
{{- end }}
{{- range .Values.secretMounts }}
- name: secret-{{ . | replace "." "-" }}
  mountPath: /etc/tidestaff/secrets/{{ . }}
  readOnly: true
{{- end }}
{{- if eq .Values.job.mode "client" }}
- name: executor
  mountPath: /etc/tidestaff/executor
  readOnly: true
{{- end }}
{{- if include "tidestaff.distributed" . }}
- name: api-token
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end }}
{{- end -}}

{{- define "tidestaff.probes" -}}
startupProbe:
  httpGet: {path: /metrics, port: metrics}
  {{- toYaml .Values.job.startupProbe | nindent 2 }}
livenessProbe:
  httpGet: {path: /metrics, port: metrics}
  {{- toYaml .Values.job.livenessProbe | nindent 2 }}
readinessProbe:
  httpGet: {path: /metrics, port: metrics}
  {{- toYaml .Values.job.readinessProbe | nindent 2 }}
{{- end -}}

{{/* The container of the job. Under the operator Spark itself says what is started in it. */}}
{{- define "tidestaff.jobContainer" -}}
- name: {{ ternary "spark-kubernetes-driver" "job" (eq .Values.job.mode "operator") }}
  image: {{ include "tidestaff.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  {{- if ne .Values.job.mode "operator" }}
  args: [run, --config, /etc/tidestaff/config/tidestaff.yaml]
  {{- end }}
  workingDir: /var/tmp/tidestaff
  env:
    - name: POD_NAME
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
    {{- with .Values.job.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - {name: metrics, containerPort: {{ int .Values.metrics.port }}}
    {{- if eq .Values.job.mode "client" }}
    - {name: driver, containerPort: 7078}
    - {name: blocks, containerPort: 7079}
    {{- end }}
  {{- include "tidestaff.probes" . | nindent 2 }}
  {{- if ne .Values.job.mode "operator" }}
  resources:
    {{- toYaml .Values.job.resources | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml .Values.securityContext | nindent 4 }}
  volumeMounts:
    {{- include "tidestaff.jobMounts" . | nindent 4 }}
{{- end -}}

{{/* The page's container: alerts and state, its own token, and no secret of a cluster. */}}
{{- define "tidestaff.webContainer" -}}
- name: web
  image: {{ include "tidestaff.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args: [web, --config, /etc/tidestaff/config/web.yaml]
  {{- with .Values.web.extraEnv }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  ports:
    - {name: web, containerPort: {{ int .Values.web.port }}}
  {{- if or .Values.web.tokenSecret .Values.web.userHeader }}
  livenessProbe:
    # The kubelet would ask by the pod's address, which is no name the page is served as.
    httpGet: {path: /healthz, port: web, httpHeaders: [{name: Host, value: localhost}]}
    periodSeconds: 20
    timeoutSeconds: 5
    failureThreshold: 6
  readinessProbe:
    httpGet: {path: /readyz, port: web, httpHeaders: [{name: Host, value: localhost}]}
    periodSeconds: 10
    timeoutSeconds: 5
  {{- else }}
  livenessProbe:
    exec:
      # It listens on loopback only, where the kubelet cannot ask it.
      command: [python, -c, "import urllib.request as r; r.urlopen('http://127.0.0.1:{{ int .Values.web.port }}/healthz', timeout=4)"]
    periodSeconds: 60
    timeoutSeconds: 10
    failureThreshold: 5
  {{- end }}
  resources:
    {{- toYaml .Values.web.resources | nindent 4 }}
  securityContext:
    {{- toYaml .Values.securityContext | nindent 4 }}
  volumeMounts:
    - name: config
      mountPath: /etc/tidestaff/config
      readOnly: true
    - name: work
      mountPath: /var/lib/tidestaff
    - name: tmp
      mountPath: /tmp
    {{- if .Values.web.tokenSecret }}
    - name: web
      mountPath: /etc/tidestaff/web
      readOnly: true
    {{- end }}
{{- end -}}

{{/* The pod of the job, for the StatefulSet and for the operator's driver alike. */}}
{{- define "tidestaff.jobPod" -}}
{{- if ne .Values.job.mode "operator" }}
serviceAccountName: {{ include "tidestaff.serviceAccount" . }}
{{- end }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- include "tidestaff.pullSecrets" . }}
terminationGracePeriodSeconds: {{ int .Values.job.terminationGracePeriodSeconds }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- include "tidestaff.placement" (list .Values.job (include "tidestaff.selector" (list . "job"))) }}
containers:
  {{- include "tidestaff.jobContainer" . | nindent 2 }}
  {{- if .Values.web.enabled }}
  {{- include "tidestaff.webContainer" . | nindent 2 }}
  {{- end }}
volumes:
  {{- include "tidestaff.jobVolumes" . | nindent 2 }}
{{- end -}}

{{/* The pod of an executor; Spark adds the command, the resources and its own variables. */}}
{{- define "tidestaff.executorPod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- include "tidestaff.pullSecrets" . }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- include "tidestaff.placement" (list .Values.executor (include "tidestaff.selector" (list . "executor"))) }}
containers:
  - name: {{ ternary "spark-kubernetes-executor" "executor" (eq .Values.job.mode "operator") }}
    image: {{ include "tidestaff.image" . }}
    workingDir: /var/tmp/tidestaff
    securityContext:
      {{- toYaml .Values.securityContext | nindent 6 }}
    volumeMounts:
      {{- if eq .Values.persistence.accessMode "ReadWriteMany" }}
      - name: work
        mountPath: /var/lib/tidestaff
      {{- end }}
      {{- include "tidestaff.sharedMounts" . | nindent 6 }}
volumes:
  {{- if eq .Values.persistence.accessMode "ReadWriteMany" }}
  - name: work
    persistentVolumeClaim:
      claimName: {{ include "tidestaff.claim" . }}
  {{- end }}
  {{- include "tidestaff.sharedVolumes" . | nindent 2 }}
{{- end -}}

{{/* Brokers, ZooKeeper and agents, wherever networkPolicy.kafkaTo says they are. */}}
{{- define "tidestaff.kafkaEgress" -}}
{{- $policy := .Values.networkPolicy -}}
- ports:
    {{- range concat $policy.kafkaPorts $policy.zookeeperPorts }}
    - {port: {{ int . }}, protocol: TCP}
    {{- end }}
    - {port: {{ int .Values.agent.port }}, protocol: TCP}
  {{- with $policy.kafkaTo }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
