package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// ConfigurationName is the name of both configurations.
	ConfigurationName = "podpolicy"

	// controller-runtime derives these paths from the kind.
	mutatePath   = "/mutate--v1-pod"
	validatePath = "/validate--v1-pod"
)

// Registration has the data for the webhook configurations.
type Registration struct {
	// Version is the version of admissionregistration.k8s.io, v1 or v1beta1.
	Version string
	// URL is the address of the webhooks, without a path. Service, as NAMESPACE/NAME, takes precedence if it is
	// set.
	URL     string
	Service string
	// CA is the certificate authority of the webhooks, PEM.
	CA []byte
	// FailurePolicy is Fail or Ignore.
	FailurePolicy string
	// NamespaceSelector selects the namespaces of the pods, in the syntax of kubectl -l; empty means all
	// namespaces.
	NamespaceSelector string
}

// hosts returns the names in the serving certificate.
func (r Registration) hosts() ([]string, error) {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if r.Service != "" {
		namespace, name, ok := strings.Cut(r.Service, "/")
		if !ok || namespace == "" || name == "" {
			return nil, fmt.Errorf("service %q is not of the form NAMESPACE/NAME", r.Service)
		}
		return append(hosts, name+"."+namespace+".svc"), nil
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("url %q is not of the form https://HOST:PORT", r.URL)
	}
	return append(hosts, u.Hostname()), nil
}

func (r Registration) clientConfig(path string) admissionv1.WebhookClientConfig {
	if namespace, name, ok := strings.Cut(r.Service, "/"); ok {
		return admissionv1.WebhookClientConfig{
			Service:  &admissionv1.ServiceReference{Namespace: namespace, Name: name, Path: &path},
			CABundle: r.CA,
		}
	}
	target := strings.TrimSuffix(r.URL, "/") + path
	return admissionv1.WebhookClientConfig{URL: &target, CABundle: r.CA}
}

// objects returns the two configurations in the selected version. Both versions have the same fields, and every
// field with a different default is set.
func (r Registration) objects() ([]*unstructured.Unstructured, error) {
	namespaces, err := metav1.ParseToLabelSelector(r.NamespaceSelector)
	if err != nil {
		return nil, fmt.Errorf("namespace selector %q: %w", r.NamespaceSelector, err)
	}
	policy := admissionv1.FailurePolicyType(r.FailurePolicy)
	equivalent := admissionv1.Equivalent
	none := admissionv1.SideEffectClassNone
	again := admissionv1.IfNeededReinvocationPolicy
	timeout := int32(5)
	reviews := []string{"v1", "v1beta1"}
	rule := func(operations []admissionv1.OperationType, resources ...string) []admissionv1.RuleWithOperations {
		return []admissionv1.RuleWithOperations{{
			Operations: operations,
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: resources},
		}}
	}
	return r.versioned(
		&admissionv1.MutatingWebhookConfiguration{
			TypeMeta:   metav1.TypeMeta{Kind: "MutatingWebhookConfiguration"},
			ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName},
			Webhooks: []admissionv1.MutatingWebhook{{
				Name:                    "inject.podpolicy.gatehouse.dev",
				ClientConfig:            r.clientConfig(mutatePath),
				Rules:                   rule([]admissionv1.OperationType{admissionv1.Create}, "pods"),
				FailurePolicy:           &policy,
				MatchPolicy:             &equivalent,
				NamespaceSelector:       namespaces,
				SideEffects:             &none,
				TimeoutSeconds:          &timeout,
				AdmissionReviewVersions: reviews,
				ReinvocationPolicy:      &again,
			}},
		},
		&admissionv1.ValidatingWebhookConfiguration{
			TypeMeta:   metav1.TypeMeta{Kind: "ValidatingWebhookConfiguration"},
			ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName},
			Webhooks: []admissionv1.ValidatingWebhook{{
				Name:         "images.podpolicy.gatehouse.dev",
				ClientConfig: r.clientConfig(validatePath),
				Rules: rule([]admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
					"pods", "pods/ephemeralcontainers"),
				FailurePolicy:           &policy,
				MatchPolicy:             &equivalent,
				NamespaceSelector:       namespaces,
				SideEffects:             &none,
				TimeoutSeconds:          &timeout,
				AdmissionReviewVersions: reviews,
			}},
		})
}

func (r Registration) versioned(typed ...client.Object) ([]*unstructured.Unstructured, error) {
	out := make([]*unstructured.Unstructured, 0, len(typed))
	for _, object := range typed {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{Object: content}
		u.SetAPIVersion(admissionv1.GroupName + "/" + r.Version)
		out = append(out, u)
	}
	return out, nil
}

// Register writes the configurations by server-side apply. It overwrites the configurations of an earlier run.
func (r Registration) Register(ctx context.Context, c client.Client) error {
	objects, err := r.objects()
	if err != nil {
		return err
	}
	for _, object := range objects {
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("podpolicy"), client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("registering %s %q: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// Unregister deletes the configurations. A missing configuration is not an error.
func (r Registration) Unregister(ctx context.Context, c client.Client) error {
	objects, err := r.objects()
	if err != nil {
		return err
	}
	var errs []error
	for _, object := range objects {
		if err := c.Delete(ctx, object); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("unregistering %s %q: %w", object.GetKind(), object.GetName(), err))
		}
	}
	return errors.Join(errs...)
}
