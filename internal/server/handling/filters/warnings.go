package filters

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/warning"

	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
)

// restated rewrites warnings to the texts of the emulated release, and drops warnings that the
// release does not send.
func restated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx := req.Context()
		next.ServeHTTP(w, req.WithContext(warning.WithWarningRecorder(ctx, recorder{ctx})))
	})
}

// recorder passes rewritten warnings to the recorder of its context.
type recorder struct{ context.Context }

func (r recorder) AddWarning(agent, text string) {
	if text = emulation.Warning(text); text != "" {
		warning.AddWarning(r, agent, text)
	}
}
