package explain

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/question"
)

// Existing returns the link of the place where a new object would be stored. err is the result of getting an object of
// the same name.
func Existing(resource schema.GroupResource, name string, err error) []plan.Link {
	switch {
	case err == nil:
		return []plan.Link{question.Refuses(plan.StorageName, registration.ValidatingPass, fmt.Errorf("%w: its change is explained with --operation UPDATE", apierrors.NewAlreadyExists(resource, name)))}
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return nil
	case apierrors.IsForbidden(err):
		return []plan.Link{question.Unknown(plan.StorageName, registration.ValidatingPass, "may not get "+resource.Resource+", so an object of this name may exist")}
	}
	return []plan.Link{question.Unknown(plan.StorageName, registration.ValidatingPass, "whether the object exists: "+err.Error())}
}

// Unbound returns the link of the pod of a binding or of an eviction. err is the result of reading the pod, and of
// binding or evicting it.
func Unbound(err error) []plan.Link {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsTooManyRequests(err):
		return []plan.Link{question.Refuses(plan.StorageName, registration.ValidatingPass, err)}
	case apierrors.IsForbidden(err):
		return []plan.Link{question.Unknown(plan.StorageName, registration.ValidatingPass, "may not get pods, so the pod may not be there")}
	}
	return []plan.Link{question.Unknown(plan.StorageName, registration.ValidatingPass, "whether the pod can be bound or evicted: "+err.Error())}
}
