package recorder

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/kit/temporary"
)

const (
	// namePrefix begins the names of recorders' webhook configurations. Names with it sort before all names that people
	// choose, and the first webhook sees requests as they were sent.
	namePrefix = "0--gatehouse-record-"
	// recorderLabel marks the webhook configurations of recorders, and untilAnnotation is the end of their current
	// term.
	recorderLabel   = "gatehouse.dev/recorder"
	untilAnnotation = "gatehouse.dev/recorded-until"
	// recordPath and probePath are the paths of reviews, below the random path of the recorder.
	recordPath = "/record"
	probePath  = "/probe"
)

// registration is the webhook configuration of a recorder.
type registration struct {
	*Options
	name string
	// way is a random path in the webhook configuration: a client that does not know it cannot write into the
	// recording.
	way string
	// base is the URL of the recorder, empty behind a service; authority verifies its certificate, PEM.
	base      string
	authority []byte
	client    kubernetes.Interface
	clock     temporary.Clock
	probe     *temporary.Probe
	stored    *admissionregistrationv1.MutatingWebhookConfiguration
}

// configuration returns the webhook configuration for a term that begins now. With a probe it also has the webhook that
// shows the recorder that the server reaches it.
func (r *registration) configuration(now time.Time, probe bool) *admissionregistrationv1.MutatingWebhookConfiguration {
	c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
		Name: r.name, Labels: map[string]string{recorderLabel: "true", "app.kubernetes.io/managed-by": "gatehouse"},
		Annotations: map[string]string{untilAnnotation: now.Add(temporary.Term).UTC().Format(time.RFC3339)},
	}}
	scope := admissionregistrationv1.AllScopes
	if len(r.Namespaces) > 0 {
		scope = admissionregistrationv1.NamespacedScope
	}
	operations := []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
	if r.Untimed {
		operations = []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}
	}
	hook := r.webhook("record.gatehouse.dev", recordPath)
	for _, resource := range r.resources() {
		group, name := "*", resource
		// The group follows the subresource: deployments/scale.apps.
		if base, after, ok := strings.Cut(resource, "."); ok {
			group, name = after, base
		} else if !strings.HasPrefix(resource, "*") {
			group = ""
		}
		hook.Rules = append(hook.Rules, admissionregistrationv1.RuleWithOperations{Operations: operations,
			Rule: admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{name}, Scope: &scope}})
	}
	switch {
	case len(r.Namespaces) > 0:
		hook.NamespaceSelector = temporary.InNamespaces(metav1.LabelSelectorOpIn, r.Namespaces...)
	case len(r.ExcludeNamespaces) > 0:
		hook.NamespaceSelector = temporary.InNamespaces(metav1.LabelSelectorOpNotIn, r.ExcludeNamespaces...)
	}
	hook.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "while-it-is-renewed", Expression: r.whileRenewed(now)}}
	if len(r.Resources) == 0 {
		hook.MatchConditions = append(hook.MatchConditions, admissionregistrationv1.MatchCondition{
			Name: "no-events-and-leases", Expression: `!(request.resource.resource in ["events", "leases"])`,
		})
	}
	c.Webhooks = append(c.Webhooks, hook)
	if probe {
		hook := r.webhook("probe.gatehouse.dev", probePath)
		r.probe.Select(&hook)
		c.Webhooks = append(c.Webhooks, hook)
	}
	return c
}

func (r *registration) resources() []string {
	switch {
	case len(r.Resources) > 0:
		return r.Resources
	case r.Untimed:
		return []string{"*/*"}
	}
	return []string{"*"}
}

// webhook returns a webhook at a path.
func (r *registration) webhook(name, path string) admissionregistrationv1.MutatingWebhook {
	at := admissionregistrationv1.WebhookClientConfig{CABundle: r.authority}
	path = r.way + path
	if namespace, service, ok := strings.Cut(r.Service, "/"); ok {
		at.Service = &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: service, Path: &path}
	} else {
		url := r.base + path
		at.URL = &url
	}
	return temporary.Harmless(name, at)
}

// whileRenewed returns a CEL expression that is false for new requests once the term has ended without a renewal.
//
// A create of an object that has only a name contains no time, and is recorded. Updates must contain a time, unless
// Untimed is set.
func (r *registration) whileRenewed(now time.Time) string {
	if r.Untimed {
		return `!(` + temporary.ShowsTime + `) || !` + temporary.Late(now)
	}
	return temporary.Within(now, now, `request.operation == "CREATE" && (!has(request.subResource) || request.subResource == "")`)
}

// create stores the webhook configuration.
func (r *registration) create(ctx context.Context) (err error) {
	hooks := r.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if r.stored, err = hooks.Create(ctx, r.configuration(r.clock.Now(), true), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("registering the webhook: %w", err)
	}
	return temporary.KnowsConditions(r.stored)
}

// errRemoved ends a recorder whose webhook configuration was deleted.
var errRemoved = fmt.Errorf("%w, the webhook of the recorder", temporary.ErrRemoved)

// renew extends the webhook configuration by another term.
func (r *registration) renew(ctx context.Context) error {
	hooks := r.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	next := r.configuration(r.clock.Now(), false)
	next.ResourceVersion, next.UID = r.stored.ResourceVersion, r.stored.UID
	stored, err := hooks.Update(ctx, next, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		var now *admissionregistrationv1.MutatingWebhookConfiguration
		if now, err = hooks.Get(ctx, r.name, metav1.GetOptions{}); err == nil && now.UID == r.stored.UID {
			next.ResourceVersion = now.ResourceVersion
			stored, err = hooks.Update(ctx, next, metav1.UpdateOptions{})
		} else if err == nil {
			err = errRemoved
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		return errRemoved
	case err == nil:
		r.stored = stored
	}
	return err
}

func (r *registration) probeNamespace() string {
	if len(r.Namespaces) > 0 {
		return r.Namespaces[0]
	}
	return metav1.NamespaceDefault
}

// sweep removes the webhook configurations of recorders that are gone.
func (r *registration) sweep(ctx context.Context) ([]string, error) {
	hooks := r.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	list, err := hooks.List(ctx, metav1.ListOptions{LabelSelector: recorderLabel + "=true"})
	if err != nil {
		return nil, fmt.Errorf("looking for registrations of other recorders: %w", err)
	}
	var gone []string
	for i := range list.Items {
		c := &list.Items[i]
		until, err := time.Parse(time.RFC3339, c.Annotations[untilAnnotation])
		if err != nil || !strings.HasPrefix(c.Name, namePrefix) || r.clock.Now().Before(until.Add(temporary.Abandoned)) {
			continue
		}
		if err := hooks.Delete(ctx, c.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion}}); err == nil {
			gone = append(gone, c.Name)
		}
	}
	slices.Sort(gone)
	return gone, nil
}

// Remove removes the webhook configuration of a recorder. It retries until the configuration has been absent for a
// while, because a create may still take effect. It gives up when ctx ends.
func Remove(ctx context.Context, config *rest.Config, name string, settled time.Duration) error {
	if !strings.HasPrefix(name, namePrefix) {
		return fmt.Errorf("%q is not the name of a registration of a recorder", name)
	}
	client, err := kubernetes.NewForConfig(new(temporary.Clock).Reading(config))
	if err != nil {
		return err
	}
	err = temporary.Remove(ctx, settled, func(ctx context.Context) (bool, error) {
		err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return fmt.Errorf("removing the MutatingWebhookConfiguration %s: %w", name, err)
	}
	return nil
}

// NewName returns a new name for a webhook configuration.
func NewName() string { return namePrefix + strings.ToLower(rand.Text()[:8]) }
