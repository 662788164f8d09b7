// Joinbench compares three servers: those of gatehouse that joined, those of gatehouse on an etcd of three members, and
// kube-apiservers on the same. Clients create ConfigMaps through all three at once. Only one of the three kinds runs at a time, in
// turns. It prints the medians with the smallest and largest value, and the times of the joins.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// servers is how many there are of a kind.
const servers = 3

// kind is how the servers share what they store.
type kind struct {
	name  string
	start func(*bench, context.Context, string) ([]*peer.Server, error)
}

var kinds = []kind{
	{"kube-apiserver, three etcd members", func(b *bench, ctx context.Context, dir string) ([]*peer.Server, error) {
		return b.external(ctx, peer.KubeAPIServer, dir)
	}},
	{"gatehouse, three etcd members", func(b *bench, ctx context.Context, dir string) ([]*peer.Server, error) {
		return b.external(ctx, peer.Gatehouse, dir)
	}},
	{"gatehouse, three that joined", (*bench).joined},
}

type bench struct {
	programs peer.Binaries
	clients  int
	duration time.Duration
	// running are the processes of a kind, the last to end first, and joins the times of joins.
	running []*peer.Process
	joins   []time.Duration
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
	flag.Parse()
	if err := b.run(ctx, *module, *dir, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "joinbench:", err)
		os.Exit(1)
	}
}

func (b *bench) run(ctx context.Context, module, dir string, rounds int) error {
	var err error
	if b.programs, err = peer.Build(ctx, module, dir); err != nil {
		return err
	}
	if b.programs.Etcd, err = peer.BuildEtcd(ctx, module, dir); err != nil {
		return err
	}
	rates, cpus := make([][]float64, len(kinds)), make([][]float64, len(kinds))
	for round := range rounds {
		for i := range kinds {
			// The order changes, so that no kind is always the first.
			i = (i + round) % len(kinds)
			rate, cpu, err := b.measure(ctx, kinds[i])
			if err != nil {
				return fmt.Errorf("%s: %w", kinds[i].name, err)
			}
			rates[i], cpus[i] = append(rates[i], rate), append(cpus[i], cpu)
		}
	}
	fmt.Println("| three servers | creates a second | CPU of a create, ms |\n|---|---|---|")
	for i, k := range kinds {
		fmt.Printf("| %s | %s | %s |\n", k.name, spread(rates[i], "%.0f"), spread(cpus[i], "%.2f"))
	}
	var seconds []float64
	for _, j := range b.joins {
		seconds = append(seconds, j.Seconds())
	}
	fmt.Printf("\n%d joins took %s s each.\n", len(seconds), spread(seconds, "%.2f"))
	return nil
}

func spread(values []float64, format string) string {
	slices.Sort(values)
	return fmt.Sprintf(format+" ("+format+" to "+format+")", values[len(values)/2], values[0], values[len(values)-1])
}

// measure starts the servers of a kind, and returns creates a second and milliseconds of CPU for each.
func (b *bench) measure(ctx context.Context, k kind) (rate, cpu float64, err error) {
	dir, err := os.MkdirTemp("", "joinbench-")
	if err != nil {
		return 0, 0, err
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
		return 0, 0, err
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
		return 0, 0, err
	}
	before, err := b.cpu()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	n, err := create(b.duration)
	if err != nil || n == 0 {
		return 0, 0, errors.Join(errors.New("nothing was created"), err)
	}
	took := time.Since(began).Seconds()
	after, err := b.cpu()
	return float64(n) / took, (after - before).Seconds() * 1000 / float64(n), err
}

// cpu is the time that all processes have used.
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

// external starts servers on an etcd of as many members.
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

// joined starts servers of which the others join the first.
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
			b.joins = append(b.joins, time.Since(began))
			continue
		}
		text, err := exec.CommandContext(ctx, b.programs.Gatehouse, "cluster", "token", "create", "--uses", strconv.Itoa(servers-1), "--data-dir", filepath.Join(own, "data")).Output()
		if err == nil {
			err = os.WriteFile(token, text, 0o600)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
