// Serverbench measures kube-apiserver and gatehouse with the same load in alternating rounds: time to ready, resident
// memory when idle, and the number of small ConfigMaps created per second, with and without webhooks or, with
// -policies, admission policies. With -definitions, it measures the cost of many CustomResourceDefinitions; with
// -operations, the cost of each kind of request; with -scale, how both servers behave under growing load or data,
// until one of them fails. It prints Markdown tables of medians with the smallest and largest value.
//
// In every round each server starts on empty data, stays idle, is loaded, and restarts on its stored data; only one
// server runs at a time. The order of the servers changes from round to round.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/bench/internal/compare"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
	"github.com/gatehouse-dev/gatehouse/bench/internal/report"
)

// options are the flags.
type options struct {
	compare.Options
	servers        []peer.Kind
	scenarios      []scenario
	clients        []int
	idle, duration time.Duration
	// policies measures admission policies instead of webhooks.
	policies bool
	// definitions lists the sets of CRDs to measure instead of webhooks.
	definitions []definitions
	// operations are measured instead of webhooks, on this number of objects.
	operations []operation
	objects    int
	// scales are measured instead of webhooks. A scale ends when a step takes longer than patience.
	scales   []scale
	patience time.Duration
	// profiles is the directory of the profiles; empty means no profiles.
	profiles string
	// as is the user of the requests of operations; empty means the administrator.
	as string
}

// shortNames are the names of the servers in flags.
var shortNames = map[string]peer.Kind{
	"kube-apiserver": peer.KubeAPIServer, "gatehouse": peer.Gatehouse, "embedded": peer.GatehouseEmbedded,
	"uncontrolled": peer.GatehouseUncontrolled, "untraced": peer.GatehouseUntraced,
	"other": peer.GatehouseOther,
}

func main() {
	o := options{Options: compare.Options{Name: "serverbench"}}
	o.AddFlags(5)
	flag.DurationVar(&o.idle, "idle", 5*time.Second, "how long a server is left alone before its memory is read")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "how long each load lasts")
	servers := flag.String("servers", "kube-apiserver,gatehouse,embedded,uncontrolled", "`list` of kube-apiserver, gatehouse (etcd as a process), embedded (gatehouse, etcd inside), uncontrolled (the same, --controllers=-*), untraced (gatehouse, --admission-trace-bytes 0), other (embedded, of the program that GATEHOUSE_OTHER names)")
	scenarios := flag.String("scenarios", "", "`list` of none, pods (instead of ConfigMaps), nonmatching=N, patch+validate, validating=N; bindings=N (of a policy that matches), params=N (of such a policy), policies=N (that do not match); SERVER:SCENARIO is for that server alone (default: all of webhooks, or of policies)")
	clients := flag.String("clients", "", "`list` of how many clients create objects at once (default: 1,16, and 16 with -policies)")
	flag.BoolVar(&o.policies, "policies", false, "measure admission policies, and not webhooks and starts")
	numbers := flag.String("definitions", "", "measure with these numbers of CustomResourceDefinitions, a `list`, and not webhooks and starts")
	fields := flag.Int("fields", 160, "how many fields a definition has")
	operations := flag.String("operations", "", "measure these kinds of requests, a `list`, and not webhooks and starts: all, or of "+operationNames())
	flag.IntVar(&o.objects, "objects", usualObjects, "how many pods the operations work on")
	scales := flag.String("scale", "", "measure more and more of these, a `list`, and not webhooks and starts: all, or of "+scaleNames())
	flag.DurationVar(&o.patience, "patience", 10*time.Minute, "how long one size of -scale may take; after a longer size, no larger size is tried")
	flag.StringVar(&o.profiles, "profiles", "", "`directory` for profiles of heap and goroutines with definitions, and of the CPU and the allocations with operations; GATEHOUSE_BINARY must be built from ./cmd/profiled, and GATEHOUSE_PROFILES be the same directory")
	flag.StringVar(&o.as, "as", "", "the `user` who makes the requests of operations, and may do everything: priority and fairness is not for administrators (default: the administrator)")
	o.Main(func(ctx context.Context, out, progress io.Writer) error {
		if err := o.parseDefinitions(*numbers, *fields); err != nil {
			return err
		}
		if err := o.parseOperations(*operations, *scales); err != nil {
			return err
		}
		all, many := webhookScenarios, "1,16"
		if o.policies {
			o.Section, all, many = "serverbench policies", policyScenarios, "16"
		}
		if err := o.parse(*servers, cmp.Or(*scenarios, all), cmp.Or(*clients, many)); err != nil {
			return err
		}
		return o.run(ctx, out, progress)
	})
}

