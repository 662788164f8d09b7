package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// inForce is the time in which a webhook configuration must become active.
const inForce = 30 * time.Second

// perConfiguration is the number of webhooks in one configuration; an object must not be larger than 1.5 MiB, CA
// bundles included.
const perConfiguration = 100

// labels are on every configuration that this program creates.
var labels = map[string]string{"app": "serverbench"}

// webhookScenarios is the default of -scenarios.
const webhookScenarios = "none,pods,nonmatching=2000,patch+validate,validating=10"

// scenario is the set of webhooks, or policies, that are registered during a load.
type scenario struct {
	name, title                     string
	nonmatching, patch, validations int
	// pods creates pods instead of ConfigMaps.
	pods bool
	// policies is nil for webhooks.
	policies *policies
	// only is the one server that the scenario is for; empty for all.
	only peer.Kind
}

func parseScenario(text string) (scenario, error) {
	name, number, _ := strings.Cut(text, "=")
	n, err := strconv.Atoi(number)
	if number != "" && (err != nil || n < 1) {
		return scenario{}, fmt.Errorf("%q: %q is not a number of webhooks", text, number)
	}
	switch {
	case text == "none":
		return scenario{name: text, title: "no webhook"}, nil
	case text == "pods":
		return scenario{name: text, title: "pods", pods: true}, nil
	case text == "patch+validate":
		return scenario{name: text, title: "one mutating and one validating webhook", patch: 1, validations: 1}, nil
	case name == "nonmatching" && n > 0:
		return scenario{name: text, title: plural(n, "webhook") + " that do not match", nonmatching: n}, nil
	case name == "validating" && n > 0:
		return scenario{name: text, title: plural(n, "validating webhook"), validations: n}, nil
	case name == "bindings" && n > 0:
		return scenario{name: text, title: plural(n, "matching binding") + " of a policy", policies: &policies{bindings: n}}, nil
	case name == "params" && n > 0:
		return scenario{name: text, title: "a policy with " + plural(n, "param"), policies: &policies{params: n}}, nil
	case name == "policies" && n > 0:
		return scenario{name: text, title: fmt.Sprintf("%d policies that do not match", n), policies: &policies{others: n}}, nil
	}
	return scenario{}, fmt.Errorf("%q is not known", text)
}

// object is the object that the load creates.
func (s scenario) object() load.Object {
	if s.pods {
		return load.Pod
	}
	return load.ConfigMap
}

// account creates the service account that pods need. In a cluster, a controller creates it.
func account(ctx context.Context, server *peer.Server) error {
	client, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// register creates the webhook configurations and waits until they are active. remove deletes them.
func (s scenario) register(ctx context.Context, server *peer.Server, hook *peer.Webhook) (remove func(context.Context) error, err error) {
	if s.name == "none" {
		return func(context.Context) error { return nil }, nil
	}
	if s.pods {
		return func(context.Context) error { return nil }, account(ctx, server)
	}
	if s.policies != nil {
		return s.policies.register(ctx, server)
	}
	client, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		return nil, err
	}
	mutating := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	validating := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	var mutatingHooks []admissionv1.MutatingWebhook
	var validatingHooks []admissionv1.ValidatingWebhook
	addMutating := func(name, path, resource string) {
		mutatingHooks = append(mutatingHooks, mutatingHook(hook, name, path, resource))
	}
	addValidating := func(name, path, resource string) {
		validatingHooks = append(validatingHooks, validatingHook(hook, name, path, resource))
	}
	for i := range s.nonmatching {
		if name := fmt.Sprintf("n%d.bench.gatehouse.dev", i); i%2 == 0 {
			addMutating(name, "/allow", "pods")
		} else {
			addValidating(name, "/allow", "pods")
		}
	}
	for i := range s.patch {
		addMutating(fmt.Sprintf("p%d.bench.gatehouse.dev", i), "/annotate", "configmaps")
	}
	for i := range s.validations {
		addValidating(fmt.Sprintf("v%d.bench.gatehouse.dev", i), "/allow", "configmaps")
	}
	// The last webhook of each kind denies the objects of the probes. When both do, all webhooks are active.
	addMutating("probe-mutating.bench.gatehouse.dev", "/deny", "secrets")
	addValidating("probe-validating.bench.gatehouse.dev", "/deny", "serviceaccounts")
	for some := range slices.Chunk(mutatingHooks, perConfiguration) {
		m := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-", Labels: labels}, Webhooks: some}
		if _, err := mutating.Create(ctx, m, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	for some := range slices.Chunk(validatingHooks, perConfiguration) {
		v := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-", Labels: labels}, Webhooks: some}
		if _, err := validating.Create(ctx, v, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	if err := await(ctx, client, true); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		mine := metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels})}
		return errors.Join(
			mutating.DeleteCollection(ctx, metav1.DeleteOptions{}, mine),
			validating.DeleteCollection(ctx, metav1.DeleteOptions{}, mine),
			await(ctx, client, false))
	}, nil
}

// await waits until the probes are denied, or until they are allowed again.
func await(ctx context.Context, client kubernetes.Interface, denied bool) error {
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	probe := metav1.ObjectMeta{Name: "probe"}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, inForce, true, func(ctx context.Context) (bool, error) {
		_, secret := client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: probe}, dry)
		_, account := client.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: probe}, dry)
		for _, err := range []error{secret, account} {
			if err != nil && !apierrors.IsForbidden(err) {
				return false, err
			}
		}
		return (secret != nil) == denied && (account != nil) == denied, nil
	})
	if err != nil {
		return fmt.Errorf("the server has not acted on registrations within %s: %w", inForce, err)
	}
	return nil
}

func validatingHook(hook *peer.Webhook, name, path, resource string) admissionv1.ValidatingWebhook {
	url := hook.URL + path
	none, fail := admissionv1.SideEffectClassNone, admissionv1.Fail
	return admissionv1.ValidatingWebhook{
		Name:         name,
		ClientConfig: admissionv1.WebhookClientConfig{URL: &url, CABundle: hook.CA},
		Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}},
		FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
	}
}

func mutatingHook(hook *peer.Webhook, name, path, resource string) admissionv1.MutatingWebhook {
	v := validatingHook(hook, name, path, resource)
	return admissionv1.MutatingWebhook{
		Name: v.Name, ClientConfig: v.ClientConfig, Rules: v.Rules,
		FailurePolicy: v.FailurePolicy, SideEffects: v.SideEffects, AdmissionReviewVersions: v.AdmissionReviewVersions,
	}
}
