// Joinbench compares three kinds of clusters of three servers: gatehouse servers that joined each other, gatehouse
// servers on an etcd of three members, and kube-apiservers on such an etcd. Clients create ConfigMaps through all
// three servers at the same time. The kinds take turns, and only one runs at a time. The program prints the medians
// with the smallest and largest value, and the times of the joins, and writes them into a report if a flag names one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
	"github.com/gatehouse-dev/gatehouse/bench/internal/report"
)

// servers is the number of servers of a kind.
const servers = 3

// kind is a way in which the servers share their data.
type kind struct {
	name  string
	start func(*bench, context.Context, string) ([]*peer.Server, error)
}

const joinedName = "gatehouse, three that joined"

var kinds = []kind{
	{"kube-apiserver, three etcd members", func(b *bench, ctx context.Context, dir string) ([]*peer.Server, error) {
		return b.external(ctx, peer.KubeAPIServer, dir)
	}},
	{"gatehouse, three etcd members", func(b *bench, ctx context.Context, dir string) ([]*peer.Server, error) {
		return b.external(ctx, peer.Gatehouse, dir)
	}},
	{joinedName, (*bench).joined},
}

type bench struct {
	programs peer.Binaries
	clients  int
	duration time.Duration
	// data is the size of the first server's data in MiB when the others join; if it is not zero, only joins are
	// measured.
	data  int
	table report.Table
	// running are the processes of a kind, in the order of their starts. They are stopped in reverse order.
	running []*peer.Process
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b := &bench{}
	module := flag.String("module", ".", "`directory` of the bench module")
	dir := flag.String("binaries", "", "`directory` of the programs (default: in the user's cache)")
	rounds := flag.Int("rounds", 3, "how often each kind is measured")
	flag.IntVar(&b.clients, "clients", 12, "how many clients there are")
	flag.DurationVar(&b.duration, "duration", 5*time.Second, "how long each measurement takes")
	flag.IntVar(&b.data, "data", 0, "how many `MiB` of objects there are when servers join; only joins are measured then")
	page := flag.String("report", "", "`file` to write the table into")
	flag.Parse()
	if b.data > 0 && *page != "" {
		fmt.Fprintln(os.Stderr, "joinbench: -report has the table of all servers: leave out -data")
		os.Exit(2)
	}
	if err := b.run(ctx, *module, *dir, *rounds, *page); err != nil {
		fmt.Fprintln(os.Stderr, "joinbench:", err)
		os.Exit(1)
	}
}

func (b *bench) run(ctx context.Context, module, dir string, rounds int, page string) error {
	var err error
	if b.programs, err = peer.Build(ctx, module, dir); err != nil {
		return err
	}
	if b.programs.Etcd, err = peer.BuildEtcd(ctx, module, dir); err != nil {
		return err
	}
	var columns []string
	kinds := kinds
	if b.data > 0 {
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool { return k.name != joinedName })
	}
	for _, k := range kinds {
		columns = append(columns, k.name)
	}
	for round := range rounds {
		for i := range kinds {
			// The order changes, so that no kind is always the first.
			k := kinds[(i+round)%len(kinds)]
			if err := b.measure(ctx, k); err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
		}
	}
	b.table.Print(os.Stdout, columns)
	if page == "" {
		return nil
	}
	var body strings.Builder
	fmt.Fprintf(&body, `%d clients create ConfigMaps through all three servers at once, on one machine with the data. etcd
syncs each write to disk. Medians of %d alternating rounds, with the smallest and largest value; the CPU time includes all
servers and members of etcd. The members of servers that joined speak TLS with each other, the members of the other etcds do not.

`, b.clients, rounds)
	b.table.Print(&body, columns)
	return report.Write(page, "joinbench", "Three servers that joined", "cd bench && go run ./cmd/joinbench "+strings.Join(os.Args[1:], " "), body.String())
}

