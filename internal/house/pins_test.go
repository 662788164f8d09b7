//go:build pins

package house

// Kubernetes asks for version v0.0.0 of this module, which does not exist, and replaces it in its
// own build. Nothing of Gatehouse needs its code. The import keeps a version that exists in go.mod:
// without it, "go list -m all" fails, and with it whatever lists modules and their licences.
import _ "k8s.io/cri-streaming/pkg/streaming"
