package main

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	webv1 "github.com/gatehouse-dev/gatehouse/examples/operator/api/v1"
)

// maxReplicas is the largest number of replicas of a website.
const maxReplicas = 10

func setupWebhooks(manager ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(manager, &webv1.Website{}).WithDefaulter(rules{}).WithValidator(rules{}).Complete()
}

// rules are the webhooks for websites.
type rules struct{}

// Default sets default values.
func (rules) Default(_ context.Context, site *webv1.Website) error {
	if site.Spec.Replicas == nil {
		site.Spec.Replicas = new(int32(1))
	}
	return nil
}

// ValidateCreate checks a new website.
func (rules) ValidateCreate(_ context.Context, site *webv1.Website) (admission.Warnings, error) {
	if n := *site.Spec.Replicas; n > maxReplicas {
		return nil, fmt.Errorf("spec.replicas %d is more than %d", n, maxReplicas)
	}
	return nil, nil
}

// ValidateUpdate checks a changed website.
func (r rules) ValidateUpdate(ctx context.Context, _, site *webv1.Website) (admission.Warnings, error) {
	return r.ValidateCreate(ctx, site)
}

// ValidateDelete allows every deletion.
func (rules) ValidateDelete(context.Context, *webv1.Website) (admission.Warnings, error) {
	return nil, nil
}
