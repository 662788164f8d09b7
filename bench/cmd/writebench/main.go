// Writebench compares the cost of writes and reads in kube-apiserver, in another build of gatehouse, or both, and in
// gatehouse, on a machine with other users. All servers run at the same time, and take turns with blocks of the same
// number of requests, so that disturbances affect all of them. It prints the rate, and the CPU time and allocations
// per request of the server and its etcd together, with the ratio to the first server, and the quartiles of the
// ratios of the CPU time in each block. Finally it prints the memory of the servers, immediately after the load and
// 15 s later.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
	"github.com/gatehouse-dev/gatehouse/bench/internal/report"
)

// write is one kind of request. Request n of a block is the same for all servers, except the resource version of an
// update: each server uses the version of object n from its answer to an earlier create.
type write struct {
	name string
	make func(n int, version string) load.Request
	// share divides the number of requests of a block, for slow requests; 0 means all requests.
	share int
}

// leases is the write whose objects are updated later.
const leases = "create lease"

const namespace = "/api/v1/namespaces/default"

var writes = []write{
	{name: "create ConfigMap", make: func(n int, _ string) load.Request {
		return load.Request{Method: http.MethodPost, Path: namespace + "/configmaps", Body: fmt.Sprintf(
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c-%d","labels":{"app":"bench"}},"data":{"key":"value"}}`, n)}
	}},
	{name: "create pod", make: func(n int, _ string) load.Request {
		return load.Request{Method: http.MethodPost, Path: namespace + "/pods", Body: fmt.Sprintf(
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p-%d","labels":{"app":"bench"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`, n)}
	}},
	{name: "merge patch of a pod", make: func(n int, _ string) load.Request {
		return load.Request{Method: http.MethodPatch, Path: fmt.Sprintf("%s/pods/p-%d", namespace, n), ContentType: "application/merge-patch+json",
			Body: fmt.Sprintf(`{"metadata":{"labels":{"changed":"n%d"}}}`, n)}
	}},
	{name: "apply of a ConfigMap", make: func(n int, _ string) load.Request {
		return load.Request{Method: http.MethodPatch, Path: fmt.Sprintf("%s/configmaps/a-%d?fieldManager=bench", namespace, n%200), ContentType: "application/apply-patch+yaml",
			Body: fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a-%d"},"data":{"key":"value-%d"}}`, n%200, n)}
	}},
	{name: leases, make: func(n int, _ string) load.Request {
		return load.Request{Method: http.MethodPost, Path: "/apis/coordination.k8s.io/v1/namespaces/default/leases", Body: fmt.Sprintf(
			`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l-%d"},"spec":{"holderIdentity":"bench"}}`, n)}
	}},
	{name: "update of a lease", make: func(n int, version string) load.Request {
		return load.Request{Method: http.MethodPut, Path: fmt.Sprintf("/apis/coordination.k8s.io/v1/namespaces/default/leases/l-%d", n), Body: fmt.Sprintf(
			`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l-%d","resourceVersion":%q},"spec":{"holderIdentity":"bench","leaseDurationSeconds":40,"renewTime":"2026-01-01T00:00:%02d.000000Z"}}`, n, version, n%60)}
	}},
	{name: "get of a pod", make: func(n int, _ string) load.Request {
		return load.Request{Path: fmt.Sprintf("%s/pods/p-%d", namespace, n)}
	}},
	{name: "list of the pods, cached", make: list("?resourceVersion=0"), share: 20},
	{name: "list of the pods, consistent", make: list(""), share: 20},
	{name: "list of 500 pods, the first page", make: list("?limit=500"), share: 10},
	{name: "list of pods by selector, one hit", make: list("?fieldSelector=metadata.name%3Dp-7"), share: 2},
	{name: "delete of a pod", make: func(n int, _ string) load.Request {
		return load.Request{Method: http.MethodDelete, Path: fmt.Sprintf("%s/pods/p-%d", namespace, n)}
	}},
}

func list(query string) func(int, string) load.Request {
	return func(int, string) load.Request { return load.Request{Path: namespace + "/pods" + query} }
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	module := flag.String("module", ".", "`directory` of the bench module")
	dir := flag.String("binaries", "", "`directory` of the programs (default: in the user's cache)")
	kube := flag.Bool("kube-apiserver", false, "compare kube-apiserver, as the first one; the program that GATEHOUSE_OTHER names is the next one")
	only := flag.String("writes", "", "a regular `expression` for the names of the writes to measure; a write that needs the objects of another fails without it")
	unmatched := flag.Int("unmatched", 0, "how many webhooks that do not match the last server gets")
	file := flag.String("report", "", "write the section into this `file`, too")
	blocks := flag.Int("blocks", 10, "how many blocks of requests each server gets")
	size := flag.Int("size", 200, "how many requests a block has")
	clients := flag.Int("clients", 16, "how many clients there are")
	flag.Parse()
	var kinds []peer.Kind
	if *kube {
		kinds = append(kinds, peer.KubeAPIServer)
	}
	if os.Getenv("GATEHOUSE_OTHER") != "" {
		kinds = append(kinds, peer.GatehouseOther)
	}
	kinds = append(kinds, peer.GatehouseEmbedded)
	err := func() error {
		chosen, err := regexp.Compile(*only)
		if err != nil {
			return fmt.Errorf("-writes: %w", err)
		}
		table := &report.Table{Ratio: true}
		if err := run(ctx, *module, *dir, kinds, chosen, table, *unmatched, *blocks, *size, *clients); err != nil || *file == "" {
			return err
		}
		return section(*file, table, kinds, *blocks, *size, *clients)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "writebench:", err)
		os.Exit(1)
	}
}

// section writes the section of a report.
func section(file string, table *report.Table, kinds []peer.Kind, blocks, size, clients int) error {
	var body strings.Builder
	fmt.Fprintf(&body, `All servers run at once, with their defaults, and get blocks of %d requests in turns, by %d clients, each with an HTTP/2
connection of its own: %d blocks of each kind of request, after a first block that does not count. A block of long lists has a twentieth
of the requests, a block of pages a tenth, and a block of lists by selector half. Medians of the blocks, with the
smallest and largest value. The CPU time includes the server and its etcd, with the work of controllers within %s after a block.
Allocations are counted in the process of the server, with etcd only where it is embedded. The load comes from
the same machine, which also limits the rate.

`, size, clients, blocks, settle)
	columns := make([]string, len(kinds))
	for i, kind := range kinds {
		columns[i] = string(kind)
	}
	table.Print(&body, columns)
	return report.Write(file, "writebench", "Writes compared with kube-apiserver", "cd bench && go run ./cmd/writebench "+strings.Join(os.Args[1:], " "), body.String())
}

func run(ctx context.Context, module, dir string, kinds []peer.Kind, chosen *regexp.Regexp, table *report.Table, unmatched, blocks, size, clients int) error {
	b, err := peer.Build(ctx, module, dir)
	if err != nil {
		return err
	}
	data, err := os.MkdirTemp("", "writebench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(data)
	servers, connections := make([]*peer.Server, len(kinds)), make([][]*load.Client, len(kinds))
	for i, kind := range kinds {
		if servers[i], err = peer.Start(ctx, b, kind, filepath.Join(data, strconv.Itoa(i))); err != nil {
			return err
		}
		defer func() { _ = servers[i].Stop() }()
		c := load.NewClient(servers[i])
		// Pods need the service account. If it cannot be created again, it exists.
		account := load.Request{Method: http.MethodPost, Path: namespace + "/serviceaccounts", Body: `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`}
		_ = c.Do(ctx, account, io.Discard)
		if i == len(kinds)-1 && unmatched > 0 {
			if err := c.Do(ctx, webhooks(unmatched), io.Discard); err != nil {
				return err
			}
		}
		c.Close()
		for range clients {
			c := load.NewClient(servers[i])
			defer c.Close()
			connections[i] = append(connections[i], c)
		}
	}
	versions := make([]sync.Map, len(servers))
	for _, w := range writes {
		if !chosen.MatchString(w.name) {
			continue
		}
		size := size / max(w.share, 1)
		used := make([]usage, len(servers))
		ratios := make([][]float64, len(servers))
		for block := range blocks + 1 {
			one := make([]usage, len(servers))
			for i := range servers {
				// The order changes, so that no server is always the first.
				i = (i + block) % len(servers)
				if one[i], err = measure(ctx, servers[i], connections[i], w, &versions[i], block*size, size); err != nil {
					return fmt.Errorf("%s, %s: %w", w.name, kinds[i], err)
				}
			}
			if block == 0 {
				continue // Warm-up.
			}
			for i, kind := range kinds {
				table.Add(w.name, "/s", string(kind), float64(size)/one[i].seconds)
				table.Add(w.name+": CPU", "us", string(kind), one[i].cpu/float64(size)*1e6)
				// Background work allocates as much as a few requests, so kinds with few requests are left out.
				if w.share <= 2 {
					table.Add(w.name+": allocated", "KiB", string(kind), one[i].bytes/float64(size)/1024)
					table.Add(w.name+": allocations", "", string(kind), one[i].mallocs/float64(size))
				}
				used[i] = used[i].plus(one[i])
				ratios[i] = append(ratios[i], one[i].cpu/one[0].cpu)
			}
		}
		for i, kind := range kinds {
			slices.Sort(ratios[i])
			n := float64(blocks * size)
			fmt.Printf("%-33s %-40s %5.0f/s (%.2fx)  CPU %7.0f us (%.2fx, blocks %.2f %.2f %.2f)  %6.1f KiB (%.2fx)  %5.0f mallocs (%.2fx)\n", w.name, kind,
				n/used[i].seconds, used[0].seconds/used[i].seconds, used[i].cpu/n*1e6, used[i].cpu/used[0].cpu, ratios[i][len(ratios[i])/4], ratios[i][len(ratios[i])/2], ratios[i][len(ratios[i])*3/4],
				used[i].bytes/n/1024, used[i].bytes/used[0].bytes, used[i].mallocs/n, used[i].mallocs/used[0].mallocs)
		}
	}
	for _, when := range []string{"right after", "15 s later"} {
		for i, kind := range kinds {
			rss, err := memory(servers[i])
			if err != nil {
				return err
			}
			fmt.Printf("memory %s, server and etcd: %-40s %.0f MiB\n", when, kind, rss)
			table.Add("memory "+when+", server and etcd", "MiB", string(kind), rss)
		}
		if when != "right after" {
			break
		}
		select {
		case <-time.After(15 * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// webhooks returns the creation of a configuration with n webhooks for other objects.
func webhooks(n int) load.Request {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{"name":"w%d.example.com","clientConfig":{"url":"https://127.0.0.1:1/"},"rules":[{"apiGroups":["apps"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["daemonsets"]}],"sideEffects":"None","admissionReviewVersions":["v1"]}`, i)
	}
	return load.Request{Method: http.MethodPost, Path: "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
		Body: `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"unmatched"},"webhooks":[` + strings.Join(list, ",") + `]}`}
}

// memory returns the resident memory of a server and its etcd, in MiB.
func memory(s *peer.Server) (mib float64, err error) {
	for _, p := range s.Processes() {
		one, err := p.RSS()
		if err != nil {
			return 0, err
		}
		mib += float64(one) / (1 << 20)
	}
	return mib, nil
}

// usage is the resource usage of a server: the time of its clients and its CPU time, in seconds, and the allocated
// bytes and number of allocations, which include only the server's process.
type usage struct{ seconds, cpu, bytes, mallocs float64 }

func (u usage) plus(o usage) usage {
	return usage{u.seconds + o.seconds, u.cpu + o.cpu, u.bytes + o.bytes, u.mallocs + o.mallocs}
}

// settle is the time after a block during which further work of the server, such as the work of controllers, is
// included.
const settle = 300 * time.Millisecond

func measure(ctx context.Context, s *peer.Server, connections []*load.Client, w write, versions *sync.Map, first, count int) (usage, error) {
	// Reading the metrics also allocates.
	reading, err := metrics(ctx, s)
	if err != nil {
		return usage{}, err
	}
	before, err := metrics(ctx, s)
	if err != nil {
		return usage{}, err
	}
	reading = usage{bytes: before.bytes - reading.bytes, mallocs: before.mallocs - reading.mallocs}
	if before.cpu, err = cpu(s); err != nil {
		return usage{}, err
	}
	requests := make(chan int, count)
	for n := range count {
		requests <- first + n
	}
	close(requests)
	began := time.Now()
	_, err = load.Turns(ctx, connections, func(ctx context.Context, c *load.Client, _ int) (bool, error) {
		n, more := <-requests
		if !more {
			return false, nil
		}
		version, _ := versions.Load(n)
		text, _ := version.(string)
		request := w.make(n, text)
		if w.name != leases {
			return true, c.Do(ctx, request, io.Discard)
		}
		var answer bytes.Buffer
		err := c.Do(ctx, request, &answer)
		var made struct {
			Metadata struct{ ResourceVersion string }
		}
		if err == nil {
			err = json.Unmarshal(answer.Bytes(), &made)
		}
		versions.Store(n, made.Metadata.ResourceVersion)
		return true, err
	})
	if err != nil {
		return usage{}, err
	}
	took := time.Since(began)
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return usage{}, ctx.Err()
	}
	// The CPU time is read first, without the cost of reading the metrics.
	used, err := cpu(s)
	if err != nil {
		return usage{}, err
	}
	after, err := metrics(ctx, s)
	return usage{took.Seconds(), used - before.cpu, after.bytes - before.bytes - reading.bytes, after.mallocs - before.mallocs - reading.mallocs}, err
}

// cpu returns the CPU time of a server and its etcd since their start, in seconds.
func cpu(s *peer.Server) (seconds float64, err error) {
	for _, p := range s.Processes() {
		one, err := p.CPU()
		if err != nil {
			return 0, err
		}
		seconds += one.Seconds()
	}
	return seconds, nil
}

// metrics reads the allocations of a server since its start.
func metrics(ctx context.Context, s *peer.Server) (u usage, err error) {
	c := load.NewClient(s)
	defer c.Close()
	var text bytes.Buffer
	if err := c.Do(ctx, load.Request{Path: "/metrics", Accept: "text/plain"}, &text); err != nil {
		return u, err
	}
	for lines := bufio.NewScanner(&text); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		switch name {
		case "go_memstats_alloc_bytes_total":
			u.bytes, err = strconv.ParseFloat(value, 64)
		case "go_memstats_mallocs_total":
			u.mallocs, err = strconv.ParseFloat(value, 64)
		}
		if err != nil {
			return u, err
		}
	}
	return u, nil
}
