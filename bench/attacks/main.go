// Attacks attacks kube-apiserver and gatehouse like a hostile user or webhook, and measures the effect on another
// user. While an attack runs, a bystander creates ConfigMaps. The table shows how long these creates took, the peak
// memory and the CPU time of the attacked process, and whether it survived.
//
//	go run ./attacks
//	go run ./attacks -run patches -servers gatehouse,other
//
// Each attack is in a separate file. The init function of the file registers the attack.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/bench/internal/compare"
	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// attack is one way to harm a server.
type attack struct {
	// name is the attack's name on the command line, and about describes it in a sentence.
	name, about string
	// only lists the kinds of servers to attack; empty means all.
	only []peer.Kind
	// flags are additional flags of the server.
	flags []string
	// bystander returns the next request of the bystander; nil means the creation of a ConfigMap.
	bystander func() load.Request
	// notice, if set, replaces the bystander's requests to the server.
	notice func(ctx context.Context) error
	// prepare prepares the attack before the measurements; nil means nothing to prepare.
	prepare func(ctx context.Context, t *target) error
	// strike attacks once. It returns when all requests of the attack have ended. It returns an error if the attack
	// was not possible; a rejection, or a crashed server, is not an error.
	strike func(ctx context.Context, t *target) error
}

// attacks contains the registered attacks by name.
var attacks = map[string]attack{}

// register adds an attack to the table.
func register(a attack) { attacks[a.name] = a }

// kinds maps the names of the servers on the command line to their kinds.
var kinds = map[string]peer.Kind{"kube-apiserver": peer.KubeAPIServer, "gatehouse": peer.GatehouseEmbedded, "other": peer.GatehouseOther}

type options struct {
	compare.Options
	run     *regexp.Regexp
	servers []peer.Kind
	quiet   time.Duration
	strikes int
	memory  int64
}

func main() {
	o := &options{Options: compare.Options{Name: "attacks"}}
	flag.StringVar(&o.Module, "module", ".", "`directory` of the bench module")
	flag.StringVar(&o.Binaries, "binaries", "", "`directory` of the programs (default: in the user's cache)")
	flag.IntVar(&o.Rounds, "rounds", 1, "how many times each server is attacked")
	flag.DurationVar(&o.quiet, "quiet", 5*time.Second, "how long the bystander is measured without an attack")
	flag.IntVar(&o.strikes, "strikes", 3, "how many times an attack strikes in a row")
	flag.Int64Var(&o.memory, "memory", 6<<30, "resident `bytes` at which a server counts as out of memory, and is killed")
	run := flag.String("run", "", "`regexp` of the names of attacks (default: all)")
	servers := flag.String("servers", "kube-apiserver,gatehouse", "`list` of kube-apiserver, gatehouse, and other: the program that GATEHOUSE_OTHER names")
	o.Main(func(ctx context.Context, out, progress io.Writer) (err error) {
		if o.run, err = regexp.Compile(*run); err != nil {
			return fmt.Errorf("-run: %w", err)
		}
		for name := range strings.SplitSeq(*servers, ",") {
			kind, known := kinds[name]
			if !known {
				return fmt.Errorf("-servers: %q is not one of %s", name, strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
			}
			o.servers = append(o.servers, kind)
		}
		return o.attack(ctx, out, progress)
	})
}

func (o *options) attack(ctx context.Context, out, progress io.Writer) error {
	b, err := peer.Build(ctx, o.Module, o.Binaries)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "| attack | server | memory before, at most (MiB) | CPU (s) | creates: p99 without (ms) | p50, p99, longest with (ms) | creates that failed | answers to the attack | end |\n|---|---|---|---|---|---|---|---|")
	for _, name := range slices.Sorted(maps.Keys(attacks)) {
		a := attacks[name]
		if !o.run.MatchString(name) {
			continue
		}
		fmt.Fprintf(progress, "%s: %s\n", name, a.about)
		sides := slices.DeleteFunc(slices.Clone(o.servers), func(k peer.Kind) bool { return len(a.only) > 0 && !slices.Contains(a.only, k) })
		if err := compare.Alternate(&o.Options, progress, sides, func(kind peer.Kind, dir string) error {
			row, err := o.measure(ctx, b, a, kind, dir)
			if err == nil {
				fmt.Fprintf(out, "| %s | %s | %s |\n", name, kind, row)
			}
			return err
		}); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// target is a server under attack.
type target struct {
	*peer.Server
	// client has the credentials of the administrator.
	client kubernetes.Interface
	// bystander and notice are the fields of the attack.
	bystander func() load.Request
	notice    func(ctx context.Context) error
	// process is the process under attack: the server, or a process that prepare has started.
	process  *peer.Process
	binaries peer.Binaries

	mu struct {
		sync.Mutex
		answers map[string]int
		ends    []func()
	}
}

// answered counts an answer to the attack by its status, or the error of a request without an answer.
func (t *target) answered(err error) {
	what, refused := "no answer", (*load.Refused)(nil)
	switch {
	case err == nil:
		what = "2xx"
	case errors.As(err, &refused):
		what = fmt.Sprint(refused.Code)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.answers[what]++
}

// atEnd registers f to be called when the server is stopped.
func (t *target) atEnd(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.ends = append(t.mu.ends, f)
}

// each sends n concurrent requests, and counts their answers. of returns the request with a number.
func (t *target) each(ctx context.Context, n int, of func(i int) load.Request) error {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			c := load.NewClient(t.Server)
			defer c.Close()
			t.answered(c.Do(ctx, of(i), io.Discard))
		})
	}
	all.Wait()
	return ctx.Err()
}

// attacker and bystander are users with write access to the namespace default.
const attacker, bystander = "attacker", "bystander"

