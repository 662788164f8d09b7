package admission

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/question"
)

const (
	tracesResource = "admissiontraces"
	// defaultTraceBytes bounds the memory of the traces.
	defaultTraceBytes = 16 << 20
	// maxQuestion bounds the body of an AdmissionExplanation; API servers have the same bound for
	// requests.
	maxQuestion = 3 << 20
)

// reportsVersion is the API version of the answers.
var reportsVersion = schema.GroupVersion{Group: registration.OwnGroup, Version: "v1alpha1"}

// ReportsOptions configure Reports.
type ReportsOptions struct {
	// GroupVersion is a group version of the server. Traces and explanations become its resources,
	// so that clients reach them through the APIService of the group version. It must be set.
	GroupVersion schema.GroupVersion
	// Engine makes the plans, and Plugins are the plugins of the server's chain, in order. Both
	// must be set.
	Engine  *Engine
	Plugins []Plugin
	// Authorizer authorizes the readers of plans. It must be set.
	Authorizer authorizer.UnconditionalAuthorizer
	// TraceBytes bounds the memory of the traces. Zero means 16 MiB.
	TraceBytes int
	// Record has the options for the content of traces.
	Record trace.RecordOptions
}

// Reports serves traces of the latest requests of a server that embeds the engine, and explanations
// of other requests. `gatehouse trace` and `gatehouse explain` find Reports through the main server
// if the server announces its group version (announce.Options.Reports).
//
// Reports serves two resources in the paths of its group version: admissiontraces (get, list) and
// admissionexplanations (create). The objects have the API version gatehouse.dev/v1alpha1. The
// server must authorize the requests for them like requests for its other resources, so that roles
// can grant access. No webhook, policy or initializer applies to them (S2.41).
//
// It is safe for concurrent use.
type Reports struct {
	options ReportsOptions
	chain   Passes

	mu struct {
		sync.Mutex
		// kept are the latest traces, oldest first, and bytes is the sum of their sizes.
		kept  []*keptTrace
		bytes int
	}
}

// keptTrace is a trace and its size when it was last measured.
type keptTrace struct {
	*trace.Trace
	size int
}

// NewReports returns Reports without traces. The error names the missing option.
func NewReports(o ReportsOptions) (*Reports, error) {
	switch {
	case o.GroupVersion.Group == "" || o.GroupVersion.Version == "":
		return nil, errors.New("admission: ReportsOptions.GroupVersion has no group or no version")
	case o.Engine == nil:
		return nil, errors.New("admission: ReportsOptions.Engine is nil")
	case o.Authorizer == nil:
		return nil, errors.New("admission: ReportsOptions.Authorizer is nil")
	}
	o.TraceBytes = cmp.Or(o.TraceBytes, defaultTraceBytes)
	return &Reports{options: o, chain: Chain(o.Plugins...)}, nil
}

// Admission returns the chain of the plugins, which ends a request after its explanation. The
// server must use it instead of Chain.
func (r *Reports) Admission() Passes { return explaining{r.chain, r} }

// Handler returns a handler that answers requests for traces and explanations, and keeps the traces
// of all other requests, which api handles. It must be installed where requests are authorized and
// have their RequestInfo.
func (r *Reports) Handler(api http.Handler) http.Handler {
	traced := Traced(api, r.keep)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest || info.APIGroup != r.options.GroupVersion.Group || info.APIVersion != r.options.GroupVersion.Version {
			traced.ServeHTTP(w, req)
			return
		}
		var answer any
		var err error
		code := http.StatusOK
		switch {
		case info.Resource == tracesResource && info.Subresource == "" && info.Verb == "list":
			answer, err = r.list(info.Namespace, req.URL.Query().Get("fieldSelector"))
		case info.Resource == tracesResource && info.Subresource == "" && info.Verb == "get":
			answer, err = r.get(info.Namespace, info.Name)
		case info.Resource == question.Resource.Resource && info.Subresource == "" && info.Verb == "create":
			code = http.StatusCreated
			answer, err = r.explain(w, req, api)
		case info.Resource == tracesResource || info.Resource == question.Resource.Resource:
			err = apierrors.NewMethodNotSupported(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Verb)
		default:
			traced.ServeHTTP(w, req)
			return
		}
		if err != nil {
			status := responsewriters.ErrorToAPIStatus(err)
			code, answer = int(status.Code), status
		}
		body, err := json.Marshal(answer)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write(body)
	})
}

// keep adds a trace and removes the oldest ones beyond the bound. A trace that grows later is
// measured again.
func (r *Reports) keep(t *trace.Trace) {
	k := &keptTrace{Trace: t}
	r.mu.Lock()
	r.mu.kept = append(r.mu.kept, k)
	r.mu.Unlock()
	r.measure(k)
	t.Late(func() { r.measure(k) })
}

func (r *Reports) measure(k *keptTrace) {
	size := k.Size()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.mu.kept, k) {
		return
	}
	r.mu.bytes += size - k.size
	k.size = size
	drop := 0
	for ; r.mu.bytes > r.options.TraceBytes && drop < len(r.mu.kept); drop++ {
		r.mu.bytes -= r.mu.kept[drop].size
	}
	r.mu.kept = slices.Delete(r.mu.kept, 0, drop)
}

// traceObject is an AdmissionTrace.
type traceObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	trace.Record      `json:",inline"`
}

// traceList is an AdmissionTraceList.
type traceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []traceObject `json:"items"`
}

func typed(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: reportsVersion.String(), Kind: kind}
}

