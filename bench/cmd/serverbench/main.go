// Serverbench measures kube-apiserver and gatehouse with the same load in
// alternating rounds: time to ready, resident memory when idle, and how many
// small ConfigMaps are created in a second, with and without webhooks. It
// prints a Markdown table of medians with the smallest and largest value.
//
// In every round each server starts on empty data, is left idle, is loaded, and
// starts a second time on what it stored; only one runs at a time. The servers'
// order changes from round to round.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
	"github.com/gatehouse-dev/gatehouse/bench/internal/report"
)

// options are the flags.
type options struct {
	module, binaries string
	servers          []peer.Kind
	scenarios        []scenario
	clients          []int
	rounds           int
	idle, duration   time.Duration
	report           string
}

// shortNames are how the servers are named in flags.
var shortNames = map[string]peer.Kind{
	"kube-apiserver": peer.KubeAPIServer, "gatehouse": peer.Gatehouse, "embedded": peer.GatehouseEmbedded,
	"untraced": peer.GatehouseUntraced,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse()
	if err == nil {
		err = o.run(ctx, os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "serverbench:", err)
		os.Exit(1)
	}
}

func parse() (options, error) {
	var o options
	flag.StringVar(&o.module, "module", ".", "`directory` of the bench module")
	flag.StringVar(&o.binaries, "binaries", "", "`directory` of the programs (default: in the user's cache)")
	flag.IntVar(&o.rounds, "rounds", 5, "how many times each server is measured")
	flag.DurationVar(&o.idle, "idle", 5*time.Second, "how long a server is left alone before its memory is read")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "how long each load lasts")
	flag.StringVar(&o.report, "report", "", "`file` to write the table to, such as ../docs/benchmarks.md")
	servers := flag.String("servers", "kube-apiserver,gatehouse,embedded", "`list` of kube-apiserver, gatehouse (etcd as a process), embedded (gatehouse, etcd inside), untraced (gatehouse, --admission-trace-bytes 0)")
	scenarios := flag.String("scenarios", "none,nonmatching=2000,patch+validate,validating=10", "`list` of none, nonmatching=N, patch+validate, validating=N")
	clients := flag.String("clients", "1,16", "`list` of how many clients create objects at once")
	flag.Parse()
	for _, name := range strings.Split(*servers, ",") {
		kind, known := shortNames[name]
		if !known {
			return o, fmt.Errorf("-servers: %q is not known", name)
		}
		o.servers = append(o.servers, kind)
	}
	for _, name := range strings.Split(*scenarios, ",") {
		s, err := parseScenario(name)
		if err != nil {
			return o, fmt.Errorf("-scenarios: %w", err)
		}
		o.scenarios = append(o.scenarios, s)
	}
	for _, text := range strings.Split(*clients, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return o, fmt.Errorf("-clients: %q is not a number of clients", text)
		}
		o.clients = append(o.clients, n)
	}
	return o, nil
}

func (o options) run(ctx context.Context, out, progress io.Writer) error {
	if o.binaries == "" {
		dir, err := peer.Dir()
		if err != nil {
			return err
		}
		o.binaries = dir
	}
	b, err := peer.Build(ctx, o.module, o.binaries)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "serverbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	hook, err := peer.StartWebhook(ctx, b, filepath.Join(dir, "webhook"))
	if err != nil {
		return err
	}
	defer hook.Stop()

	results := &report.Table{}
	order := slices.Clone(o.servers)
	for round := range o.rounds {
		for i, kind := range order {
			fmt.Fprintf(progress, "round %d of %d: %s\n", round+1, o.rounds, kind)
			at := filepath.Join(dir, fmt.Sprintf("%d-%d", round, i))
			if err := o.round(ctx, b, kind, at, hook, results); err != nil {
				return fmt.Errorf("%s, round %d: %w", kind, round+1, err)
			}
			if err := os.RemoveAll(at); err != nil {
				return err
			}
		}
		slices.Reverse(order)
	}
	var table strings.Builder
	columns := make([]string, len(o.servers))
	for i, kind := range o.servers {
		columns[i] = string(kind)
	}
	results.Print(&table, columns)
	fmt.Fprint(out, table.String())
	if o.report == "" {
		return nil
	}
	command := "cd bench && go run ./cmd/serverbench --report ../docs/benchmarks.md"
	flag.Visit(func(f *flag.Flag) {
		if !slices.Contains([]string{"binaries", "module", "report"}, f.Name) {
			command += fmt.Sprintf(" --%s %s", f.Name, f.Value)
		}
	})
	return report.Write(o.report, "serverbench", "The server compared with kube-apiserver", command, explanation+table.String())
}

// explanation stands above the table.
const explanation = `Medians, with the smallest and largest value. Both servers run with RBAC, the same serving certificate and the
same token, on etcd 3.7.0 with fsync; kube-apiserver without the admission plugins that Gatehouse does not have. The
load comes from the same machine, over HTTP/2, one connection a client, and takes its share of the cores, as etcd does.
The objects are ConfigMaps with one label and one key. The webhooks are one process on the same machine. Where etcd is
embedded, the memory and the CPU time of the server are those of etcd, too.

`

func (o options) round(ctx context.Context, b peer.Binaries, kind peer.Kind, dir string, hook *peer.Webhook, r *report.Table) (err error) {
	s, err := peer.Start(ctx, b, kind, dir)
	if err != nil {
		return err
	}
	defer func() {
		if s != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
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
	for _, sc := range o.scenarios {
		remove, err := sc.register(ctx, s, hook)
		if err != nil {
			return fmt.Errorf("registering %s: %w", sc.name, err)
		}
		for _, n := range o.clients {
			l, err := measure(ctx, s, n, o.duration)
			if err != nil {
				return fmt.Errorf("%s, %d clients: %w", sc.name, n, err)
			}
			what := fmt.Sprintf("%s, %s", sc.title, plural(n, "client"))
			r.Add("creates, "+what, "/s", string(kind), l.rate)
			r.Add("99th percentile, "+what, "ms", string(kind), l.p99.Seconds()*1e3)
			r.Add("server CPU for a create, "+what, "us", string(kind), l.cpu.Seconds()*1e6)
		}
		if err := remove(ctx); err != nil {
			return fmt.Errorf("unregistering %s: %w", sc.name, err)
		}
	}
	err, s = s.Stop(), nil
	if err != nil {
		return err
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