// measure attacks a new server, and returns the columns of the table.
func (o *options) measure(ctx context.Context, b peer.Binaries, a attack, kind peer.Kind, dir string) (row string, err error) {
	server, err := peer.Start(ctx, b, kind, dir, a.flags...)
	if err != nil {
		return "", err
	}
	stopped := false
	defer func() {
		if !stopped {
			_ = server.Stop()
		}
	}()
	t := &target{Server: server, bystander: a.bystander, notice: a.notice, process: server.Process, binaries: b}
	t.mu.answers = map[string]int{}
	defer func() {
		for _, end := range t.mu.ends {
			end()
		}
	}()
	if t.client, err = kubernetes.NewForConfig(server.Config); err != nil {
		return "", err
	}
	// On a kube-apiserver without a kube-controller-manager, the roles edit and admin are empty.
	if _, err := t.client.RbacV1().Roles("default").Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "writers"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	if _, err := t.client.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "writers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "writers"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: attacker}, {APIGroup: rbacv1.GroupName, Kind: "User", Name: bystander}},
	}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	if a.prepare != nil {
		if err := a.prepare(ctx, t); err != nil {
			return "", err
		}
	}
	// New rights take effect with a delay, and a server that has just started is busy.
	time.Sleep(3 * time.Second)
	quiet := watch(ctx, t, o.memory)
	time.Sleep(o.quiet)
	before := quiet.end()
	if len(before.failed) > 0 {
		return "", fmt.Errorf("creates fail without an attack: %v", before.failed)
	}
	loud := watch(ctx, t, o.memory)
	for range o.strikes {
		if err := a.strike(ctx, t); err != nil {
			loud.end()
			return "", err
		}
	}
	after := loud.end()
	end := "survived"
	switch _, gone := t.process.RSS(); {
	case after.killed:
		end = fmt.Sprintf("out of memory: more than %d MiB", o.memory>>20)
	case gone != nil:
		end = "the server ended"
	}
	began := time.Now()
	stopped = true
	if err := server.Stop(); err != nil {
		end += "; did not end by SIGTERM"
	} else if end == "survived" {
		end += fmt.Sprintf("; SIGTERM took %.1f s", time.Since(began).Seconds())
	}
	var answers []string
	for _, what := range slices.Sorted(maps.Keys(t.mu.answers)) {
		answers = append(answers, fmt.Sprintf("%d × %s", t.mu.answers[what], what))
	}
	return fmt.Sprintf("%d, %d | %.1f | %.0f | %.0f, %.0f, %.0f | %d of %d | %s | %s", before.peak>>20, after.peak>>20, after.cpu.Seconds(), before.percentile(99),
		after.percentile(50), after.percentile(99), after.percentile(100), len(after.failed), len(after.failed)+len(after.took),
		strings.Join(answers, ", "), end), nil
}

// observed contains the observations of the bystander.
type observed struct {
	// took are the durations of the successful creates, in ascending order.
	took   []time.Duration
	failed []error
	// peak is the peak of the resident memory, in bytes. killed reports whether the process was killed for using too
	// much.
	peak   int64
	killed bool
	// cpu is the CPU time of the process.
	cpu time.Duration
}

// percentile returns a percentile of the durations, in milliseconds; 0 without any.
func (o *observed) percentile(p int) float64 {
	if len(o.took) == 0 {
		return 0
	}
	return float64(o.took[(len(o.took)-1)*p/100].Microseconds()) / 1000
}

const (
	// pace is the time between two creates of the bystander. A create does not wait for earlier ones.
	pace = 100 * time.Millisecond
	// patience is the timeout of the bystander's creates.
	patience = time.Minute
	// sampling is the interval of the memory measurements.
	sampling = 20 * time.Millisecond
)

// watcher runs the bystander.
type watcher struct {
	stop context.CancelFunc
	work sync.WaitGroup
	mu   sync.Mutex
	observed
}

// watch starts the bystander, which creates ConfigMaps at a steady pace, and measures the server, until end.
func watch(ctx context.Context, t *target, most int64) *watcher {
	w := &watcher{}
	ctx, w.stop = context.WithCancel(ctx)
	_ = t.process.ForgetPeak()
	began, _ := t.process.CPU()
	w.work.Go(func() {
		for every(ctx, sampling) {
			now, err := t.process.RSS()
			if err != nil {
				return
			}
			peak, _ := t.process.Peak()
			cpu, _ := t.process.CPU()
			w.mu.Lock()
			w.peak = max(w.peak, now, peak)
			w.cpu = max(w.cpu, cpu-began)
			if now > most && !w.killed {
				w.killed = true
				t.process.Kill()
			}
			w.mu.Unlock()
		}
	})
	w.work.Go(func() {
		for every(ctx, pace) {
			w.work.Go(func() { w.create(t) })
		}
	})
	return w
}

// every waits, and reports whether the context is still active.
func every(ctx context.Context, wait time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}

// create creates a ConfigMap, and records the duration.
func (w *watcher) create(t *target) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := load.NewClient(t.Server)
	defer c.Close()
	r := load.ConfigMap.Create()
	r.As = bystander
	if t.bystander != nil {
		r = t.bystander()
	}
	began := time.Now()
	var err error
	if t.notice != nil {
		err = t.notice(ctx)
	} else {
		err = c.Do(ctx, r, io.Discard)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.failed = append(w.failed, err)
		return
	}
	w.took = append(w.took, time.Since(began))
}

// end stops the bystander, and returns the observations when the last create is answered.
func (w *watcher) end() *observed {
	w.stop()
	w.work.Wait()
	slices.SortFunc(w.took, cmp.Compare[time.Duration])
	return &w.observed
}

// post returns a request of the attacker.
func post(path, body string) load.Request {
	return load.Request{Method: http.MethodPost, Path: path, Body: body, As: attacker}
}
