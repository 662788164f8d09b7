package plugins

import (
	"net/http"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// S9.20: the order of plugins that the design of webhooks recommends names a plugin that
// Kubernetes has no more. The server starts, and says what replaces it.
func TestTheRecommendedOrderOfOldStarts(t *testing.T) {
	t.Parallel()
	s := harness.StartTest(t, "--admission-control",
		"MutatingAdmissionWebhook,NamespaceLifecycle,LimitRanger,ServiceAccount,PersistentVolumeLabel,DefaultStorageClass,DefaultTolerationSeconds,ValidatingAdmissionWebhook,ResourceQuota")
	in(t, "the log", s.Log(), "--admission-control: the plugin PersistentVolumeLabel is left out: Kubernetes 1.31 removed it")
	h := s.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", configMaps("default"), configMap("c"))
	h.Refused(http.StatusNotFound, "NotFound", "POST", configMaps("nowhere"), configMap("c"))
}
