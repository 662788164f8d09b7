// Inforcebench measures when changes that affect admission become active: the time from the answer to the change
// until the first write begins that is evaluated with it, on the same server and on another server on the same etcd,
// when the servers are idle and under load. It prints a Markdown table of kube-apiserver and gatehouse.
//
// Changes of each kind alternate: one makes the server reject Secrets, the next admits them again. All changes are
// written through the first server. A client of each server creates Secrets, as dry runs, one after the other, and
// detects when the answer changes.
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
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/bench/internal/compare"
	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// patience is the time in which a change must become active.
const patience = 30 * time.Second

// loads are the loads of the servers during the measurements.
var loads = []string{"idle", "under load"}

type options struct {
	compare.Options
	writes, clients int
	only            string
	changes         []change
}

func main() {
	o := options{Options: compare.Options{Name: "inforcebench"}}
	o.AddFlags(3)
	flag.IntVar(&o.writes, "writes", 200, "how many changes of each kind are written in a round, for each load")
	flag.IntVar(&o.clients, "clients", 8, "how many clients create ConfigMaps through each server under load")
	flag.StringVar(&o.only, "only", "", "the `name` of the only kind of change to measure: "+strings.Join(names(changes), ", "))
	o.Main(o.run)
}

func (o *options) run(ctx context.Context, out, progress io.Writer) error {
	if o.writes < 1 || o.clients < 1 {
		return errors.New("-writes and -clients must be positive")
	}
	o.changes = changes
	if o.only != "" {
		i := slices.Index(names(changes), o.only)
		if i < 0 {
			return fmt.Errorf("-only is %q, want one of %s", o.only, strings.Join(names(changes), ", "))
		}
		o.changes = changes[i : i+1]
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
	found.print(&table, names(o.changes), kinds)
	return o.Finish(out, "When a registration is in force", fmt.Sprintf(explanation, o.clients), table.String())
}

// explanation is printed above the table.
const explanation = `Two servers on one etcd 3.7.0 with fsync. What admission judges by is changed through the first server, so that
Secrets are refused and admitted in turns; meanwhile a client of each server creates Secrets, as dry runs, one after
the other. The changes: a webhook is registered and deleted (registration); a ConfigMap changes that a policy has as its
param (param); a namespace gets and loses the label that a policy's binding selects (namespace); a role that a policy
asks the authorizer for is bound to a service account and taken from it (role). "In force" is the time from the answer to
the change until the first request begins that is judged by it; it is as exact as these requests are quick. "Escaped" is
the share of changes after whose answer at least one request through the same server began and was judged without the
change. Gatehouse answers the write when the server judges by it, so the time of the write itself is shown, too. Under
load %d clients create ConfigMaps through each server, from the same machine, as fast as they can. Gatehouse runs with
--admission-consistency=bounded, the default.

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
	writer, err := kubernetes.NewForConfig(first.Config)
	if err != nil {
		return err
	}
	for _, c := range o.changes {
		if err := c.prepare(ctx, writer); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
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
		var err error
		for _, c := range o.changes {
			err = o.writeAll(loadCtx, servers, c, hook, func(what string, value float64) {
				found.add(name, c.name, what, kind, value)
			})
			if err != nil {
				err = fmt.Errorf("%s: %w", c.name, err)
				break
			}
		}
		close(stop)
		if err := errors.Join(err, busy.Wait()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// The rows of the table, for each change and load.
const (
	ofWrite = "the write"
	onSame  = "in force on the same server"
	onOther = "in force on another server"
	escaped = "escaped on the same server"
)

// writeAll writes changes of a kind through the first server and measures when each becomes active on both servers.
// The first changes are a warm-up. The last change admits Secrets.
func (o *options) writeAll(ctx context.Context, servers []*peer.Server, c change, hook *peer.Webhook, add func(what string, value float64)) error {
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
		if err := c.write(ctx, writer, hook, refused); err != nil {
			return err
		}
		answered := time.Now()
		after := make([]time.Duration, len(probes))
		both, probeCtx := errgroup.WithContext(ctx)
		for s, probe := range probes {
			both.Go(func() (err error) {
				after[s], err = inForce(probeCtx, probe, c.namespace(), refused, answered)
				return err
			})
		}
		if err := both.Wait(); err != nil {
			return fmt.Errorf("write %d: %w", i+1, err)
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
	if (warmup+o.writes)%2 == 1 {
		return c.write(ctx, writer, hook, false)
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }

// apart returns a copy of a configuration that does not share connections.
func apart(c *rest.Config) *rest.Config {
	own := rest.CopyConfig(c)
	own.Dial = (&net.Dialer{}).DialContext
	return own
}

// inForce creates Secrets in a namespace until they are rejected, or until they are admitted again. It returns the
// time from since until the first such request began; 0 if it was the very first request.
func inForce(ctx context.Context, client kubernetes.Interface, namespace string, refused bool, since time.Time) (time.Duration, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	for first := true; ; first = false {
		began := time.Now()
		_, err := client.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
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
