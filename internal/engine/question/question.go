package question

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/kit/upstream"
)

// Question is the spec of an AdmissionExplanation: a request to explain. The fields are the fields
// of the API type, in the same order, so that one converts to the other.
type Question struct {
	Operation     string                      `json:"operation,omitempty"`
	Resource      metav1.GroupVersionResource `json:"resource"`
	Subresource   string                      `json:"subresource,omitempty"`
	Namespace     string                      `json:"namespace,omitempty"`
	Name          string                      `json:"name,omitempty"`
	Object        *runtime.RawExtension       `json:"object,omitempty"`
	DryRun        bool                        `json:"dryRun,omitempty"`
	User          string                      `json:"user,omitempty"`
	Groups        []string                    `json:"groups,omitempty"`
	AssumeRights  bool                        `json:"assumeRights,omitempty"`
	All           bool                        `json:"all,omitempty"`
	Registrations []runtime.RawExtension      `json:"registrations,omitempty"`
}

// Kind and Resource identify the API type.
var (
	Kind     = schema.GroupKind{Group: registration.OwnGroup, Kind: "AdmissionExplanation"}
	Resource = schema.GroupResource{Group: registration.OwnGroup, Resource: "admissionexplanations"}
)

// May reports whether the caller is authorized. The user and ResourceRequest need not be set.
type May func(authorizer.AttributesRecord) (bool, error)

// Rights returns the May of a caller.
func Rights(ctx context.Context, rights upstream.Authorizer, caller user.Info) May {
	return func(a authorizer.AttributesRecord) (bool, error) {
		a.User, a.ResourceRequest = caller, true
		decision, _, err := rights.Authorize(ctx, a)
		if err != nil && decision != authorizer.DecisionAllow {
			return false, apierrors.NewInternalError(fmt.Errorf("asking what %s may do: %w", caller.GetName(), err))
		}
		return decision == authorizer.DecisionAllow, nil
	}
}

// Ask completes a question, and checks it and the permissions of the caller in ctx. It returns the rights of the caller
// and the user of the request. name is the name of the AdmissionExplanation.
func (q *Question) Ask(ctx context.Context, name string, rights upstream.Authorizer) (may May, who user.Info, err error) {
	if errs := q.Complete(); len(errs) > 0 {
		return nil, nil, apierrors.NewInvalid(Kind, name, errs)
	}
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return nil, nil, apierrors.NewUnauthorized("the request has no user")
	}
	may = Rights(ctx, rights, caller)
	if who, err = q.Who(caller, may); err != nil {
		return nil, nil, err
	}
	return may, who, q.MayRead(may)
}

// methods are the HTTP methods of the operations.
var methods = map[string]string{
	"CREATE":  http.MethodPost,
	"UPDATE":  http.MethodPut,
	"DELETE":  http.MethodDelete,
	"CONNECT": http.MethodPost,
}

// Complete sets fields of a question from its object and returns the errors in its fields.
func (q *Question) Complete() field.ErrorList {
	q.Operation = cmp.Or(q.Operation, "CREATE")
	var errs field.ErrorList
	at := field.NewPath("spec")
	if _, ok := methods[q.Operation]; !ok {
		errs = append(errs, field.NotSupported(at.Child("operation"), q.Operation, []string{"CREATE", "UPDATE", "DELETE", "CONNECT"}))
	}
	if q.Resource.Resource == "" || q.Resource.Version == "" {
		errs = append(errs, field.Required(at.Child("resource"), "resource and version of the request"))
	}
	for name, segment := range map[string]string{"namespace": q.Namespace, "name": q.Name, "subresource": q.Subresource, "resource": q.Resource.Resource} {
		if strings.ContainsAny(segment, "/%") || segment == "." || segment == ".." {
			errs = append(errs, field.Invalid(at.Child(name), segment, "must be one segment of a path"))
		}
	}
	if q.Object != nil && len(q.Object.Raw) > 0 {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal(q.Object.Raw, &u.Object); err != nil {
			return append(errs, field.Invalid(at.Child("object"), "", err.Error()))
		}
		q.Namespace = cmp.Or(q.Namespace, u.GetNamespace())
		if q.Name == "" && q.Operation != "CREATE" {
			q.Name = u.GetName()
		}
	} else {
		q.Object = nil
		if q.Operation == "CREATE" {
			errs = append(errs, field.Required(at.Child("object"), "a CREATE needs the object"))
		}
	}
	if q.Name == "" && q.Operation != "CREATE" {
		errs = append(errs, field.Required(at.Child("name"), "an operation on a stored object needs its name"))
	}
	return errs
}

