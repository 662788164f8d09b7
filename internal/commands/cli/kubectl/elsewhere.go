package kubectl

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
)

// onlyVariable is the environment variable that forbids writes to a cluster that was not selected explicitly:
// the current context of the user's own kubeconfig.
const onlyVariable = "GATEHOUSE_ONLY"

// announcement is a note before the first write to a cluster that was not selected explicitly. It is printed
// once.
type announcement struct {
	once  sync.Once
	flags *genericclioptions.ConfigFlags
	err   io.Writer
}

// announcing prints the announcement before the first write through it.
type announcing struct {
	*announcement
	host string
	next http.RoundTripper
}

// reviews are resources whose create requests are queries and change nothing.
var reviews = []string{"accessreviews", "rulesreviews", "selfsubjectreviews", "tokenreviews"}

// writes reports whether a request can change the cluster.
func writes(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	if r.URL.Query().Get("dryRun") != "" {
		return false
	}
	for _, name := range reviews {
		if strings.HasSuffix(r.URL.Path, name) {
			return false
		}
	}
	return true
}

// RoundTrip implements http.RoundTripper.
func (a announcing) RoundTrip(r *http.Request) (*http.Response, error) {
	if !writes(r) {
		return a.next.RoundTrip(r)
	}
	context := *a.flags.Context
	if raw, err := a.flags.ToRawKubeConfigLoader().RawConfig(); err == nil && context == "" {
		context = raw.CurrentContext
	}
	if os.Getenv(onlyVariable) != "" {
		err := fmt.Errorf("refusing to write to context %q, server %s: it comes from your own kubeconfig, and %s is set. Name the cluster with --kubeconfig or $KUBECONFIG", context, a.host, onlyVariable)
		kubectlutil.CheckErr(err)
		return nil, errors.New("refused")
	}
	a.once.Do(func() {
		terminal.Fprintf(a.err, "gatehouse kubectl: no server was started here: writing to context %q of your own kubeconfig, server %s\n", context, a.host)
	})
	return a.next.RoundTrip(r)
}
