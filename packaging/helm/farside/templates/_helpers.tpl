{{/* What everything is called: the release, with the chart's name unless that is in it. */}}
{{- define "farside.name" -}}
{{- $name := ternary .Release.Name (printf "%s-farside" .Release.Name) (contains "farside" .Release.Name) -}}
{{- $name | trunc 45 | trimSuffix "-" -}}
{{- end -}}

{{- define "farside.secret" -}}
{{- .Values.auth.existingSecret | default (include "farside.name" .) -}}
{{- end -}}

{{/* By what pods are found. */}}
{{- define "farside.selector" -}}
app.kubernetes.io/name: farside
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "farside.labels" -}}
{{ include "farside.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The memory nodes as gateways name them: they keep their names when their pods change. */}}
{{- define "farside.pool" -}}
{{- $name := include "farside.name" . -}}
{{- $namespace := .Release.Namespace -}}
{{- $nodes := list -}}
{{- range $number := until (int .Values.node.replicas) -}}
{{- $nodes = append $nodes (printf "tcp:%s-node-%d.%s-node.%s.svc:7380" $name $number $name $namespace) -}}
{{- end -}}
{{- join "," $nodes -}}
{{- end -}}

{{- define "farside.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "farside.image" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* A probe that fails makes Kubernetes restart what hangs, and leave out what does not serve. */}}
{{- define "farside.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
{{- end -}}

{{/* Where pods of one kind may run. */}}
{{- define "farside.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
