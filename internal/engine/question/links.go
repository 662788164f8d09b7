package question

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/kit/upstream"
)

// Refuses returns the link of a part of the server that rejects a request, in a pass.
func Refuses(name string, pass registration.Pass, err error) plan.Link {
	return plan.Link{
		Plugin: name, Mutates: pass == registration.MutatingPass, Validates: pass == registration.ValidatingPass, Certain: true,
		Judge: func(context.Context, registration.Pass) ([]byte, error) { return nil, err },
	}
}

// Unknown returns the link of a part of the server with an unknown result.
func Unknown(name string, pass registration.Pass, why string) plan.Link {
	return plan.Link{Plugin: name, Mutates: pass == registration.MutatingPass, Validates: pass == registration.ValidatingPass, Hidden: why}
}

// Failure returns the error of a request that did not reach admission, by the answer of the handlers. before are the
// links before admission.
func Failure(ctx context.Context, answer *httptest.ResponseRecorder, before []plan.Link) (*metav1.Status, error) {
	failure := &metav1.Status{}
	if err := json.Unmarshal(answer.Body.Bytes(), failure); err != nil || failure.Kind != "Status" {
		return nil, apierrors.NewInternalError(fmt.Errorf("the request did not reach admission: the answer had code %d", answer.Code))
	}
	if len(before) > 0 && before[0].Judge != nil {
		// A caller that may not make the request gets no other answer.
		_, err := before[0].Judge(ctx, registration.MutatingPass)
		return responsewriters.ErrorToAPIStatus(err), nil
	}
	return failure, nil
}

// verbs are the verbs of each operation; permission for one of them is enough.
var verbs = map[string][]string{"CREATE": {"create"}, "UPDATE": {"update", "patch"}, "DELETE": {"delete"}, "CONNECT": {"create", "get"}}

// Authorization returns the link of the authorization of a request; none if the user of a may make
// the request. a needs no verb. The plan continues after the rejection.
func Authorization(ctx context.Context, rights upstream.Authorizer, operation string, a authorizer.AttributesRecord) []plan.Link {
	if a.ResourceRequest = true; operation == "CREATE" && a.Subresource == "" {
		// A create names no object.
		a.Name = ""
	}
	why := ""
	for _, a.Verb = range verbs[operation] {
		decision, reason, err := rights.Authorize(ctx, a)
		switch {
		case decision == authorizer.DecisionAllow:
			return nil
		case apierrors.IsForbidden(err):
			return []plan.Link{Unknown(plan.AuthorizationName, registration.MutatingPass, "may not create subjectaccessreviews, without which the rights of the user are unknown")}
		case err != nil:
			return []plan.Link{Unknown(plan.AuthorizationName, registration.MutatingPass, "the rights of the user are unknown: "+err.Error())}
		}
		why = reason
	}
	a.Verb = verbs[operation][0]
	refused := Refuses(plan.AuthorizationName, registration.MutatingPass, responsewriters.ForbiddenStatusError(a, why))
	refused.GoesOn = true
	return []plan.Link{refused}
}
