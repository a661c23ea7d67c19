{{- define "tidestaff.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "tidestaff.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "tidestaff.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "tidestaff.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What selects pods: never changes in the life of a release. Call with (list $ "component"). */}}
{{- define "tidestaff.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "tidestaff.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* What selects the collectors of all clusters together. */}}
{{- define "tidestaff.collectorLabels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
tidestaff/part: collector
{{- end -}}

{{- define "tidestaff.labels" -}}
{{- $root := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{ include "tidestaff.selector" . }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Metadata of an object. Call with (list $ "component" "name" (annotations)). */}}
{{- define "tidestaff.metadata" -}}
{{- $root := index . 0 -}}
{{- $annotations := merge (dict) (index . 3) $root.Values.commonAnnotations -}}
name: {{ index . 2 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "tidestaff.labels" (list $root (index . 1)) | nindent 2 }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "tidestaff.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "tidestaff.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "tidestaff.image" -}}
{{- $image := .Values.image -}}
{{- $name := ternary $image.repository (printf "%s/%s" $image.registry $image.repository) (empty $image.registry) -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "tidestaff.claim" -}}
{{- default (printf "%s-work" (include "tidestaff.fullname" .)) .Values.persistence.existingClaim -}}
{{- end -}}

{{/* Whether some cluster has a collector of its own. */}}
{{- define "tidestaff.hasCollectors" -}}
{{- range .Values.clusters }}{{ if eq (default "deployment" .collect) "deployment" }}yes{{ end }}{{ end -}}
{{- end -}}

{{- define "tidestaff.distributed" -}}
{{- if ne .Values.job.mode "local" }}yes{{ end -}}
{{- end -}}

{{/* A cluster's name as part of an object's name. */}}
{{- define "tidestaff.slug" -}}
{{- $plain := lower . | replace "." "-" | replace "_" "-" | trunc 20 | trimSuffix "-" -}}
{{- if eq $plain . }}{{ $plain }}{{ else }}{{ printf "%s-%s" (trunc 14 $plain | trimSuffix "-") (sha256sum . | trunc 5) }}{{ end -}}
{{- end -}}
