package plugins

// Dropped describes the replacements of the admission plugins that kube-apiserver no longer has.
var Dropped = map[string]string{
	"DenyEscalatingExec":    "Kubernetes 1.21 removed it; a ValidatingAdmissionPolicy about CONNECT of pods/exec and pods/attach replaces it (docs/plugins.md has one)",
	"DenyExecOnPrivileged":  "Kubernetes 1.21 removed it; a ValidatingAdmissionPolicy about CONNECT of pods/exec and pods/attach replaces it (docs/plugins.md has one)",
	"InitialResources":      "Kubernetes 1.11 removed it; LimitRanger sets default requests, and the Vertical Pod Autoscaler estimates them",
	"PersistentVolumeLabel": "Kubernetes 1.31 removed it; the volume's CSI driver or the cloud controller manager sets its zone",
	"PodPreset":             "Kubernetes 1.20 removed it; a MutatingAdmissionPolicy replaces it",
	"PodSecurityPolicy":     "Kubernetes 1.25 removed it; PodSecurity and admission policies replace it (docs/plugins.md has a table)",
	"PVCProtection":         "Kubernetes 1.10 renamed it to StorageObjectInUseProtection",
	"SecurityContextDeny":   "Kubernetes 1.30 removed it; PodSecurity with the level restricted replaces it",
}
