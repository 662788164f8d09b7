package clustersnapshot

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// S26.10: feature gates are read from metrics, in any state of the metrics.
func TestGatesAreReadFromMetrics(t *testing.T) {
	const shown = "# HELP kubernetes_feature_enabled Whether a feature is on.\n" +
		`kubernetes_feature_enabled{name="A",stage="BETA"} 1` + "\n" + `kubernetes_feature_enabled{name="B",stage=""} 0` + "\n"
	for _, tt := range []struct {
		name, body string
		code       int
		want       map[string]bool
	}{
		{name: "among others", body: "process_open_fds 3\n\n" + shown + "# HELP other Another one.\nother 1\n", want: map[string]bool{"A": true, "B": false}},
		{name: "before an empty line", body: shown + "\n# HELP other Another one.\n", want: map[string]bool{"A": true, "B": false}},
		{name: "of a server that has none", body: "process_open_fds 3\n"},
		{name: "of no text", body: "\n\n"},
		{name: "that may not be read", code: http.StatusForbidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if tt.code != 0 {
					w.WriteHeader(tt.code)
				}
				_, _ = w.Write([]byte(tt.body))
			}))
			defer s.Close()
			client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: s.URL})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, gates(t.Context(), client.RESTClient())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
