package recorder

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// namePrefix is what the names of registrations begin with: they sort before all that people
	// choose, and the first webhook sees requests as they were sent.
	namePrefix = "0--gatehouse-record-"
	// recorderLabel marks the registrations of recorders, and untilAnnotation has when the term ends
	// that one was renewed for.
	recorderLabel   = "gatehouse.dev/recorder"
	untilAnnotation = "gatehouse.dev/recorded-until"
	// recordPath and probePath are where reviews go, below the way of the recorder.
	recordPath = "/record"
	probePath  = "/probe"
)

const (
	// term is how long a registration is in force that is not renewed, and renewal how often it is. The
	// server notes whole seconds.
	term    = 8 * time.Second
	renewal = 3 * time.Second
	// earlier is how long before its renewal a registration takes requests for new, of servers whose
	// clocks are behind.
	earlier = 15 * time.Second
	// writeTimeout is how long a write of the registration may take.
	writeTimeout = 5 * time.Second
	// abandoned is how long after its term a registration of another recorder is removed.
	abandoned = time.Minute
)

// registration is the registration of a recorder.
type registration struct {
	*Options
	name string
	// way is a random path, which the registration names: a client that does not know it cannot write into
	// the recording.
	way string
	// base is the URL of the recorder, empty behind a service; authority verifies its certificate, PEM.
	base      string
	authority []byte
	client    kubernetes.Interface
	// behind is by how much the clock of the server is ahead of ours.
	behind atomic.Int64
	stored *admissionregistrationv1.MutatingWebhookConfiguration
}

// newClient makes a client that notes the clock of the server.
func (r *registration) newClient(config *rest.Config) (err error) {
	config = rest.CopyConfig(config)
	config.Timeout = writeTimeout
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return clocked{next, &r.behind} })
	r.client, err = kubernetes.NewForConfig(config)
	return err
}

// clocked reads the clock of a server from its answers.
type clocked struct {
	http.RoundTripper
	behind *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c clocked) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(req)
	if err == nil {
		if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			c.behind.Store(int64(time.Until(at)))
		}
	}
	return resp, err
}

// serverTime is what the clock of the server shows, to about a second.
func (r *registration) serverTime() time.Time { return time.Now().Add(time.Duration(r.behind.Load())) }

// configuration is what is registered at a time. With a probe it also has the webhook by which the
// recorder sees that the server reaches it.
func (r *registration) configuration(now time.Time, probe bool) *admissionregistrationv1.MutatingWebhookConfiguration {
	c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
		Name: r.name, Labels: map[string]string{recorderLabel: "true", "app.kubernetes.io/managed-by": "gatehouse"},
		Annotations: map[string]string{untilAnnotation: now.Add(term).UTC().Format(time.RFC3339)},
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
		hook.NamespaceSelector = namespaces(metav1.LabelSelectorOpIn, r.Namespaces)
	case len(r.ExcludeNamespaces) > 0:
		hook.NamespaceSelector = namespaces(metav1.LabelSelectorOpNotIn, r.ExcludeNamespaces)
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
		hook.Rules = []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}}}}
		hook.NamespaceSelector = namespaces(metav1.LabelSelectorOpIn, []string{r.probeNamespace()})
		hook.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "the-probe", Expression: `request.dryRun && object.metadata.name == ` + strconv.Quote(r.name)}}
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

// webhook is one that can neither reject nor change a request.
func (r *registration) webhook(name, path string) admissionregistrationv1.MutatingWebhook {
	ignore, none, seconds := admissionregistrationv1.Ignore, admissionregistrationv1.SideEffectClassNone, int32(1)
	path = r.way + path
	exact, never := admissionregistrationv1.Exact, admissionregistrationv1.NeverReinvocationPolicy
	hook := admissionregistrationv1.MutatingWebhook{
		Name: name, ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: r.authority}, AdmissionReviewVersions: []string{"v1"},
		FailurePolicy: &ignore, SideEffects: &none, TimeoutSeconds: &seconds, MatchPolicy: &exact, ReinvocationPolicy: &never,
	}
	if namespace, service, ok := strings.Cut(r.Service, "/"); ok {
		hook.ClientConfig.Service = &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: service, Path: &path}
		return hook
	}
	url := r.base + path
	hook.ClientConfig.URL = &url
	return hook
}

