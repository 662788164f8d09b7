// Recordbench measures the latency that gatehouse record adds to creates of a kube-apiserver under load, and kills
// and freezes the recorder at many moments. It exits with 1 if a request fails, or if the server still calls a
// recorder ten seconds after the recorder has ended.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/bench/internal/compare"
	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

func main() {
	b := &bench{Options: compare.Options{Name: "recordbench"}}
	b.AddFlags(4)
	flag.DurationVar(&b.duration, "duration", 10*time.Second, "how long each side of a round is under load")
	flag.IntVar(&b.clients, "clients", 2, "how many clients create objects")
	flag.DurationVar(&b.pause, "pause", 5*time.Millisecond, "how long a client waits between creates")
	flag.IntVar(&b.moments, "moments", 20, "at how many moments the recorder is killed or frozen")
	flag.Uint64Var(&b.seed, "seed", 1, "seed of the moments")
	b.Main(b.run)
}

const (
	// goneWithin is the time during which a recorder that has ended may delay requests.
	goneWithin = 10 * time.Second
	// slow is the duration of a create that waited for a webhook: the timeout of the webhook is a second.
	slow = 900 * time.Millisecond
)

type bench struct {
	compare.Options
	duration, pause  time.Duration
	clients, moments int
	seed             uint64

	dir, kubeconfig, program string
	server                   *peer.Server
	client                   kubernetes.Interface
	out                      io.Writer
}

func (b *bench) run(ctx context.Context, out, _ io.Writer) (err error) {
	binaries, err := peer.Build(ctx, b.Module, b.Binaries)
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "recordbench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	b.program, b.out = binaries.Gatehouse, out
	if b.server, err = peer.Start(ctx, binaries, peer.KubeAPIServer, filepath.Join(b.dir, "server")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.server.Stop()) }()
	if b.kubeconfig, err = b.server.WriteKubeconfig(b.dir); err != nil {
		return err
	}
	if b.client, err = kubernetes.NewForConfig(b.server.Config); err != nil {
		return err
	}
	if err := b.latency(ctx); err != nil {
		return err
	}
	return b.ends(ctx)
}

// latency measures creates with and without a recorder, in turns.
func (b *bench) latency(ctx context.Context) error {
	var took [2][]time.Duration
	for round := range b.Rounds {
		for turn := range 2 {
			with := (round + turn) % 2
			var r *recorder
			if with == 1 {
				var err error
				if r, err = b.start(ctx, true); err != nil {
					return err
				}
			}
			l := b.load(ctx)
			select {
			case <-time.After(b.duration):
			case <-ctx.Done():
			}
			list, err := l.end()
			if err != nil {
				return err
			}
			if r != nil {
				if err := r.interrupt(); err != nil {
					return err
				}
				if n := r.recorded(); n < len(list) {
					return fmt.Errorf("%d creates, %d recorded", len(list), n)
				}
			}
			for i := range list {
				took[with] = append(took[with], list[i].took)
			}
		}
	}
	for with, name := range []string{"without a recorder", "with a recorder"} {
		slices.Sort(took[with])
		fmt.Fprintf(b.out, "%-18s  %6d creates, p50 %s, p99 %s\n", name, len(took[with]), at(took[with], 50), at(took[with], 99))
	}
	return nil
}

func at(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)-1)*percent/100].Round(10 * time.Microsecond)
}

// ends kills and freezes recorders under load.
func (b *bench) ends(ctx context.Context) error {
	random := rand.New(rand.NewPCG(b.seed, 0))
	var wrong []error
	for i := range b.moments {
		how := []string{"killed", "killed", "killed with its guard", "frozen with its guard"}[i%4]
		after := time.Duration(random.IntN(4000)) * time.Millisecond
		l := b.load(ctx)
		// In half of the cases, the recorder is still starting.
		records, from := i/4%2 == 1, "its start"
		if records {
			from = "it records"
		}
		r, err := b.start(ctx, records)
		if err != nil {
			return err
		}
		select {
		case <-time.After(after):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		guard := r.guard()
		switch how {
		case "killed with its guard":
			guard.signal(syscall.SIGKILL)
			fallthrough
		case "killed":
			_ = r.cmd.Process.Kill()
		default:
			// A stopped process accepts connections and never answers, like an unreachable machine.
			guard.signal(syscall.SIGSTOP)
			_ = r.cmd.Process.Signal(syscall.SIGSTOP)
		}
		gone := time.Now()
		select {
		case <-time.After(goneWithin):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		before, err := b.calls(ctx)
		if err != nil {
			return err
		}
		select {
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		later, err := b.calls(ctx)
		if err != nil {
			return err
		}
		list, err := l.end()
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s after %s: a request failed: %w", how, after, err))
		}
		var last, slowest time.Duration
		delayed := 0
		for _, c := range list {
			if end := c.at.Add(c.took).Sub(gone); c.took >= slow && end > 0 {
				delayed++
				last = max(last, end)
			}
			slowest = max(slowest, c.took)
		}
		left, err := b.left(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(b.out, "%s %s after %s: %d creates, %d of %s and more, the last one until %s later, the slowest %s; calls after %s: %g; registrations left: %d\n",
			how, after, from, len(list), delayed, slow, last.Round(time.Millisecond), slowest.Round(time.Millisecond), goneWithin, later-before, left)
		if later > before {
			wrong = append(wrong, fmt.Errorf("%s after %s: the recorder is called %s later", how, after, goneWithin))
		}
		if how == "killed" && left > 0 {
			wrong = append(wrong, fmt.Errorf("%s after %s: the registration is still there", how, after))
		}
		_ = r.cmd.Process.Kill()
		guard.signal(syscall.SIGCONT)
		r.wait()
		if err := b.client.AdmissionregistrationV1().MutatingWebhookConfigurations().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: label}); err != nil {
			return err
		}
	}
	return errors.Join(wrong...)
}

// label is the label of the webhook configurations of recorders.
const label = "gatehouse.dev/recorder=true"

func (b *bench) left(ctx context.Context) (int, error) {
	list, err := b.client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return 0, err
	}
	return len(list.Items), nil
}

