package explain

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
)

// Resource is the plural of the resource.
const Resource = "admissionexplanations"

// Options are what Explanations need; all must be set.
type Options struct {
	// Authorizer decides what a caller may do.
	Authorizer authorizer.UnconditionalAuthorizer
	// Engine makes the plans. Chain has the plugins in order.
	Engine *admission.Engine
	Chain  []admission.Plugin
	// Locate returns the place in the server's manifest files of a rule, or of the entry when
	// rule is nil; nil when the entry is not in the files.
	Locate func(e *plan.Entry, rule *int) *plan.Location
	// Trying has what registrations are tried with.
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
// not judge it (S22.11).
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
		"what the request goes through: it is passed on to %s, which judges it by its own plugins, and by the webhooks and policies that are registered here if it reads them", server)}}
}

// methods are the HTTP methods of the operations that can be explained.
var methods = map[string]string{
	"CREATE":  http.MethodPost,
	"UPDATE":  http.MethodPut,
	"DELETE":  http.MethodDelete,
	"CONNECT": http.MethodPost,
}

// Create implements rest.Creater: it fills in the explanation. Its errors are 422 for a request
// that cannot be made, and 403 for a request that the caller may not explain.
func (e *Explanations) Create(ctx context.Context, obj runtime.Object, _ rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	asked := obj.(*v1alpha1.AdmissionExplanation)
	spec := &asked.Spec
	spec.Operation = cmp.Or(spec.Operation, "CREATE")
	if errs := complete(spec); len(errs) > 0 {
		return nil, apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("AdmissionExplanation").GroupKind(), asked.Name, errs)
	}
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("the request has no user")
	}
	may := func(a authorizer.AttributesRecord) (bool, error) {
		a.User, a.ResourceRequest = caller, true
		decision, _, err := e.options.Authorizer.Authorize(ctx, a)
		if err != nil && decision != authorizer.DecisionAllow {
			return false, apierrors.NewInternalError(fmt.Errorf("asking what %s may do: %w", caller.GetName(), err))
		}
		return decision == authorizer.DecisionAllow, nil
	}
	who, err := impersonated(spec, caller, may)
	if err != nil {
		return nil, err
	}
	if err := mayRead(spec, may); err != nil {
		return nil, err
	}
	q := &question{may: may, options: admission.PlanOptions{All: spec.All, Prepares: true}}
	if err := e.hide(spec, &q.options, may); err != nil {
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

// complete checks a request, and fills in fields from its object.
func complete(spec *v1alpha1.AdmissionExplanationSpec) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("spec")
	if _, ok := methods[spec.Operation]; !ok {
		errs = append(errs, field.NotSupported(at.Child("operation"), spec.Operation, []string{"CREATE", "UPDATE", "DELETE", "CONNECT"}))
	}
	if spec.Resource.Resource == "" || spec.Resource.Version == "" {
		errs = append(errs, field.Required(at.Child("resource"), "resource and version of the request"))
	}
	for name, segment := range map[string]string{"namespace": spec.Namespace, "name": spec.Name, "subresource": spec.Subresource, "resource": spec.Resource.Resource} {
		if strings.ContainsAny(segment, "/%") || segment == "." || segment == ".." {
			errs = append(errs, field.Invalid(at.Child(name), segment, "must be one segment of a path"))
		}
	}
	if spec.Object != nil && len(spec.Object.Raw) > 0 {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal(spec.Object.Raw, &u.Object); err != nil {
			return append(errs, field.Invalid(at.Child("object"), "", err.Error()))
		}
		spec.Namespace = cmp.Or(spec.Namespace, u.GetNamespace())
		if spec.Name == "" && spec.Operation != "CREATE" {
			spec.Name = u.GetName()
		}
	} else {
		spec.Object = nil
		if spec.Operation == "CREATE" {
			errs = append(errs, field.Required(at.Child("object"), "a CREATE needs the object"))
		}
	}
	if spec.Name == "" && spec.Operation != "CREATE" {
		errs = append(errs, field.Required(at.Child("name"), "an operation on a stored object needs its name"))
	}
	return errs
}

