// Fairnessbench measures how one user's requests affect another user: the time of creates of one user on an idle
// server, and while many clients of another user list everything. It prints a Markdown table of kube-apiserver and of
// gatehouse without and with API priority and fairness; and of both with a separate priority level for the user who
// lists.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/bench/internal/compare"
	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// lister and creator are the two users.
const lister, creator = "lister", "creator"

// side is a server with its flags.
type side string

const (
	upstream       side = "kube-apiserver"
	upstreamNarrow side = "kube-apiserver, lists in a level of few seats"
	unfair         side = "gatehouse, `--enable-priority-and-fairness=false`"
	fair           side = "gatehouse"
	fairNarrow     side = "gatehouse, the same, lists in a level of few seats"
)

type options struct {
	compare.Options
	clients, objects int
	time             time.Duration
}

func main() {
	o := options{Options: compare.Options{Name: "fairnessbench"}}
	o.AddFlags(3)
	flag.IntVar(&o.clients, "clients", 200, "how many clients of one user list")
	flag.IntVar(&o.objects, "objects", 1000, "how many ConfigMaps each list has")
	flag.DurationVar(&o.time, "time", 15*time.Second, "how long the creates of the other user are measured, with lists and without")
	o.Main(o.run)
}

// result contains the measurements of a server.
type result struct {
	quiet, flooded []time.Duration
	lists, refused int64
}

func (o *options) run(ctx context.Context, out, progress io.Writer) error {
	if o.clients < 1 || o.objects < 1 || o.time <= 0 {
		return errors.New("-clients, -objects and -time must be positive")
	}
	b, err := peer.Build(ctx, o.Module, o.Binaries)
	if err != nil {
		return err
	}
	sides, results := []side{upstream, upstreamNarrow, unfair, fair, fairNarrow}, map[side][]result{}
	err = compare.Alternate(&o.Options, progress, sides, func(s side, dir string) error {
		r, err := o.measure(ctx, b, s, dir)
		results[s] = append(results[s], r)
		fmt.Fprintf(progress, "  p99 %.1f ms, with lists %.1f ms; %d lists, %d refused\n", percentile(r.quiet, 99), percentile(r.flooded, 99), r.lists, r.refused)
		return err
	})
	if err != nil {
		return err
	}
	var table strings.Builder
	table.WriteString("| server | p50 (ms) | p99 (ms) | p50 with lists (ms) | p99 with lists (ms) | p99, times | lists (/s) |\n|---|---|---|---|---|---|---|\n")
	for _, s := range sides {
		column := func(of func(result) float64) float64 {
			var values []float64
			for _, r := range results[s] {
				values = append(values, of(r))
			}
			slices.Sort(values)
			return values[len(values)/2]
		}
		fmt.Fprintf(&table, "| %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.0f |\n", s,
			column(func(r result) float64 { return percentile(r.quiet, 50) }), column(func(r result) float64 { return percentile(r.quiet, 99) }),
			column(func(r result) float64 { return percentile(r.flooded, 50) }), column(func(r result) float64 { return percentile(r.flooded, 99) }),
			column(func(r result) float64 { return percentile(r.flooded, 99) / percentile(r.quiet, 99) }),
			column(func(r result) float64 { return float64(r.lists) / o.time.Seconds() }))
	}
	return o.Finish(out, "One user while another one lists everything", fmt.Sprintf(explanation, o.clients, o.objects), table.String())
}

// explanation is printed above the table.
const explanation = `One client of one user creates ConfigMaps, one after the other: first alone, then while %d clients of another
user list all %d ConfigMaps of 2 KiB, again and again. All clients are on the machine of the server. Medians of
rounds.

`

func (o *options) measure(ctx context.Context, b peer.Binaries, s side, dir string) (r result, err error) {
	kind, flags := peer.GatehouseEmbedded, []string(nil)
	switch s {
	case upstream, upstreamNarrow:
		kind = peer.KubeAPIServer
	case unfair:
		flags = []string{"--enable-priority-and-fairness=false"}
	}
	server, err := peer.Start(ctx, b, kind, dir, flags...)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	client, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		return r, err
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "fairnessbench"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: lister}, {APIGroup: rbacv1.GroupName, Kind: "User", Name: creator}},
	}, metav1.CreateOptions{}); err != nil {
		return r, err
	}
	if s == upstreamNarrow || s == fairNarrow {
		if err := narrow(ctx, client); err != nil {
			return r, err
		}
	}
	var made atomic.Int64
	_, err = load.Run(ctx, server, 8, func() (load.Request, bool) {
		n := made.Add(1)
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"listed-%d"},"data":{"key":"%s"}}`, n, strings.Repeat("x", 2<<10))
		return load.Request{Method: http.MethodPost, Path: "/api/v1/namespaces/kube-public/configmaps", Body: body}, n <= int64(o.objects)
	})
	if err != nil {
		return r, err
	}
	creates := func() ([]time.Duration, error) {
		until := time.Now().Add(o.time)
		return load.Run(ctx, server, 1, func() (load.Request, bool) {
			create := load.ConfigMap.Create()
			create.As = creator
			return create, time.Now().Before(until)
		})
	}
	// New rights take effect with a delay, and a server that has just started is busy.
	time.Sleep(3 * time.Second)
	if r.quiet, err = creates(); err != nil {
		return r, err
	}
	flooding, stop := context.WithCancel(ctx)
	defer stop()
	group, floodCtx := errgroup.WithContext(flooding)
	for range o.clients {
		group.Go(func() error {
			c := load.NewClient(server)
			defer c.Close()
			for floodCtx.Err() == nil {
				err := c.Do(floodCtx, load.Request{Path: "/api/v1/namespaces/kube-public/configmaps", As: lister}, io.Discard)
				var refused *load.Refused
				switch {
				case err == nil:
					atomic.AddInt64(&r.lists, 1)
				case errors.As(err, &refused) && refused.Code == http.StatusTooManyRequests:
					atomic.AddInt64(&r.refused, 1)
					select {
					case <-time.After(time.Second):
					case <-floodCtx.Done():
					}
				case floodCtx.Err() == nil:
					return err
				}
			}
			return nil
		})
	}
	time.Sleep(2 * time.Second)
	atomic.StoreInt64(&r.lists, 0)
	r.flooded, err = creates()
	r.lists, r.refused = atomic.LoadInt64(&r.lists), atomic.LoadInt64(&r.refused)
	stop()
	return r, errors.Join(err, group.Wait())
}

// narrow gives the lister a priority level with one share of the seats, whose requests queue.
func narrow(ctx context.Context, client kubernetes.Interface) error {
	one, zero := int32(1), int32(0)
	flows := client.FlowcontrolV1()
	if _, err := flows.PriorityLevelConfigurations().Create(ctx, &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: lister},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: &one, LendablePercent: &zero, BorrowingLimitPercent: &zero,
			LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeQueue, Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 1, HandSize: 1, QueueLengthLimit: 1000}},
		}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := flows.FlowSchemas().Create(ctx, &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: lister},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: lister}, MatchingPrecedence: 500,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects:      []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: lister}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, ClusterScope: true, Namespaces: []string{"*"}}},
			}},
		},
	}, metav1.CreateOptions{})
	return err
}

// percentile returns a percentile in milliseconds.
func percentile(all []time.Duration, p int) float64 {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return float64(sorted[(len(sorted)-1)*p/100]) / float64(time.Millisecond)
}
