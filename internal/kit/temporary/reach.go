package temporary

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Place is where this machine listens, and how a cluster connects to it.
type Place struct {
	// BindAddress and Port are the listening address; port 0 means any free port.
	BindAddress string
	Port        int
	// Service is a service in front of this machine, as NAMESPACE/NAME, and URL an alternative address of it.
	// Without both, the URL is derived from BindAddress.
	Service, URL string
}

// Listen listens, and returns how the cluster connects to the listener: the names for the certificate, the
// first of which may be an IP address, and the URL, which is empty for a service. The error names the option.
func (p Place) Listen() (listener net.Listener, hosts []string, base string, err error) {
	var host string
	switch {
	case p.Service != "" && p.URL != "":
		err = errors.New("--service and --url exclude each other")
	case p.Service != "":
		namespace, name, ok := strings.Cut(p.Service, "/")
		if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
			err = fmt.Errorf("--service %q is not NAMESPACE/NAME", p.Service)
		}
		host, hosts = name+"."+namespace+".svc", []string{name + "." + namespace + ".svc.cluster.local"}
	case p.URL != "":
		at, parsed := url.Parse(p.URL)
		if parsed != nil || at.Scheme != "https" || at.Host == "" || at.RawQuery != "" || at.User != nil {
			err = fmt.Errorf("--url %q is not https://HOST[:PORT]", p.URL)
		} else {
			host, base = at.Hostname(), strings.TrimSuffix(p.URL, "/")
		}
	case net.ParseIP(p.BindAddress).IsUnspecified():
		err = fmt.Errorf("--bind-address %s does not say how the cluster reaches this program: add --service or --url", p.BindAddress)
	default:
		host = p.BindAddress
	}
	if err != nil {
		return nil, nil, "", err
	}
	if listener, err = net.Listen("tcp", net.JoinHostPort(p.BindAddress, strconv.Itoa(p.Port))); err != nil {
		return nil, nil, "", fmt.Errorf("listening: %w", err)
	}
	if p.Service == "" && base == "" {
		base = "https://" + listener.Addr().String()
	}
	return listener, append([]string{host}, hosts...), base, nil
}

// Path returns a path below the path of a place's URL.
func Path(base, path string) string {
	if at, err := url.Parse(base); err == nil {
		return at.Path + path
	}
	return path
}

const (
	// reachedWithin is the time limit for the server's first call of the webhook.
	reachedWithin = 15 * time.Second
	probeEvery    = 200 * time.Millisecond
)

// Probe finds out whether a server calls a webhook, with requests that store nothing.
type Probe struct {
	Client kubernetes.Interface
	// Name is the name of the object in the requests, Namespace its namespace.
	Name, Namespace string
	// Probed is a channel with a buffer of at least one, which receives a value when the webhook is called.
	Probed chan struct{}
}

// Select makes a webhook match only the requests of the probe.
func (p *Probe) Select(hook *admissionregistrationv1.MutatingWebhook) {
	hook.Rules = []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}}}}
	hook.NamespaceSelector = InNamespaces(metav1.LabelSelectorOpIn, p.Namespace)
	hook.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "the-probe", Expression: `request.dryRun && object.metadata.name == ` + strconv.Quote(p.Name)}}
}

// Asked records that the webhook was called.
func (p *Probe) Asked() {
	select {
	case p.Probed <- struct{}{}:
	default:
	}
}

// Await returns after the webhook was called at a place. The note is the reason if no request could be made.
func (p *Probe) Await(ctx context.Context, place string) (note string, err error) {
	deadline := time.After(reachedWithin)
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		if err := p.request(ctx); err != nil {
			return fmt.Sprintf("whether the cluster reaches %s was not tried: %v", place, err), nil
		}
		select {
		case <-p.Probed:
			return "", nil
		case <-tick.C:
		case <-deadline:
			return "", fmt.Errorf("the cluster does not reach %s: no call arrived within %s; --bind-address with --url or --service say how it does", place, reachedWithin)
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// request makes a request for which the webhook is called. It is an error if no such request can be made.
func (p *Probe) request(ctx context.Context) error {
	_, err := p.Client.CoreV1().ConfigMaps(p.Namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: p.Name}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot create resource"), apierrors.IsNotFound(err), apierrors.IsUnauthorized(err):
		return err
	}
	// Other policies and webhooks reject the request only after ours was called.
	return nil
}

// Harmless returns a webhook that can neither reject nor change a request.
func Harmless(name string, at admissionregistrationv1.WebhookClientConfig) admissionregistrationv1.MutatingWebhook {
	ignore, none, seconds := admissionregistrationv1.Ignore, admissionregistrationv1.SideEffectClassNone, int32(1)
	exact, never := admissionregistrationv1.Exact, admissionregistrationv1.NeverReinvocationPolicy
	return admissionregistrationv1.MutatingWebhook{
		Name: name, ClientConfig: at, AdmissionReviewVersions: []string{"v1"},
		FailurePolicy: &ignore, SideEffects: &none, TimeoutSeconds: &seconds, MatchPolicy: &exact, ReinvocationPolicy: &never,
	}
}

// InNamespaces returns a selector for namespaces by name.
func InNamespaces(op metav1.LabelSelectorOperator, names ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName, Operator: op, Values: names}}}
}

var errOld = errors.New("the cluster does not know match conditions of webhooks, which Kubernetes has since 1.28: without them, a program that disappears would delay requests")

// KnowsConditions returns an error if a cluster has dropped the match conditions of a webhook.
func KnowsConditions(stored *admissionregistrationv1.MutatingWebhookConfiguration) error {
	for i := range stored.Webhooks {
		if len(stored.Webhooks[i].MatchConditions) == 0 {
			return errOld
		}
	}
	return nil
}
