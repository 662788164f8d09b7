package main

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// requester is the annotation of a namespace with the user who requested it.
const requester = "openshift.io/requester"

// terminating is the number of namespaces in deletion that do not count.
const terminating = 2

// projectLimit is a webhook for new namespaces. It limits the namespaces of a user to most.
type projectLimit struct {
	namespaces interface {
		List(context.Context, metav1.ListOptions) (*corev1.NamespaceList, error)
	}
	most int
}

// Handle implements admission.Handler.
func (p projectLimit) Handle(ctx context.Context, req admission.Request) admission.Response {
	all, err := p.namespaces.List(ctx, metav1.ListOptions{})
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("counting namespaces: %w", err))
	}
	user, has, ending := req.UserInfo.Username, 0, 0
	for _, ns := range all.Items {
		switch {
		case ns.Annotations[requester] != user:
		case ns.DeletionTimestamp != nil && ending < terminating:
			ending++
		default:
			has++
		}
	}
	if has >= p.most {
		return admission.Denied(fmt.Sprintf("%s has %d of %d namespaces", user, has, p.most))
	}
	return admission.Allowed("")
}