// calls returns how many times the server has called, or tried to call, a recorder.
func (b *bench) calls(ctx context.Context) (sum float64, err error) {
	data, err := b.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "apiserver_admission_webhook_admission_duration_seconds_count{") || !strings.Contains(line, `name="record.gatehouse.dev"`) {
			continue
		}
		_, text, _ := strings.Cut(strings.TrimSpace(line), "} ")
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// create is a create with its time and duration.
type create struct {
	at   time.Time
	took time.Duration
}

// loaded is a running load.
type loaded struct {
	stop chan struct{}
	done chan error
	mu   sync.Mutex
	list []create
}

// load creates objects until it is stopped.
func (b *bench) load(ctx context.Context) *loaded {
	l := &loaded{stop: make(chan struct{}), done: make(chan error, 1)}
	go func() {
		_, err := load.Loop(ctx, b.server, b.clients, func(ctx context.Context, c *load.Client, _ int) (bool, error) {
			select {
			case <-l.stop:
				return false, nil
			case <-time.After(b.pause):
			}
			began := time.Now()
			if err := c.Do(ctx, load.ConfigMap.Create(), io.Discard); err != nil {
				return false, err
			}
			took := time.Since(began)
			l.mu.Lock()
			l.list = append(l.list, create{began, took})
			l.mu.Unlock()
			return true, nil
		})
		l.done <- err
	}()
	return l
}

func (l *loaded) end() ([]create, error) {
	close(l.stop)
	err := <-l.done
	return l.list, err
}

// recorder is a gatehouse record process.
type recorder struct {
	cmd   *exec.Cmd
	lines chan string
	last  string
}

// start starts a recorder. If ready is set, it waits until the recorder records.
func (b *bench) start(ctx context.Context, ready bool) (*recorder, error) {
	dir, err := os.MkdirTemp(b.dir, "requests-")
	if err != nil {
		return nil, err
	}
	r := &recorder{cmd: exec.Command(b.program, "record", "--kubeconfig", b.kubeconfig, "--output", dir, "--namespaces", "default"), lines: make(chan string, 10)}
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	r.cmd.Stdout = in
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	in.Close()
	go func() {
		defer close(r.lines)
		defer out.Close()
		for s := bufio.NewScanner(out); s.Scan(); {
			r.lines <- s.Text()
		}
	}()
	if !ready {
		return r, nil
	}
	select {
	case _, ok := <-r.lines:
		if ok {
			return r, nil
		}
	case <-time.After(time.Minute):
	case <-ctx.Done():
	}
	_ = r.cmd.Process.Kill()
	return nil, errors.New("the recorder does not record")
}

// interrupt ends a recorder as Ctrl-C does.
func (r *recorder) interrupt() error {
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	r.wait()
	if code := r.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the recorder ends with %d", code)
	}
	return nil
}

func (r *recorder) wait() {
	for line := range r.lines {
		r.last = line
	}
	_ = r.cmd.Wait()
}

// recorded returns the number of recorded requests in the last line of the recorder's output.
func (r *recorder) recorded() int {
	text, _, _ := strings.Cut(r.last, " ")
	n, _ := strconv.Atoi(text)
	return n
}

// guard is the process that a recorder has started; 0 if it has not started one yet.
type guard int

func (r *recorder) guard() guard {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", r.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		text, _, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
		if n, err := strconv.Atoi(text); err == nil {
			return guard(n)
		}
	}
	return 0
}

func (g guard) signal(s syscall.Signal) {
	if g > 0 {
		_ = syscall.Kill(int(g), s)
	}
}
