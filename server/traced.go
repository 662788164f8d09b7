package server

import (
	"fmt"
	"net/http"

	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/metadata"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/server/rejections"
	"github.com/gatehouse-dev/gatehouse/server/traces"
)

// traced returns a handler that keeps the traces of the requests that next handles, if
// traces are kept.
func (a *assembly) traced(next http.Handler) http.Handler {
	if a.ring == nil {
		return next
	}
	return admission.Traced(next, a.ring.Add)
}

// records serves the traces that are kept.
func (a *assembly) records() *traces.Storage {
	if a.options.AdmissionTraceBytes > 0 {
		a.ring = traces.NewRing(a.options.AdmissionTraceBytes)
	}
	return traces.NewStorage(a.ring, trace.RecordOptions{RedactPatches: a.options.AdmissionTraceRedact})
}

// tellingOwners returns admission that tells owners when it rejects what they need.
func (a *assembly) tellingOwners(chain apiadmission.Interface) (apiadmission.Interface, error) {
	owners, err := metadata.NewForConfig(a.loopback)
	if err != nil {
		return nil, fmt.Errorf("client for the metadata of owners: %w", err)
	}
	teller := rejections.New(a.client, owners)
	a.controllers = append(a.controllers, teller.Run)
	return teller.Around(chain.(rejections.Chain)), nil
}
