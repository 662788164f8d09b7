// Envtestbench runs controller-runtime's envtest with the real kube-apiserver and etcd
// and with Gatehouse under their names, in alternating rounds. It prints a Markdown table
// of medians with the smallest and largest value: how long an environment takes to start
// and to stop, how long the suite of examples/operator takes, and the memory of
// kube-apiserver and etcd together, at its peak.
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
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
	"github.com/gatehouse-dev/gatehouse/bench/internal/report"
)

// options are the flags.
type options struct {
	module, binaries string
	rounds           int
	report           string
}

// side is a folder of programs for envtest.
type side struct {
	name, assets string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.module, "module", ".", "`directory` of the bench module")
	flag.StringVar(&o.binaries, "binaries", "", "`directory` of the programs (default: in the user's cache)")
	flag.IntVar(&o.rounds, "rounds", 5, "how many times each set of programs is measured")
	flag.StringVar(&o.report, "report", "", "`file` to write the table to, such as ../docs/benchmarks.md")
	flag.Parse()
	if err := o.run(ctx, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "envtestbench:", err)
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context, out, progress io.Writer) error {
	if o.rounds < 1 {
		return fmt.Errorf("-rounds: %d is not a number of rounds", o.rounds)
	}
	log.SetLogger(logr.Discard())
	if o.binaries == "" {
		dir, err := peer.Dir()
		if err != nil {
			return err
		}
		o.binaries = dir
	}
	assets, err := peer.BuildAssets(ctx, o.module, o.binaries)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "envtestbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	operator, err := filepath.Abs(filepath.Join(o.module, "..", "examples", "operator"))
	if err != nil {
		return err
	}
	suite := filepath.Join(dir, "operator.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", suite, ".")
	build.Dir = operator
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the suite: %w\n%s", err, text)
	}
	sides := []side{{"kube-apiserver and etcd", assets.Real}, {"gatehouse", assets.Gatehouse}}
	order := slices.Clone(sides)
	results := &report.Table{}
	for round := range o.rounds {
		for _, s := range order {
			fmt.Fprintf(progress, "round %d of %d: %s\n", round+1, o.rounds, s.name)
			if err := measureStart(s, operator, results); err != nil {
				return fmt.Errorf("%s, round %d: %w", s.name, round+1, err)
			}
			if err := measureSuite(ctx, s, operator, suite, results); err != nil {
				return fmt.Errorf("%s, round %d: the suite: %w", s.name, round+1, err)
			}
		}
		slices.Reverse(order)
	}
	var table strings.Builder
	results.Print(&table, []string{sides[0].name, sides[1].name})
	fmt.Fprint(out, table.String())
	if o.report == "" {
		return nil
	}
	command := fmt.Sprintf("cd bench && go run ./cmd/envtestbench --report ../docs/benchmarks.md --rounds %d", o.rounds)
	return report.Write(o.report, "envtestbench", "A suite with envtest", command, explanation+table.String())
}

// explanation stands above the table.
const explanation = `Medians, with the smallest and largest value. envtest is that of controller-runtime, with its defaults; the suite is
that of ` + "`examples/operator`" + `, built before. Ready is when Start of envtest returns, with the definition and the webhooks
of that operator installed. The memory is the resident memory of kube-apiserver and etcd together, at its peak. For Gatehouse
both are one program and share pages of it.

`

// measureStart starts and stops one environment with the definition and the webhooks of
// the operator.
func measureStart(s side, operator string, r *report.Table) (err error) {
	e := &envtest.Environment{
		BinaryAssetsDirectory: s.assets,
		CRDDirectoryPaths:     []string{filepath.Join(operator, "config", "crd")},
		ErrorIfCRDPathMissing: true,
		WebhookInstallOptions: envtest.WebhookInstallOptions{Paths: []string{filepath.Join(operator, "config", "webhook")}},
	}
	m := watchMemory(os.Getpid())
	began := time.Now()
	_, err = e.Start()
	ready := time.Since(began)
	began = time.Now()
	// A Start that failed may have started one of the two.
	err = errors.Join(err, e.Stop())
	stopped := time.Since(began)
	peak, memoryErr := m.Peak()
	if err = errors.Join(err, memoryErr); err != nil {
		return err
	}
	r.Add("Start, to ready", "s", s.name, ready.Seconds())
	r.Add("Stop", "s", s.name, stopped.Seconds())
	addMemory(r, s, "Start to Stop", peak)
	return nil
}

// measureSuite runs the suite of the operator, which starts and stops an environment.
func measureSuite(ctx context.Context, s side, operator, suite string, r *report.Table) error {
	cmd := exec.CommandContext(ctx, suite, "-test.v", "-test.count=1")
	cmd.Dir = operator
	cmd.Env = append(os.Environ(), "KUBEBUILDER_ASSETS="+s.assets)
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	m := watchMemory(cmd.Process.Pid)
	err := cmd.Wait()
	took := time.Since(began)
	peak, memoryErr := m.Peak()
	if err != nil || !strings.Contains(text.String(), "--- PASS: TestOperator") {
		return fmt.Errorf("it did not pass: %w\n%s", err, text.String())
	}
	if memoryErr != nil {
		return memoryErr
	}
	r.Add("suite, wall time", "s", s.name, took.Seconds())
	addMemory(r, s, "suite", peak)
	return nil
}

func addMemory(r *report.Table, s side, when string, peak usage) {
	r.Add(when+", peak memory", "MiB", s.name, mib(peak.shared))
	r.Add(when+", peak memory, shared pages counted twice", "MiB", s.name, mib(peak.resident))
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