// impersonated returns the user of the request that is explained.
func impersonated(spec *v1alpha1.AdmissionExplanationSpec, caller user.Info, may func(authorizer.AttributesRecord) (bool, error)) (user.Info, error) {
	if spec.User == "" && len(spec.Groups) == 0 {
		return caller, nil
	}
	if spec.User == "" {
		return nil, apierrors.NewBadRequest("spec.groups needs spec.user")
	}
	check := func(resource, name string) error {
		ok, err := may(authorizer.AttributesRecord{Verb: "impersonate", Resource: resource, Name: name, APIVersion: "v1"})
		if err == nil && !ok {
			err = apierrors.NewForbidden(v1alpha1.SchemeGroupVersion.WithResource(Resource).GroupResource(), "",
				fmt.Errorf("to explain a request of others, user %q needs the verb impersonate on %s %q", caller.GetName(), resource, name))
		}
		return err
	}
	if err := check("users", spec.User); err != nil {
		return nil, err
	}
	for _, group := range spec.Groups {
		if err := check("groups", group); err != nil {
			return nil, err
		}
	}
	groups := slices.Clone(spec.Groups)
	if !slices.Contains(groups, user.AllAuthenticated) && spec.User != user.Anonymous {
		groups = append(groups, user.AllAuthenticated)
	}
	return &user.DefaultInfo{Name: spec.User, Groups: groups}, nil
}

// mayRead refuses an explanation that would show a stored object that the caller may not get.
func mayRead(spec *v1alpha1.AdmissionExplanationSpec, may func(authorizer.AttributesRecord) (bool, error)) error {
	if spec.Operation == "CREATE" && spec.Subresource == "" {
		return nil
	}
	r := spec.Resource
	ok, err := may(authorizer.AttributesRecord{Verb: "get", APIGroup: r.Group, APIVersion: r.Version, Resource: r.Resource, Namespace: spec.Namespace, Name: spec.Name})
	if err == nil && !ok {
		err = apierrors.NewForbidden(v1alpha1.SchemeGroupVersion.WithResource(Resource).GroupResource(), "",
			fmt.Errorf("to explain a change of %s %q you need to be allowed to get it", r.Resource, path.Join(spec.Namespace, spec.Name)))
	}
	return err
}

// hide removes from a plan what the caller may not read.
func (e *Explanations) hide(spec *v1alpha1.AdmissionExplanationSpec, options *admission.PlanOptions, may func(authorizer.AttributesRecord) (bool, error)) error {
	options.Hidden = map[registration.Source]string{}
	for _, d := range registration.Sources() {
		ok, err := may(authorizer.AttributesRecord{Verb: "list", APIGroup: registration.GroupName, APIVersion: d.Versions[0], Resource: d.Resource})
		if err != nil {
			return err
		}
		if !ok {
			options.Hidden[d.Source] = "may not list " + d.Resource
		}
	}
	options.Unread = map[string]string{}
	for _, p := range e.options.Chain {
		described, ok := p.Interface.(admission.Described)
		if !ok {
			continue
		}
		for _, r := range described.Reads(nil) {
			if r.Group == "" && r.Resource == "namespaces" {
				// See below.
				continue
			}
			in := ""
			if r.Namespaced {
				in = spec.Namespace
			}
			ok, err := may(authorizer.AttributesRecord{Verb: "list", APIGroup: r.Group, APIVersion: "v1", Resource: r.Resource, Namespace: in})
			if err != nil {
				return err
			}
			if !ok {
				options.Unread[p.Name] = "may not list " + r.String()
			}
		}
	}
	options.ParamHidden = func(kind schema.GroupVersionKind, namespace, name string) string {
		// The name of the resource is a guess. If the guess is wrong, too much is hidden, never
		// too little.
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		verb := "get"
		if name == "" {
			verb = "list"
		}
		ok, err := may(authorizer.AttributesRecord{Verb: verb, APIGroup: kind.Group, APIVersion: kind.Version, Resource: resource.Resource, Namespace: namespace, Name: name})
		if err != nil {
			return err.Error()
		}
		if !ok {
			return fmt.Sprintf("may not %s %s", verb, strings.TrimSuffix(resource.Resource+" "+path.Join(namespace, name), " "))
		}
		return ""
	}
	if spec.Namespace == "" {
		return nil
	}
	ok, err := may(authorizer.AttributesRecord{Verb: "get", APIVersion: "v1", Resource: "namespaces", Namespace: spec.Namespace, Name: spec.Namespace})
	if err == nil && !ok {
		options.NamespaceHidden = "may not get namespace " + spec.Namespace
	}
	return err
}

