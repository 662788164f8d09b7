package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/engine/question"
	"github.com/gatehouse-dev/gatehouse/internal/kit/upstream"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
)

// Resource is the plural of the resource.
const Resource = "admissionexplanations"

// Options are the inputs of Explanations; all must be set.
type Options struct {
	// Authorizer decides which objects a caller may read.
	Authorizer upstream.Authorizer
	// Engine makes the plans. Chain has the plugins in order.
	Engine *admission.Engine
	Chain  []admission.Plugin
	// Locate returns the place in the server's manifest files of a rule, or of the entry when
	// rule is nil; nil when the entry is not in the files.
	Locate func(e *plan.Entry, rule *int) *plan.Location
	// Trying has the inputs to try registrations.
	Trying Trying
}

// Explanations is a storage that answers AdmissionExplanations, and stores nothing. It is
// safe for concurrent use.
type Explanations struct {
	resources.Computed
	options Options
	handler resources.Handler
	remote  func(schema.GroupVersion) string
}

// New returns Explanations. Serve must be called before requests come.
func New(o Options) *Explanations {
	return &Explanations{
		Computed: resources.Computed{Object: func() runtime.Object { return &v1alpha1.AdmissionExplanation{} }, Singular: "admissionexplanation"},
		options:  o,
		handler: resources.Handler{
			Admission: planning{o.Engine, o.Chain}, Initializers: true, Authorizer: o.Authorizer, NotFound: http.NotFoundHandler(), Uncounted: true,
		},
	}
}

// Serve sets the sources of the server's resources. remote returns the name of the server that
// gets the requests for a group version; it is empty when this server serves the group version.
func (e *Explanations) Serve(remote func(schema.GroupVersion) string, sources ...resources.Source) {
	e.remote, e.handler.Sources = remote, sources
}

var _ rest.Creater = (*Explanations)(nil)

// elsewhere returns the plan for a request that is passed on to another server: this server does
// not admit it (S22.11).
func elsewhere(spec *v1alpha1.AdmissionExplanationSpec, who user.Info, server string) *plan.Plan {
	r := spec.Resource
	about := plan.About{
		Operation: spec.Operation, APIVersion: schema.GroupVersion{Group: r.Group, Version: r.Version}.String(), Kind: r.Resource, Resource: r.Resource,
		Subresource: spec.Subresource, Namespace: spec.Namespace, Name: spec.Name, User: who.GetName(), DryRun: spec.DryRun,
	}
	if spec.Object != nil {
		u := &unstructured.Unstructured{}
		// complete has checked before that the object can be decoded.
		if json.Unmarshal(spec.Object.Raw, &u.Object) == nil {
			about.Kind, about.Name = u.GetKind(), cmp.Or(spec.Name, u.GetName())
		}
	}
	return &plan.Plan{Request: about, Notes: []string{fmt.Sprintf(
		"the admission of the request: it is passed on to %s, with its own plugins, and with the webhooks and policies of this server if it reads them", server)}}
}

// Create implements rest.Creater: it fills in the explanation. Its errors are 422 for a request
// that cannot be made, and 403 for a request that the caller may not explain.
func (e *Explanations) Create(ctx context.Context, obj runtime.Object, _ rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	asked := obj.(*v1alpha1.AdmissionExplanation)
	spec := &asked.Spec
	may, who, err := (*question.Question)(spec).Ask(ctx, asked.Name, e.options.Authorizer)
	if err != nil {
		return nil, err
	}
	q := &planned{may: may, options: admission.PlanOptions{All: spec.All, Prepares: true}}
	if err := q.options.Hide(e.options.Chain, spec.Namespace, may); err != nil {
		return nil, err
	}
	if q.options.Registrations, asked.Status.Tried, err = e.options.Trying.try(spec, may); err != nil {
		return nil, err
	}
	if len(q.options.Registrations) > 0 && q.options.NamespaceHidden == "" {
		if q.options.NamespaceHidden, err = hideNewNamespace(schema.GroupVersionResource(spec.Resource), may); err != nil {
			return nil, err
		}
	}
	if server := e.remote(schema.GroupVersion{Group: spec.Resource.Group, Version: spec.Resource.Version}); server != "" {
		asked.Status.Plan = elsewhere(spec, who, server)
	} else if err := e.ask(ctx, spec, who, q, &asked.Status); err != nil {
		return nil, err
	}
	asked.ManagedFields = nil
	return asked, nil
}

// ask calls the handlers of the request up to admission, and writes the answer to status.
func (e *Explanations) ask(ctx context.Context, spec *v1alpha1.AdmissionExplanationSpec, who user.Info, q *planned, status *v1alpha1.AdmissionExplanationStatus) error {
	inner, about, err := (*question.Question)(spec).Request(ctx, who)
	if err != nil {
		return err
	}
	ctx = context.WithValue(inner.Context(), questionKey{}, q)
	storage, done := e.handler.StorageOf(schema.GroupVersionResource(spec.Resource), spec.Subresource)
	defer done()
	q.storage = storage
	if !spec.AssumeRights {
		q.options.Before = question.Authorization(ctx, e.options.Authorizer, spec.Operation, about)
	}
	answer := httptest.NewRecorder()
	e.handler.ServeHTTP(answer, inner.WithContext(ctx))
	switch {
	case q.err != nil:
		return q.err
	case q.plan != nil:
		for step := range q.plan.Each() {
			if step.Entry != nil {
				step.Location = e.options.Locate(step.Entry, step.Rule)
			}
		}
		status.Plan = q.plan
		return nil
	}
	status.Error, err = question.Failure(ctx, answer, q.options.Before)
	return err
}
