// Inforcebench measures when a registration is in force: how long after its write was
// answered the first write begins that is judged by it, on the same server and on
// another one on the same etcd, when they are idle and under load. It prints a Markdown
// table of kube-apiserver and gatehouse.
//
// A validating webhook that refuses Secrets is registered and deleted in turns through
// the first server. A client of each server creates Secrets, as dry runs, one after the
// other, and sees when the answer changes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/bench/internal/compare"
	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// patience is how long a registration may take to be in force.
const patience = 30 * time.Second

// loads are what the servers do meanwhile.
var loads = []string{"idle", "under load"}

type options struct {
	compare.Options
	writes, clients int
}

func main() {
	o := options{Options: compare.Options{Name: "inforcebench"}}
	o.AddFlags(3)
	flag.IntVar(&o.writes, "writes", 200, "how many registrations are written in a round, for each load")
	flag.IntVar(&o.clients, "clients", 8, "how many clients create ConfigMaps through each server under load")
	o.Main(o.run)
}

func (o *options) run(ctx context.Context, out, progress io.Writer) error {
	if o.writes < 1 || o.clients < 1 {
		return errors.New("-writes and -clients must be positive")
	}
	b, err := peer.Build(ctx, o.Module, o.Binaries)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "inforcebench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	hook, err := peer.StartWebhook(ctx, b, dir)
	if err != nil {
		return err
	}
	defer hook.Stop()

	kinds := []peer.Kind{peer.KubeAPIServer, peer.Gatehouse}
	found := samples{}
	err = compare.Alternate(&o.Options, progress, kinds, func(kind peer.Kind, dir string) error {
		return o.round(ctx, b, kind, dir, hook, found)
	})
	if err != nil {
		return err
	}
	var table strings.Builder
	found.print(&table, kinds)
	return o.Finish(out, "When a registration is in force", fmt.Sprintf(explanation, o.clients), table.String())
}

// explanation stands above the table.
const explanation = `Two servers on one etcd 3.7.0 with fsync. A webhook that refuses Secrets is registered and deleted in turns
through the first server; meanwhile a client of each server creates Secrets, as dry runs, one after the other. "In
force" is the time from the answer to the registration's write until the first request begins that is judged by it; it
is as exact as these requests are quick. "Escaped" is the share of registrations after whose answer at least one request
through the same server began and was judged without it. Gatehouse answers the write when the server judges by it, so
the time of the write itself is shown, too. Under load %d clients create ConfigMaps through each server, from the same
machine, as fast as they can. Gatehouse runs with --admission-consistency=bounded, the default.

`

// round measures one kind of server.
func (o *options) round(ctx context.Context, b peer.Binaries, kind peer.Kind, dir string, hook *peer.Webhook, found samples) (err error) {
	first, err := peer.Start(ctx, b, kind, filepath.Join(dir, "first"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, first.Stop()) }()
	second, err := first.Join(ctx, b, filepath.Join(dir, "second"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, second.Stop()) }()
	servers := []*peer.Server{first, second}
	for i, name := range loads {
		stop := make(chan struct{})
		busy, loadCtx := errgroup.WithContext(ctx)
		if i > 0 {
			for _, s := range servers {
				busy.Go(func() error {
					_, err := load.Create(loadCtx, s, load.ConfigMap, o.clients, stop)
					return err
				})
			}
		}
		err := o.writeAll(loadCtx, servers, hook, func(what string, value float64) {
			found.add(name, what, kind, value)
		})
		close(stop)
		if err := errors.Join(err, busy.Wait()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// The rows of the table, for each load.
const (
	ofWrite = "the registration's write"
	onSame  = "in force on the same server"
	onOther = "in force on another server"
	escaped = "escaped on the same server"
)

// writeAll writes registrations through the first server and sees when each is in
// force on both. Nothing is measured of the first ones.
func (o *options) writeAll(ctx context.Context, servers []*peer.Server, hook *peer.Webhook, add func(what string, value float64)) error {
	const warmup = 10
	writer, err := kubernetes.NewForConfig(servers[0].Config)
	if err != nil {
		return err
	}
	var probes []*kubernetes.Clientset
	for _, s := range servers {
		probe, err := kubernetes.NewForConfig(apart(s.Config))
		if err != nil {
			return err
		}
		probes = append(probes, probe)
	}
	for i := range warmup + o.writes {
		refused := i%2 == 0
		began := time.Now()
		if err := write(ctx, writer, hook, refused); err != nil {
			return err
		}
		answered := time.Now()
		after := make([]time.Duration, len(probes))
		both, probeCtx := errgroup.WithContext(ctx)
		for s, probe := range probes {
			both.Go(func() (err error) {
				after[s], err = inForce(probeCtx, probe, refused, answered)
				return err
			})
		}
		if err := both.Wait(); err != nil {
			return fmt.Errorf("registration %d: %w", i+1, err)
		}
		if i < warmup {
			continue
		}
		add(ofWrite, milliseconds(answered.Sub(began)))
		add(onSame, milliseconds(after[0]))
		add(onOther, milliseconds(after[1]))
		if after[0] == 0 {
			add(escaped, 0)
		} else {
			add(escaped, 100)
		}
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }

// apart is the same configuration with connections of its own.
func apart(c *rest.Config) *rest.Config {
	own := rest.CopyConfig(c)
	own.Dial = (&net.Dialer{}).DialContext
	return own
}

// write registers the webhook or deletes it.
func write(ctx context.Context, client kubernetes.Interface, hook *peer.Webhook, refuse bool) error {
	const name = "inforcebench"
	configurations := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if !refuse {
		return configurations.Delete(ctx, name, metav1.DeleteOptions{})
	}
	url := hook.URL + "/deny"
	none, fail := admissionv1.SideEffectClassNone, admissionv1.Fail
	_, err := configurations.Create(ctx, &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:         "deny.inforce.bench.gatehouse.dev",
			ClientConfig: admissionv1.WebhookClientConfig{URL: &url, CABundle: hook.CA},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
			}},
			FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	return err
}

// inForce creates Secrets until they are refused, or until they are not any more. It
// returns when the first request began that was, counted from the given time; 0 when
// that was the very first one.
func inForce(ctx context.Context, client kubernetes.Interface, refused bool, since time.Time) (time.Duration, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	for first := true; ; first = false {
		began := time.Now()
		_, err := client.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && !apierrors.IsForbidden(err) {
			return 0, err
		}
		switch {
		case (err != nil) == refused && first:
			return 0, nil
		case (err != nil) == refused:
			return began.Sub(since), nil
		case began.Sub(since) > patience:
			return 0, fmt.Errorf("not in force within %s", patience)
		}
	}
}
