package webhook

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiadmission "k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/plugins"
)

// RegistrationName is the name of both webhook configurations.
const RegistrationName = "gatehouse-policies"

// The passes, by their names in paths.
const (
	mutating   = "mutate"
	validating = "validate"
)

// path returns the path for the reviews of a pass of a plugin.
func path(pass, plugin string) string { return "/" + pass + "/" + plugin }

// webhookName returns the name of a plugin's webhook.
func webhookName(plugin string) string {
	return strings.ToLower(plugin) + ".policies.gatehouse.dev"
}

// Registrations returns the webhook configurations of the plugins: one for mutating webhooks and one for
// validating webhooks. Either is nil if there is no plugin for it.
func (s *Server) Registrations() (*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration) {
	var m *admissionregistrationv1.MutatingWebhookConfiguration
	var v *admissionregistrationv1.ValidatingWebhookConfiguration
	meta := metav1.ObjectMeta{Name: RegistrationName, Labels: map[string]string{"app.kubernetes.io/managed-by": "gatehouse"}}
	for i := range s.served {
		p := &s.served[i]
		if _, ok := p.Interface.(apiadmission.MutationInterface); ok {
			if m == nil {
				m = &admissionregistrationv1.MutatingWebhookConfiguration{
					TypeMeta: metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"}, ObjectMeta: meta,
				}
			}
			// A kube-apiserver also reinvokes its built-in admission plugins when a webhook changed the object.
			m.Webhooks = append(m.Webhooks, admissionregistrationv1.MutatingWebhook{
				Name: webhookName(p.Name), ClientConfig: s.clientConfig(mutating, p.Name), Rules: rules(p),
				FailurePolicy: s.failurePolicy(), MatchPolicy: new(admissionregistrationv1.Equivalent), NamespaceSelector: s.namespaceSelector(),
				SideEffects: p.sideEffects(), TimeoutSeconds: new(int32(s.options.Timeout.Seconds())), AdmissionReviewVersions: []string{"v1"},
				ReinvocationPolicy: new(admissionregistrationv1.IfNeededReinvocationPolicy), MatchConditions: matchConditions(),
			})
		}
		if _, ok := p.Interface.(apiadmission.ValidationInterface); ok {
			if v == nil {
				v = &admissionregistrationv1.ValidatingWebhookConfiguration{
					TypeMeta: metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingWebhookConfiguration"}, ObjectMeta: meta,
				}
			}
			v.Webhooks = append(v.Webhooks, admissionregistrationv1.ValidatingWebhook{
				Name: webhookName(p.Name), ClientConfig: s.clientConfig(validating, p.Name), Rules: rules(p),
				FailurePolicy: s.failurePolicy(), MatchPolicy: new(admissionregistrationv1.Equivalent), NamespaceSelector: s.namespaceSelector(),
				SideEffects: p.sideEffects(), TimeoutSeconds: new(int32(s.options.Timeout.Seconds())), AdmissionReviewVersions: []string{"v1"},
				MatchConditions: matchConditions(),
			})
		}
	}
	return m, v
}

// operations are all operations, in the order of the rules.
var operations = []apiadmission.Operation{apiadmission.Create, apiadmission.Update, apiadmission.Delete, apiadmission.Connect}

// rules returns the rules for the requests that concern a plugin. For each resource, they have the operations
// that the plugin handles.
func rules(p *served) []admissionregistrationv1.RuleWithOperations {
	var list []admissionregistrationv1.RuleWithOperations
	for _, about := range p.About {
		list = append(list, rule(p, about))
	}
	return list
}

