{{- define "agent.name" -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "agent.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "agent.labels" -}}
{{ include "agent.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The Secret with the credentials. */}}
{{- define "agent.secret" -}}
{{- .Values.credentials.existingSecret | default (include "agent.name" .) }}
{{- end }}

{{- /* The authority of the certificate, in base64: as it is given, or from the Secret in the cluster. */}}
{{- define "agent.ca" -}}
{{- $given := .Values.credentials.ca }}
{{- if not $given }}
{{- $secret := lookup "v1" "Secret" .Release.Namespace (include "agent.secret" .) }}
{{- if $secret }}{{ get $secret.data "ca.crt" }}{{ end }}
{{- else }}{{ $given | b64enc }}{{ end }}
{{- end }}