// traces returns the traces in a namespace, oldest first; "" means all namespaces.
func (r *Reports) traces(namespace string) []traceObject {
	r.mu.Lock()
	kept := slices.Clone(r.mu.kept)
	r.mu.Unlock()
	list := make([]traceObject, 0, len(kept))
	for _, k := range kept {
		if own := k.Subject().Namespace; namespace == "" || own == namespace {
			t := traceObject{TypeMeta: typed("AdmissionTrace"), Record: k.Record(r.options.Record)}
			t.Name, t.Namespace, t.CreationTimestamp = t.ID, own, metav1.NewTime(t.Start.Truncate(time.Second))
			list = append(list, t)
		}
	}
	return list
}

func (r *Reports) list(namespace, selector string) (*traceList, error) {
	wanted, err := fields.ParseSelector(selector)
	if err != nil {
		return nil, apierrors.NewBadRequest("fieldSelector: " + err.Error())
	}
	for _, q := range wanted.Requirements() {
		if q.Field != "metadata.name" && q.Field != "metadata.namespace" && !slices.Contains(trace.Fields, q.Field) {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("fieldSelector: %q is not a field of admission traces: use metadata.name, metadata.namespace, %s", q.Field, strings.Join(trace.Fields, ", ")))
		}
	}
	items := slices.DeleteFunc(r.traces(namespace), func(t traceObject) bool {
		return slices.ContainsFunc(wanted.Requirements(), func(q fields.Requirement) bool {
			var values []string
			switch q.Field {
			case "metadata.name":
				values = []string{t.Name}
			case "metadata.namespace":
				values = []string{t.Namespace}
			default:
				values = t.Field(q.Field)
			}
			return slices.Contains(values, q.Value) == (q.Operator == selection.NotEquals)
		})
	})
	return &traceList{TypeMeta: typed("AdmissionTraceList"), Items: items}, nil
}

func (r *Reports) get(namespace, name string) (*traceObject, error) {
	all := r.traces(namespace)
	if i := slices.IndexFunc(all, func(t traceObject) bool { return t.Name == name }); i >= 0 {
		return &all[i], nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: r.options.GroupVersion.Group, Resource: tracesResource}, name)
}

// explanation is an AdmissionExplanation.
type explanation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              question.Question `json:"spec"`
	Status            struct {
		Plan  *plan.Plan     `json:"plan,omitempty"`
		Error *metav1.Status `json:"error,omitempty"`
	} `json:"status"`
}

// explain answers an AdmissionExplanation. The explained request goes through the handlers of the
// server up to admission, which makes the plan and ends the request.
func (r *Reports) explain(w http.ResponseWriter, req *http.Request, api http.Handler) (*explanation, error) {
	ctx := req.Context()
	asked := &explanation{}
	if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, maxQuestion)).Decode(asked); err != nil {
		if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", tooLong.Limit))
		}
		return nil, apierrors.NewBadRequest("the body is not an AdmissionExplanation as JSON: " + err.Error())
	}
	asked.TypeMeta = typed(question.Kind.Kind)
	spec := &asked.Spec
	may, who, err := spec.Ask(ctx, asked.Name, r.options.Authorizer)
	if err != nil {
		return nil, err
	}
	if len(spec.Registrations) > 0 {
		return nil, apierrors.NewBadRequest("spec.registrations: this server does not try policies that are not stored")
	}
	p := &planned{options: PlanOptions{All: spec.All, Prepares: true}}
	if err := p.options.Hide(r.options.Plugins, spec.Namespace, may); err != nil {
		return nil, err
	}
	inner, about, err := spec.Request(ctx, who)
	if err != nil {
		return nil, err
	}
	inner = inner.WithContext(context.WithValue(inner.Context(), plannedKey{}, p))
	if !spec.AssumeRights {
		p.options.Before = question.Authorization(inner.Context(), r.options.Authorizer, spec.Operation, about)
	}
	recorded := httptest.NewRecorder()
	api.ServeHTTP(recorded, inner)
	p.Lock()
	defer p.Unlock()
	switch {
	case p.err != nil:
		return nil, p.err
	case p.plan != nil:
		asked.Status.Plan = p.plan
		return asked, nil
	}
	asked.Status.Error, err = question.Failure(ctx, recorded, p.options.Before)
	return asked, err
}

// planned is an explained request. The handlers of a request that timed out may still run.
type planned struct {
	sync.Mutex
	options PlanOptions
	plan    *plan.Plan
	// err is the reason why admission of the request made no plan.
	err error
}

type plannedKey struct{}

// errExplained ends an explained request.
var errExplained = apierrors.NewBadRequest("the request was explained, not made")

// explaining is a chain that makes the plan of an explained request, and ends the request.
type explaining struct {
	Passes
	reports *Reports
}

// Handles implements admission.Interface.
func (x explaining) Handles(admission.Operation) bool { return true }

// Admit implements admission.MutationInterface.
func (x explaining) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	p, ok := ctx.Value(plannedKey{}).(*planned)
	if !ok {
		if !x.Passes.Handles(a.GetOperation()) {
			return nil
		}
		return x.Passes.Admit(ctx, a, o)
	}
	p.Lock()
	defer p.Unlock()
	if p.plan == nil && p.err == nil {
		p.plan, p.err = x.reports.options.Engine.Plan(ctx, x.reports.options.Plugins, a, o, p.options)
	}
	return errExplained
}

// Validate implements admission.ValidationInterface.
func (x explaining) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if _, ok := ctx.Value(plannedKey{}).(*planned); ok {
		return errExplained
	}
	if !x.Passes.Handles(a.GetOperation()) {
		return nil
	}
	return x.Passes.Validate(ctx, a, o)
}