func rule(p *served, about plugins.About) admissionregistrationv1.RuleWithOperations {
	scope := admissionregistrationv1.AllScopes
	if about.Namespaced {
		scope = admissionregistrationv1.NamespacedScope
	}
	resource := about.Resource
	if about.Subresource != "" {
		resource += "/" + about.Subresource
	}
	r := admissionregistrationv1.RuleWithOperations{Rule: admissionregistrationv1.Rule{
		APIGroups: []string{about.Group}, APIVersions: []string{"*"}, Resources: []string{resource}, Scope: &scope,
	}}
	for _, op := range operations {
		if p.Handles(op) && (about.Operations == nil || slices.Contains(about.Operations, op)) {
			r.Operations = append(r.Operations, admissionregistrationv1.OperationType(op))
		}
	}
	return r
}

func (s *Server) clientConfig(pass, plugin string) admissionregistrationv1.WebhookClientConfig {
	c := admissionregistrationv1.WebhookClientConfig{CABundle: s.trusted}
	at := path(pass, plugin)
	if namespace, name, ok := strings.Cut(s.options.Service, "/"); ok {
		c.Service = &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: name, Path: &at}
		return c
	}
	c.URL = new(s.base + at)
	return c
}

func (s *Server) failurePolicy() *admissionregistrationv1.FailurePolicyType {
	if s.options.IgnoreFailures {
		return new(admissionregistrationv1.Ignore)
	}
	return new(admissionregistrationv1.Fail)
}

// sideEffects returns NoneOnDryRun for a plugin with side effects, and None for others.
func (p *served) sideEffects() *admissionregistrationv1.SideEffectClass {
	if p.Counts() {
		return new(admissionregistrationv1.SideEffectClassNoneOnDryRun)
	}
	return new(admissionregistrationv1.SideEffectClassNone)
}

// namespaceSelector excludes the namespaces that must work without this server: the namespaces of the control
// plane, and the server's own.
func (s *Server) namespaceSelector() *metav1.LabelSelector {
	excluded := slices.Clone(s.options.ExcludeNamespaces)
	if namespace, _, ok := strings.Cut(s.options.Service, "/"); ok && !slices.Contains(excluded, namespace) {
		excluded = append(excluded, namespace)
	}
	if len(excluded) == 0 {
		return &metav1.LabelSelector{}
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: excluded},
	}}
}

// matchConditions exclude the API server's own requests: it may need them to admit other requests.
func matchConditions() []admissionregistrationv1.MatchCondition {
	return []admissionregistrationv1.MatchCondition{{Name: "not-the-api-server", Expression: `request.userInfo.username != "system:apiserver"`}}
}

// register stores the webhook configurations, and deletes a configuration that is no longer needed.
func (s *Server) register(ctx context.Context) error {
	m, v := s.Registrations()
	all := s.client.AdmissionregistrationV1()
	if err := store(ctx, all.MutatingWebhookConfigurations(), m, func(stored *admissionregistrationv1.MutatingWebhookConfiguration) {
		stored.Webhooks = m.Webhooks
	}); err != nil {
		return fmt.Errorf("registering the mutating webhooks: %w", err)
	}
	if err := store(ctx, all.ValidatingWebhookConfigurations(), v, func(stored *admissionregistrationv1.ValidatingWebhookConfiguration) {
		stored.Webhooks = v.Webhooks
	}); err != nil {
		return fmt.Errorf("registering the validating webhooks: %w", err)
	}
	return nil
}

// configurations is a client of one kind of webhook configurations.
type configurations[C any] interface {
	Get(context.Context, string, metav1.GetOptions) (*C, error)
	Create(context.Context, *C, metav1.CreateOptions) (*C, error)
	Update(context.Context, *C, metav1.UpdateOptions) (*C, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

// store creates a webhook configuration, or changes the stored one by update. A nil registration is deleted.
func store[C any](ctx context.Context, client configurations[C], registration *C, update func(stored *C)) error {
	if registration == nil {
		err := client.Delete(ctx, RegistrationName, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	stored, err := client.Get(ctx, RegistrationName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = client.Create(ctx, registration, metav1.CreateOptions{})
	case err == nil:
		update(stored)
		_, err = client.Update(ctx, stored, metav1.UpdateOptions{})
	}
	return err
}