// parseDefinitions parses the numbers of CRDs.
func (o *options) parseDefinitions(numbers string, fields int) error {
	if numbers == "" {
		return nil
	}
	o.Section = "serverbench definitions"
	for _, text := range strings.Split(numbers, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-definitions: %q is not a number of definitions", text)
		}
		o.definitions = append(o.definitions, definitions{number: n, fields: fields})
	}
	return nil
}

// parse parses the flags that are lists.
func (o *options) parse(servers, scenarios, clients string) error {
	for _, name := range strings.Split(servers, ",") {
		kind, known := shortNames[name]
		if !known {
			return fmt.Errorf("-servers: %q is not known", name)
		}
		o.servers = append(o.servers, kind)
	}
	for _, name := range strings.Split(scenarios, ",") {
		server, rest, alone := strings.Cut(name, ":")
		if alone {
			name = rest
		}
		s, err := parseScenario(name)
		if err != nil {
			return fmt.Errorf("-scenarios: %w", err)
		}
		if s.name == "none" && o.policies {
			s.title = "no policy"
		}
		if alone {
			var known bool
			if s.only, known = shortNames[server]; !known {
				return fmt.Errorf("-scenarios: %q is not known", server)
			}
		}
		o.scenarios = append(o.scenarios, s)
	}
	for _, text := range strings.Split(clients, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-clients: %q is not a number of clients", text)
		}
		o.clients = append(o.clients, n)
	}
	return nil
}

func (o *options) run(ctx context.Context, out, progress io.Writer) error {
	b, err := peer.Build(ctx, o.Module, o.Binaries)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "serverbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	hook, err := peer.StartWebhook(ctx, b, dir)
	if err != nil {
		return err
	}
	defer hook.Stop()

	if o.scales != nil {
		return o.runScales(ctx, b, hook, out, progress)
	}
	results := &report.Table{Ratio: o.operations != nil}
	err = compare.Alternate(&o.Options, progress, o.servers, func(kind peer.Kind, dir string) error {
		return o.round(ctx, b, kind, dir, hook, progress, results)
	})
	var table strings.Builder
	columns := make([]string, len(o.servers))
	for i, kind := range o.servers {
		columns[i] = string(kind)
	}
	results.Print(&table, columns)
	if err != nil {
		fmt.Fprint(out, table.String())
		return err
	}
	if o.operations != nil {
		return o.Finish(out, "Operations compared with kube-apiserver"+o.numbered(), operationsExplained, table.String())
	}
	if o.definitions != nil {
		return o.Finish(out, "Definitions compared with kube-apiserver", definitionsExplained, table.String())
	}
	if o.policies {
		return o.Finish(out, "Admission policies compared with kube-apiserver", policiesExplained, table.String())
	}
	return o.Finish(out, "The server compared with kube-apiserver", explanation, table.String())
}

// explanation is printed above the table.
const explanation = `Medians, with the smallest and largest value. Both servers run with RBAC, the same serving certificate and the
same token, on etcd 3.7.0 with fsync, and with all admission plugins that are on by default. Gatehouse also runs its
controllers, except in the last column; no kube-controller-manager runs with kube-apiserver. The load comes from the same machine, over HTTP/2, one connection a client, and takes its share of the cores, as etcd does.
The objects are ConfigMaps with one label and one key, or pods with one container. The webhooks are one process on the same machine. Where etcd is
embedded, the memory and the CPU time of the server include etcd, too.

`