// measure starts the servers of a kind, and measures creates.
func (b *bench) measure(ctx context.Context, k kind) (err error) {
	dir, err := os.MkdirTemp("", "joinbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	defer func() {
		for _, p := range slices.Backward(b.running) {
			err = errors.Join(err, p.Stop())
		}
		b.running = nil
	}()
	all, err := k.start(b, ctx, dir)
	if err != nil {
		return err
	}
	if b.data > 0 {
		return nil
	}
	clients := make([]*load.Client, b.clients)
	for i := range clients {
		clients[i] = load.NewClient(all[i%len(all)])
		defer clients[i].Close()
	}
	create := func(until time.Duration) (int, error) {
		end := time.Now().Add(until)
		done, err := load.Turns(ctx, clients, func(ctx context.Context, c *load.Client, _ int) (bool, error) {
			if time.Now().After(end) {
				return false, nil
			}
			return true, c.Do(ctx, load.ConfigMap.Create(), io.Discard)
		})
		return len(done), err
	}
	if _, err := create(b.duration / 4); err != nil {
		return err
	}
	before, err := b.cpu()
	if err != nil {
		return err
	}
	began := time.Now()
	n, err := create(b.duration)
	if err != nil || n == 0 {
		return errors.Join(errors.New("nothing was created"), err)
	}
	took := time.Since(began).Seconds()
	after, err := b.cpu()
	b.table.Add("create ConfigMap", "/s", k.name, float64(n)/took)
	b.table.Add("create ConfigMap: CPU", "us", k.name, (after-before).Seconds()*1e6/float64(n))
	return err
}

// cpu returns the CPU time that all processes have used.
func (b *bench) cpu() (sum time.Duration, err error) {
	for _, p := range b.running {
		one, err := p.CPU()
		if err != nil {
			return 0, err
		}
		sum += one
	}
	return sum, nil
}

// external starts servers on an etcd with the same number of members.
func (b *bench) external(ctx context.Context, kind peer.Kind, dir string) (all []*peer.Server, err error) {
	members, urls, err := peer.StartMembers(ctx, b.programs.Etcd, dir, servers)
	b.running = append(b.running, members...)
	for i := 0; i < servers && err == nil; i++ {
		var s *peer.Server
		if s, err = peer.StartOn(ctx, b.programs, kind, filepath.Join(dir, "s"+strconv.Itoa(i)), urls); err == nil {
			all, b.running = append(all, s), append(b.running, s.Process)
		}
	}
	return all, err
}

// joined starts a server, and more servers that join it.
func (b *bench) joined(ctx context.Context, dir string) (all []*peer.Server, err error) {
	token := filepath.Join(dir, "join.token")
	for i := range servers {
		port, err := peer.FreePort()
		if err != nil {
			return nil, err
		}
		flags := []string{"--peer-address", "127.0.0.1:" + strconv.Itoa(port), "--cluster"}
		if i > 0 {
			flags = append(flags[:2], "--join", all[0].Config.Host, "--join-token-file", token)
		}
		own := filepath.Join(dir, "s"+strconv.Itoa(i))
		began := time.Now()
		s, err := peer.Start(ctx, b.programs, peer.GatehouseEmbedded, own, flags...)
		if err != nil {
			return nil, err
		}
		all, b.running = append(all, s), append(b.running, s.Process)
		if i > 0 {
			b.table.Add(b.joinRow(), "s", joinedName, time.Since(began).Seconds())
			continue
		}
		text, err := exec.CommandContext(ctx, b.programs.Gatehouse, "cluster", "token", "create", "--uses", strconv.Itoa(servers-1), "--data-dir", filepath.Join(own, "data")).Output()
		if err == nil {
			err = os.WriteFile(token, text, 0o600)
		}
		if err == nil {
			err = b.fill(ctx, s)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (b *bench) joinRow() string {
	if b.data > 0 {
		return fmt.Sprintf("join, %d MiB of objects", b.data)
	}
	return "join"
}

// fill creates the objects that exist when servers join, of half a MiB each.
func (b *bench) fill(ctx context.Context, s *peer.Server) error {
	large := load.Request{Method: http.MethodPost, Path: "/api/v1/namespaces/default/configmaps", Body: `{"metadata":{"generateName":"large-"},"data":{"value":"` + strings.Repeat("x", 1<<19) + `"}}`}
	var left atomic.Int64
	left.Store(int64(2 * b.data))
	_, err := load.Run(ctx, s, 4, func() (load.Request, bool) { return large, left.Add(-1) >= 0 })
	return err
}
