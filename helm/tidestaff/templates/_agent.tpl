{{/* Call with (list $ log-directories). */}}
{{- define "tidestaff.agentArgs" -}}
{{- $values := (index . 0).Values.agent -}}
- agent
{{- range index . 1 }}
- --log-dir
- {{ . }}
{{- end }}
{{- if not (kindIs "invalid" $values.broker) }}
- --broker
- {{ int $values.broker | quote }}
{{- end }}
- --listen
- 0.0.0.0:{{ int $values.port }}
- --token-file
- /etc/tidestaff/agent/{{ $values.tokenKey }}
{{- if $values.tlsSecret }}
- --tls-cert
- /etc/tidestaff/agent-tls/tls.crt
- --tls-key
- /etc/tidestaff/agent-tls/tls.key
{{- end }}
{{- end -}}

{{/* Mounts and volumes but for the log directories. */}}
{{- define "tidestaff.agentMounts" -}}
- name: tidestaff-tmp
  mountPath: /tmp
- name: tidestaff-token
  mountPath: /etc/tidestaff/agent
  readOnly: true
{{- if .Values.agent.tlsSecret }}
- name: tidestaff-tls
  mountPath: /etc/tidestaff/agent-tls
  readOnly: true
{{- end }}
{{- end -}}

{{- define "tidestaff.agentVolumes" -}}
- name: tidestaff-tmp
  emptyDir:
    sizeLimit: 64Mi
- name: tidestaff-token
  secret:
    secretName: {{ .Values.agent.tokenSecret }}
    defaultMode: 0440
{{- with .Values.agent.tlsSecret }}
- name: tidestaff-tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end -}}

{{- define "tidestaff.agentProbe" -}}
httpGet:
  path: /healthz
  port: {{ int .Values.agent.port }}
  scheme: {{ ternary "HTTPS" "HTTP" (not (empty .Values.agent.tlsSecret)) }}
periodSeconds: 20
timeoutSeconds: 5
{{- end -}}