func namespaces(op metav1.LabelSelectorOperator, names []string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName, Operator: op, Values: names}}}
}

// whileRenewed is an expression that no new request satisfies when the registration is not renewed.
// Expressions have no clock, but requests have one: the server notes in metadata.managedFields when an
// object is changed, before it asks the webhooks.
//
// A create of an object that has nothing but a name shows no time, and is recorded. Updates must show
// one, unless all is recorded.
func (r *registration) whileRenewed(now time.Time) string {
	at := func(t time.Time) string { return `timestamp("` + t.UTC().Format(time.RFC3339) + `")` }
	const any, field = `object.metadata.managedFields.exists(m, has(m.time) && timestamp(m.time) `, `has(object.metadata.managedFields)`
	late := any + `> ` + at(now.Add(term)) + `)`
	if r.Untimed {
		return `object == null || !has(object.metadata) || !` + field + ` || !` + late
	}
	created := `request.operation == "CREATE" && (!has(request.subResource) || request.subResource == "")`
	return field + ` ? ` + any + `>= ` + at(now.Add(-earlier)) + `) && !` + late + ` : ` + created
}

// create stores the registration.
func (r *registration) create(ctx context.Context) (err error) {
	hooks := r.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if r.stored, err = hooks.Create(ctx, r.configuration(r.serverTime(), true), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("registering the webhook: %w", err)
	}
	for i := range r.stored.Webhooks {
		if len(r.stored.Webhooks[i].MatchConditions) == 0 {
			return errors.New("the cluster does not know match conditions of webhooks, which Kubernetes has since 1.28: without them, a recorder that disappears would delay requests")
		}
	}
	return nil
}

// errRemoved ends a recorder whose registration somebody has removed.
var errRemoved = errors.New("the registration of the recorder was removed")

// renew has the registration in force for another term.
func (r *registration) renew(ctx context.Context) error {
	hooks := r.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	next := r.configuration(r.serverTime(), false)
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

// probe makes a request that the webhook of the probe is asked about. It stores nothing. An error says
// that no such request can be made.
func (r *registration) probe(ctx context.Context) error {
	_, err := r.client.CoreV1().ConfigMaps(r.probeNamespace()).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: r.name}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot create resource"), apierrors.IsNotFound(err), apierrors.IsUnauthorized(err):
		return err
	}
	// What other policies and webhooks say comes after ours was asked.
	return nil
}

// sweep removes what recorders have left that are gone.
func (r *registration) sweep(ctx context.Context) ([]string, error) {
	hooks := r.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	list, err := hooks.List(ctx, metav1.ListOptions{LabelSelector: recorderLabel + "=true"})
	if err != nil {
		return nil, fmt.Errorf("looking for what other recorders have left: %w", err)
	}
	var gone []string
	for i := range list.Items {
		c := &list.Items[i]
		until, err := time.Parse(time.RFC3339, c.Annotations[untilAnnotation])
		if err != nil || !strings.HasPrefix(c.Name, namePrefix) || r.serverTime().Before(until.Add(abandoned)) {
			continue
		}
		if err := hooks.Delete(ctx, c.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion}}); err == nil {
			gone = append(gone, c.Name)
		}
	}
	slices.Sort(gone)
	return gone, nil
}

// Remove removes the registration of a recorder. It tries until it is gone, and until it was not there for
// a while: a create may be on its way. It gives up when ctx ends.
func Remove(ctx context.Context, config *rest.Config, name string, settled time.Duration) error {
	if !strings.HasPrefix(name, namePrefix) {
		return fmt.Errorf("%q is not the name of a registration of a recorder", name)
	}
	config = rest.CopyConfig(config)
	config.Timeout = writeTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	hooks := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	deadline := time.Now().Add(settled)
	wait := 200 * time.Millisecond
	for {
		err := hooks.Delete(ctx, name, metav1.DeleteOptions{})
		if err == nil || apierrors.IsNotFound(err) && !time.Now().Before(deadline) {
			return nil
		}
		if !apierrors.IsNotFound(err) {
			wait = min(2*wait, 10*time.Second)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("removing the MutatingWebhookConfiguration %s: %w", name, err)
		}
	}
}

// NewName makes the name of a registration.
func NewName() string { return namePrefix + newID() }