func (o *options) round(ctx context.Context, b peer.Binaries, kind peer.Kind, dir string, hook *peer.Webhook, progress io.Writer, r *report.Table) (err error) {
	if o.definitions != nil {
		if err := o.withoutDefinitions(ctx, b, kind, filepath.Join(dir, "without"), r); err != nil {
			return err
		}
		for i, d := range o.definitions {
			if err := o.withDefinitions(ctx, b, kind, filepath.Join(dir, fmt.Sprint("definitions-", i)), d, r); err != nil {
				return fmt.Errorf("%s: %w", d, err)
			}
		}
		return nil
	}
	s, err := peer.Start(ctx, b, kind, dir)
	if err != nil {
		return err
	}
	defer func() {
		if s != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	if o.operations != nil {
		return o.operate(ctx, s, hook, r)
	}
	r.Add("time to ready, empty data", "s", string(kind), s.Ready.Seconds())
	select {
	case <-time.After(o.idle):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	server, etcd, err := s.RSS()
	if err != nil {
		return err
	}
	const mib = 1 << 20
	r.Add("memory when idle, server", "MiB", string(kind), float64(server)/mib)
	r.Add("memory when idle, server and etcd", "MiB", string(kind), float64(server+etcd)/mib)
	if server, etcd, err = s.Anonymous(); err != nil {
		return err
	}
	r.Add("anonymous memory when idle, server", "MiB", string(kind), float64(server)/mib)
	r.Add("anonymous memory when idle, server and etcd", "MiB", string(kind), float64(server+etcd)/mib)
	// without is the CPU time of a create without webhooks and policies, by the number of clients.
	without := map[int]time.Duration{}
	for _, sc := range o.scenarios {
		if sc.only != "" && sc.only != kind {
			continue
		}
		remove, err := sc.register(ctx, s, hook)
		if err != nil {
			return fmt.Errorf("registering %s: %w", sc.name, err)
		}
		for _, n := range o.clients {
			l, err := measure(ctx, s, sc.object(), n, o.duration)
			if err != nil {
				return fmt.Errorf("%s, %d clients: %w", sc.name, n, err)
			}
			what := fmt.Sprintf("%s, %s", sc.title, plural(n, "client"))
			r.Add("creates, "+what, "/s", string(kind), l.rate)
			r.Add("99th percentile, "+what, "ms", string(kind), l.p99.Seconds()*1e3)
			r.Add("server CPU for a create, "+what, "us", string(kind), l.cpu.Seconds()*1e6)
			if sc.name == "none" {
				without[n] = l.cpu
			} else if o.policies {
				r.Add("server CPU added to a create, "+what, "us", string(kind), (l.cpu-without[n]).Seconds()*1e6)
			}
		}
		if sc.policies != nil {
			server, _, err := s.RSS()
			if err != nil {
				return err
			}
			r.Add("memory under load, server, "+sc.title, "MiB", string(kind), float64(server)/mib)
		}
		if err := remove(ctx); err != nil {
			return fmt.Errorf("unregistering %s: %w", sc.name, err)
		}
	}
	err, s = s.Stop(), nil
	if err != nil {
		return err
	}
	if o.policies {
		for i, c := range crowds {
			if err := o.crowd(ctx, b, kind, filepath.Join(dir, fmt.Sprint("crowd-", i)), c, r); err != nil {
				return fmt.Errorf("%s: %w", c, err)
			}
		}
		return nil
	}
	if s, err = peer.Start(ctx, b, kind, dir); err != nil {
		return err
	}
	r.Add("time to ready, second start", "s", string(kind), s.Ready.Seconds())
	return nil
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
