// Writebench compares what a write costs in two builds of gatehouse, or in kube-apiserver and gatehouse, on a machine
// that others use too: all servers run at once, and get blocks of the same number of requests in turns, so that
// what slows down one slows down the others. It prints the CPU time and the allocations of a request, of the server
// and its etcd together, with the ratio to the first server, and the ratio of each pair of blocks.
package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// write is one kind of write: request n of a block is the same for all servers.
type write struct {
	name string
	make func(n int) load.Request
}

const namespace = "/api/v1/namespaces/default"

var writes = []write{
	{"create ConfigMap", func(n int) load.Request {
		return load.Request{Method: http.MethodPost, Path: namespace + "/configmaps", Body: fmt.Sprintf(
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c-%d","labels":{"app":"bench"}},"data":{"key":"value"}}`, n)}
	}},
	{"create pod", func(n int) load.Request {
		return load.Request{Method: http.MethodPost, Path: namespace + "/pods", Body: fmt.Sprintf(
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p-%d","labels":{"app":"bench"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`, n)}
	}},
	{"merge patch of a pod", func(n int) load.Request {
		return load.Request{Method: http.MethodPatch, Path: fmt.Sprintf("%s/pods/p-%d", namespace, n), ContentType: "application/merge-patch+json",
			Body: fmt.Sprintf(`{"metadata":{"labels":{"changed":"n%d"}}}`, n)}
	}},
	{"apply of a ConfigMap", func(n int) load.Request {
		return load.Request{Method: http.MethodPatch, Path: fmt.Sprintf("%s/configmaps/a-%d?fieldManager=bench", namespace, n%200), ContentType: "application/apply-patch+yaml",
			Body: fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a-%d"},"data":{"key":"value-%d"}}`, n%200, n)}
	}},
	{"create lease", func(n int) load.Request {
		return load.Request{Method: http.MethodPost, Path: "/apis/coordination.k8s.io/v1/namespaces/default/leases", Body: fmt.Sprintf(
			`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l-%d"},"spec":{"holderIdentity":"bench"}}`, n)}
	}},
	{"update of a lease", func(n int) load.Request {
		return load.Request{Method: http.MethodPut, Path: fmt.Sprintf("/apis/coordination.k8s.io/v1/namespaces/default/leases/l-%d", n), Body: fmt.Sprintf(
			`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l-%d"},"spec":{"holderIdentity":"bench","leaseDurationSeconds":40,"renewTime":"2026-01-01T00:00:%02d.000000Z"}}`, n, n%60)}
	}},
	{"delete of a pod", func(n int) load.Request {
		return load.Request{Method: http.MethodDelete, Path: fmt.Sprintf("%s/pods/p-%d", namespace, n)}
	}},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	module := flag.String("module", ".", "`directory` of the bench module")
	dir := flag.String("binaries", "", "`directory` of the programs (default: in the user's cache)")
	kube := flag.Bool("kube-apiserver", false, "compare kube-apiserver, too")
	blocks := flag.Int("blocks", 10, "how many blocks of requests each server gets")
	size := flag.Int("size", 200, "how many requests a block has")
	clients := flag.Int("clients", 16, "how many clients there are")
	flag.Parse()
	kinds := []peer.Kind{peer.GatehouseOther, peer.GatehouseEmbedded}
	if *kube {
		kinds = append(kinds, peer.KubeAPIServer)
	}
	if err := run(ctx, *module, *dir, kinds, *blocks, *size, *clients); err != nil {
		fmt.Fprintln(os.Stderr, "writebench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, module, dir string, kinds []peer.Kind, blocks, size, clients int) error {
	var err error
	b, err := peer.Build(ctx, module, dir)
	if err != nil {
		return err
	}
	data, err := os.MkdirTemp("", "writebench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(data)
	servers := make([]*peer.Server, len(kinds))
	for i, kind := range kinds {
		if servers[i], err = peer.Start(ctx, b, kind, filepath.Join(data, strconv.Itoa(i))); err != nil {
			return err
		}
		defer func() { _ = servers[i].Stop() }()
		c := load.NewClient(servers[i])
		// Pods need the service account, which is there when it can be created no more.
		account := load.Request{Method: http.MethodPost, Path: namespace + "/serviceaccounts", Body: `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`}
		_ = c.Do(ctx, account, io.Discard)
		c.Close()
	}
	for _, w := range writes {
		used := make([]usage, len(servers))
		ratios := make([][]float64, len(servers))
		for block := range blocks + 1 {
			one := make([]usage, len(servers))
			for i := range servers {
				// The order changes, so that no server is always the first.
				i = (i + block) % len(servers)
				if one[i], err = measure(ctx, servers[i], w, block*size, size, clients); err != nil {
					return fmt.Errorf("%s, %s: %w", w.name, kinds[i], err)
				}
			}
			if block == 0 {
				continue // A warm-up.
			}
			for i := range servers {
				used[i] = used[i].plus(one[i])
				ratios[i] = append(ratios[i], one[i].cpu/one[0].cpu)
			}
		}
		for i, kind := range kinds {
			slices.Sort(ratios[i])
			n := float64(blocks * size)
			fmt.Printf("%-22s %-40s CPU %7.0f us (%.2fx, blocks %.2f %.2f %.2f)  %6.1f KiB (%.2fx)  %5.0f mallocs (%.2fx)\n", w.name, kind,
				used[i].cpu/n*1e6, used[i].cpu/used[0].cpu, ratios[i][len(ratios[i])/4], ratios[i][len(ratios[i])/2], ratios[i][len(ratios[i])*3/4],
				used[i].bytes/n/1024, used[i].bytes/used[0].bytes, used[i].mallocs/n, used[i].mallocs/used[0].mallocs)
		}
	}
	return nil
}

// usage is what a server used, in seconds, bytes and allocations. The last two are those of the server's process alone.
type usage struct{ cpu, bytes, mallocs float64 }

func (u usage) plus(o usage) usage {
	return usage{u.cpu + o.cpu, u.bytes + o.bytes, u.mallocs + o.mallocs}
}

// settle is how long what follows a block, such as the work of controllers, counts.
const settle = 300 * time.Millisecond

func measure(ctx context.Context, s *peer.Server, w write, first, count, clients int) (usage, error) {
	before, err := metrics(ctx, s)
	if err != nil {
		return usage{}, err
	}
	if before.cpu, err = cpu(s); err != nil {
		return usage{}, err
	}
	requests := make(chan int, count)
	for n := range count {
		requests <- first + n
	}
	close(requests)
	_, err = load.Run(ctx, s, clients, func() (load.Request, bool) {
		n, more := <-requests
		return w.make(n), more
	})
	if err != nil {
		return usage{}, err
	}
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return usage{}, ctx.Err()
	}
	// The CPU time comes first: that of reading the metrics does not count.
	used, err := cpu(s)
	if err != nil {
		return usage{}, err
	}
	after, err := metrics(ctx, s)
	return usage{used - before.cpu, after.bytes - before.bytes, after.mallocs - before.mallocs}, err
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

// metrics reads what a server has allocated since its start.
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
