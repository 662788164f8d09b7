package filters

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/warning"

	"github.com/gatehouse-dev/gatehouse/internal/emulation"
)

// restated has warnings say what a server of the emulated release says, which may be nothing.
func restated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx := req.Context()
		next.ServeHTTP(w, req.WithContext(warning.WithWarningRecorder(ctx, recorder{ctx})))
	})
}

// recorder passes warnings on to that of its context.
type recorder struct{ context.Context }

func (r recorder) AddWarning(agent, text string) {
	if text = emulation.Warning(text); text != "" {
		warning.AddWarning(r, agent, text)
	}
}
