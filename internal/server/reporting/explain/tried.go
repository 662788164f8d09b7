package explain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
)

const (
	// maxTried bounds the registrations that a caller may try at once, and maxTriedBytes their
	// text, because their expressions are compiled for one response.
	maxTried      = 20
	maxTriedBytes = 64 << 10
)

// Trying has the inputs of Explanations to try registrations.
type Trying struct {
	// Read decodes a registration and gives it its defaults. It returns an error if the
	// registration could not be created.
	Read func(text []byte) (runtime.Object, error)
	// TypeErrors are the type errors of the expressions of a policy, for the kinds that its rules name.
	TypeErrors func(*v1.ValidatingAdmissionPolicy) []v1.ExpressionWarning
	// Costs are the costs of the expressions of a policy.
	Costs func(*snapshot.Entry) []v1alpha1.ExpressionCost
}

// try reads the registrations of a request. It returns the registrations that the plan treats as
// stored, and a finding about each. A registration must show its author only the plan: it can
// neither read params nor ask for the permissions of other users.
func (t *Trying) try(spec *v1alpha1.AdmissionExplanationSpec, may func(authorizer.AttributesRecord) (bool, error)) ([]runtime.Object, []v1alpha1.TriedRegistration, error) {
	if len(spec.Registrations) == 0 {
		return nil, nil, nil
	}
	at := field.NewPath("spec", "registrations")
	invalid := func(err *field.Error) error {
		return apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("AdmissionExplanation").GroupKind(), "", field.ErrorList{err})
	}
	if len(spec.Registrations) > maxTried {
		return nil, nil, invalid(field.TooMany(at, len(spec.Registrations), maxTried))
	}
	size := 0
	for i := range spec.Registrations {
		size += len(spec.Registrations[i].Raw)
	}
	if size > maxTriedBytes {
		return nil, nil, invalid(field.Invalid(at, size, fmt.Sprintf("the registrations may have %d bytes in total", maxTriedBytes)))
	}
	asks, err := may(authorizer.AttributesRecord{Verb: "create", APIGroup: "authorization.k8s.io", APIVersion: "v1", Resource: "subjectaccessreviews"})
	if err != nil {
		return nil, nil, err
	}
	var objects []runtime.Object
	list := make([]v1alpha1.TriedRegistration, len(spec.Registrations))
	for i := range spec.Registrations {
		one, raw := &list[i], spec.Registrations[i].Raw
		var about struct {
			APIVersion, Kind string
			Metadata         struct{ Name string }
		}
		if err := json.Unmarshal(raw, &about); err != nil {
			return nil, nil, invalid(field.Invalid(at.Index(i), "", err.Error()))
		}
		one.Kind, one.Name = about.Kind, about.Metadata.Name
		if !slices.Contains(triableKinds(), about.APIVersion+" "+about.Kind) {
			return nil, nil, invalid(field.NotSupported(at.Index(i), about.APIVersion+" "+about.Kind, triableKinds()))
		}
		obj, err := t.Read(raw)
		if err != nil {
			one.Problems = []string{err.Error()}
			continue
		}
		if why := refused(obj, asks); why != "" {
			one.Problems = []string{why}
			continue
		}
		objects = append(objects, obj)
		if p, ok := obj.(*v1.ValidatingAdmissionPolicy); ok {
			for _, w := range t.TypeErrors(p) {
				one.Problems = append(one.Problems, w.FieldRef+": "+w.Warning)
			}
		}
		for _, d := range registration.Sources() {
			if d.Policies && d.Kind == one.Kind {
				for _, e := range snapshot.Compile(snapshot.Registrations{Objects: []runtime.Object{obj}}).Entries(d.Source) {
					one.Costs = append(one.Costs, t.Costs(e)...)
				}
			}
		}
	}
	return objects, list, nil
}

// triableKinds returns the kinds of registrations that can be tried, with their API version: policies and their bindings.
func triableKinds() []string {
	var list []string
	for _, d := range registration.Sources() {
		if d.Policies || d.Binds {
			list = append(list, v1.SchemeGroupVersion.String()+" "+d.Kind)
		}
	}
	return list
}

// refused returns the reason why a registration is left out of the plan: through it, a caller could
// learn data that it may not read. asks reports whether the caller may ask for the permissions of
// other users.
func refused(obj runtime.Object, asks bool) string {
	const params = "a policy with params cannot be tried, because its verdict would show the content of the params: register it, or write the values into the expressions"
	switch o := obj.(type) {
	case *v1.ValidatingAdmissionPolicy:
		if o.Spec.ParamKind != nil {
			return "spec.paramKind: " + params
		}
	case *v1.MutatingAdmissionPolicy:
		if o.Spec.ParamKind != nil {
			return "spec.paramKind: " + params
		}
	case *v1.ValidatingAdmissionPolicyBinding:
		if o.Spec.ParamRef != nil {
			return "spec.paramRef: " + params
		}
	case *v1.MutatingAdmissionPolicyBinding:
		if o.Spec.ParamRef != nil {
			return "spec.paramRef: " + params
		}
	}
	// The word is searched in the whole object, so that no way to write an expression is missed.
	text, err := json.Marshal(obj)
	if err != nil || !asks && strings.Contains(string(text), "authorizer") {
		return "a policy with the variable authorizer cannot be tried without the right to create subjectaccessreviews, because its verdict would show what others may do"
	}
	return ""
}

// hideNewNamespace hides the stored namespace with the name of a namespace that would be created: a
// policy that is tried would see its labels.
func hideNewNamespace(r schema.GroupVersionResource, may func(authorizer.AttributesRecord) (bool, error)) (string, error) {
	if r.Group != "" || r.Resource != "namespaces" {
		return "", nil
	}
	ok, err := may(authorizer.AttributesRecord{Verb: "get", APIVersion: "v1", Resource: "namespaces"})
	if err != nil || ok {
		return "", err
	}
	return "may not get namespaces", nil
}