// The user of the request is the caller or, with the right to impersonate, the user of the question.
func (q *Question) Who(caller user.Info, may May) (user.Info, error) {
	if q.User == "" && len(q.Groups) == 0 {
		return caller, nil
	}
	if q.User == "" {
		return nil, apierrors.NewBadRequest("spec.groups needs spec.user")
	}
	check := func(resource, name string) error {
		ok, err := may(authorizer.AttributesRecord{Verb: "impersonate", Resource: resource, Name: name, APIVersion: "v1"})
		if err == nil && !ok {
			err = apierrors.NewForbidden(Resource, "",
				fmt.Errorf("to explain a request of others, user %q needs the verb impersonate on %s %q", caller.GetName(), resource, name))
		}
		return err
	}
	if err := check("users", q.User); err != nil {
		return nil, err
	}
	for _, group := range q.Groups {
		if err := check("groups", group); err != nil {
			return nil, err
		}
	}
	groups := slices.Clone(q.Groups)
	if !slices.Contains(groups, user.AllAuthenticated) && q.User != user.Anonymous {
		groups = append(groups, user.AllAuthenticated)
	}
	return &user.DefaultInfo{Name: q.User, Groups: groups}, nil
}

// MayRead returns an error if the plan would show a stored object that the caller may not get.
func (q *Question) MayRead(may May) error {
	if q.Operation == "CREATE" && q.Subresource == "" {
		return nil
	}
	r := q.Resource
	ok, err := may(authorizer.AttributesRecord{Verb: "get", APIGroup: r.Group, APIVersion: r.Version, Resource: r.Resource, Namespace: q.Namespace, Name: q.Name})
	if err == nil && !ok {
		err = apierrors.NewForbidden(Resource, "",
			fmt.Errorf("to explain a change of %s %q you need to be allowed to get it", r.Resource, path.Join(q.Namespace, q.Name)))
	}
	return err
}

// unrelated is the context of an explained request. It ends with the caller's context, and has none
// of its values, such as the audit event.
type unrelated struct{ context.Context }

func (unrelated) Value(any) any { return nil }

// infos parses the paths of requests like the server.
var infos = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// Request returns the HTTP request up to admission, made by who. Its context ends with ctx and has
// none of the values of ctx, such as the audit event, and its attributes have no verb.
func (q *Question) Request(ctx context.Context, who user.Info) (*http.Request, authorizer.AttributesRecord, error) {
	r := q.Resource
	segments := []string{"/apis", r.Group, r.Version}
	if r.Group == "" {
		segments = []string{"/api", r.Version}
	}
	if q.Namespace != "" && (r.Group != "" || r.Resource != "namespaces") {
		segments = append(segments, "namespaces", q.Namespace)
	}
	segments = append(segments, r.Resource, q.Name, q.Subresource)
	method, contentType, body := methods[q.Operation], "application/json", []byte(nil)
	if q.Object != nil {
		body = q.Object.Raw
	} else if q.Operation == "UPDATE" {
		method, contentType, body = http.MethodPatch, "application/merge-patch+json", []byte("{}")
	}
	query := url.Values{}
	if q.Object != nil && q.Operation != "DELETE" && q.Operation != "CONNECT" {
		// The default of kubectl.
		query.Set("fieldValidation", metav1.FieldValidationStrict)
	}
	if q.DryRun {
		query.Set("dryRun", metav1.DryRunAll)
	}
	inner, err := http.NewRequest(method, path.Join(segments...)+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return nil, authorizer.AttributesRecord{}, apierrors.NewBadRequest(err.Error())
	}
	inner.Header.Set("Content-Type", contentType)
	inner.Header.Set("Accept", "application/json")
	info, err := infos.NewRequestInfo(inner)
	if err != nil {
		return nil, authorizer.AttributesRecord{}, apierrors.NewBadRequest(err.Error())
	}
	ctx = request.WithUser(request.WithRequestInfo(audit.WithAuditContext(unrelated{ctx}), info), who)
	if info.Namespace != "" {
		ctx = request.WithNamespace(ctx, info.Namespace)
	}
	return inner.WithContext(ctx), authorizer.AttributesRecord{
		User: who, APIGroup: info.APIGroup, APIVersion: info.APIVersion, Resource: info.Resource, Subresource: info.Subresource, Namespace: info.Namespace, Name: info.Name,
	}, nil
}
