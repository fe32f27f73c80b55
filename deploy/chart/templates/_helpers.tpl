{{/* Labels that Helm's users expect, beside those of the objects themselves. */}}
{{- define "shoal.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* What the operator's objects and pods are found by. Policies of jobs let operators through by the name: it is not to be changed. */}}
{{- define "shoal.own" -}}
app.kubernetes.io/name: shoal-operator
app.kubernetes.io/part-of: shoal
{{- end }}

{{- define "shoal.image" -}}
{{- with .Values.image -}}
{{- with .registry }}{{ trimSuffix "/" . }}/{{ end }}{{ .name }}:{{ default $.Chart.AppVersion .tag }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/* The image of a role in a context of its own: dict "root" $ "role" "master". Empty where the operator finds it beside its own. */}}
{{- define "shoal.roleImage" -}}
{{- $image := .root.Values.image -}}
{{- $named := get $image .role -}}
{{- if $named -}}
{{ $named }}
{{- else if not (eq (include "shoal.seesItself" .root) "yes") -}}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end }}shoal-{{ .role }}:{{ default .root.Chart.AppVersion $image.tag }}
{{- end }}
{{- end }}

{{/* The one namespace whose jobs are looked after, if it is one: an operator of it runs and has its lease there. */}}
{{- define "shoal.watched" -}}
{{- with .Values.watchNamespace -}}
{{- if ne . $.Release.Namespace -}}
{{- fail (printf "watchNamespace: an operator of one namespace is installed into it: helm install --namespace %s, or leave watchNamespace out" .) -}}
{{- end -}}
{{ . }}
{{- end -}}
{{- end }}

{{/* Whether the operator's image is called as it expects. */}}
{{- define "shoal.seesItself" -}}
{{- if eq .Values.image.name "shoal-operator" -}}
yes
{{- end }}
{{- end }}

{{/* What an operator may do with jobs, and what it makes for them; lines of a list. */}}
{{- define "shoal.rules" -}}
- apiGroups: [shoal.dev]
  resources: [trainingjobs]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [shoal.dev]
  resources: [scaleplans]
  verbs: [get, list, watch, patch]
- apiGroups: [shoal.dev]
  resources: [trainingjobs/status, scaleplans/status]
  verbs: [get, patch]
- apiGroups: [shoal.dev]
  resources: [trainingjobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
{{- if not .Values.watchNamespace }}
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
- apiGroups: [scheduling.k8s.io]
  resources: [priorityclasses]
  verbs: [list, watch]
{{- end }}
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, create, patch, delete]
- apiGroups: [""]
  resources: [secrets]
  verbs: [create, patch]
{{- if .Values.tls.issuer }}
- apiGroups: [cert-manager.io]
  resources: [certificates]
  verbs: [get, create, patch]
- apiGroups: [cert-manager.io]
  resources: [certificaterequests]
  verbs: [get, create, delete]
{{- end }}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [list]
{{- if not .Values.watchNamespace }}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [shoal-operator]
  verbs: [list, watch]
{{- end }}
{{- end }}

{{/* The lease by which one of several operators is elected, and the authority that signs certificates of jobs. */}}
{{- define "shoal.leaseRule" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, create, update]
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ .Values.tls.authority }}]
  verbs: [get]
{{- end }}

{{/* A binding of the operator's account to a role: dict "root" $ "kind" "Role" "name" NAME "namespace" NAMESPACE. */}}
{{- define "shoal.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "shoal.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: shoal-operator
    namespace: {{ .root.Release.Namespace }}
{{- end }}
