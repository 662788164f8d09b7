//go:build pins

package house

// Kubernetes requires version v0.0.0 of this module, which does not exist, and replaces it in its own build.
// Gatehouse does not need its code. The import keeps an existing version in go.mod. Without that, "go list -m
// all" fails, and with it any tool that lists modules and their licences.
import _ "k8s.io/cri-streaming/pkg/streaming"
