package plugins

import (
	"net/http"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// S9.20: the plugin order recommended by the design of webhooks includes a plugin that Kubernetes has
// removed. The server starts and reports its replacement.
func TestTheRecommendedOrderOfOldStarts(t *testing.T) {
	t.Parallel()
	s := harness.StartTest(t, "--admission-control",
		"MutatingAdmissionWebhook,NamespaceLifecycle,LimitRanger,ServiceAccount,PersistentVolumeLabel,DefaultStorageClass,DefaultTolerationSeconds,ValidatingAdmissionWebhook,ResourceQuota")
	in(t, "the log", s.Log(), "--admission-control: the plugin PersistentVolumeLabel is left out: Kubernetes 1.31 removed it")
	h := s.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", configMaps("default"), configMap("c"))
	h.Refused(http.StatusNotFound, "NotFound", "POST", configMaps("nowhere"), configMap("c"))
}