// unrelated is the context of a request that is explained. It ends with the caller's context, and
// has none of its values, such as the audit event.
type unrelated struct{ context.Context }

func (unrelated) Value(any) any { return nil }

// ask calls the handlers of the request up to admission, and writes the answer to status.
func (e *Explanations) ask(ctx context.Context, spec *v1alpha1.AdmissionExplanationSpec, who user.Info, q *question, status *v1alpha1.AdmissionExplanationStatus) error {
	inner, info, err := requestOf(spec)
	if err != nil {
		return err
	}
	ctx = request.WithUser(request.WithRequestInfo(audit.WithAuditContext(unrelated{ctx}), info), who)
	ctx = context.WithValue(ctx, questionKey{}, q)
	if info.Namespace != "" {
		ctx = request.WithNamespace(ctx, info.Namespace)
	}
	storage, done := e.handler.StorageOf(schema.GroupVersionResource(spec.Resource), spec.Subresource)
	defer done()
	q.storage = storage
	if !spec.AssumeRights {
		q.options.Before = Authorization(ctx, e.options.Authorizer, spec.Operation, authorizer.AttributesRecord{
			User: who, APIGroup: info.APIGroup, APIVersion: info.APIVersion, Resource: info.Resource, Subresource: info.Subresource, Namespace: info.Namespace, Name: info.Name,
		})
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
	failure := &metav1.Status{}
	if err := json.Unmarshal(answer.Body.Bytes(), failure); err != nil || failure.Kind != "Status" {
		return apierrors.NewInternalError(fmt.Errorf("the request did not reach admission: the answer had code %d", answer.Code))
	}
	status.Error = failure
	if refused := q.options.Before; len(refused) > 0 && refused[0].Judge != nil {
		// The server answers nothing else to who may not make the request.
		_, err := refused[0].Judge(ctx, registration.MutatingPass)
		status.Error = responsewriters.ErrorToAPIStatus(err)
	}
	return nil
}

// infos reads the paths of requests as the server does.
var infos = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// requestOf makes the HTTP request that is explained, and its RequestInfo.
func requestOf(spec *v1alpha1.AdmissionExplanationSpec) (*http.Request, *request.RequestInfo, error) {
	r := spec.Resource
	segments := []string{"/apis", r.Group, r.Version}
	if r.Group == "" {
		segments = []string{"/api", r.Version}
	}
	if spec.Namespace != "" && (r.Group != "" || r.Resource != "namespaces") {
		segments = append(segments, "namespaces", spec.Namespace)
	}
	segments = append(segments, r.Resource, spec.Name, spec.Subresource)
	method, contentType, body := methods[spec.Operation], "application/json", []byte(nil)
	if spec.Object != nil {
		body = spec.Object.Raw
	} else if spec.Operation == "UPDATE" {
		method, contentType, body = http.MethodPatch, "application/merge-patch+json", []byte("{}")
	}
	query := url.Values{}
	if spec.Object != nil && spec.Operation != "DELETE" && spec.Operation != "CONNECT" {
		// As kubectl asks.
		query.Set("fieldValidation", metav1.FieldValidationStrict)
	}
	if spec.DryRun {
		query.Set("dryRun", metav1.DryRunAll)
	}
	inner, err := http.NewRequest(method, path.Join(segments...)+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	inner.Header.Set("Content-Type", contentType)
	inner.Header.Set("Accept", "application/json")
	info, err := infos.NewRequestInfo(inner)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	return inner, info, nil
}
