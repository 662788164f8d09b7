// Conformance runs the specs of Kubernetes' end-to-end suite that need no kubelet against Gatehouse, and writes a
// document from the report.
//
//	go run . -write conformance.md
//
// The suite is upstream's, unchanged, in the version of go.mod. specs.yaml lists the specs to run, the reasons why
// others are not run, and the reasons why some fail. The program exits with 1 if a spec fails without a reason, or
// passes although there is a reason.
//
// Building the suite takes minutes on two cores, and running it a quarter of an hour: most specs wait most of their
// time.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/onsi/ginkgo/v2/types"
)

// release is the release of Kubernetes whose suite is run.
const release = "v1.37.2"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	var (
		dir   = flag.String("dir", filepath.Join(cache, "gatehouse-conformance"), "directory for the programs; the suite is built only if it is missing there")
		procs = flag.Int("procs", 8, "number of specs that run at the same time")
		limit = flag.Duration("limit", 2*time.Hour, "time after which no spec is started any more")
		focus = flag.String("focus", "", "regular expression of the specs to run")
		write = flag.String("write", "", "file to write the document to")
		read  = flag.String("read", "", "report of an earlier run to evaluate, instead of running")
	)
	flag.Parse()
	choice, err := load("specs.yaml")
	if err != nil {
		return err
	}
	report := *read
	if report == "" {
		programs, err := build(ctx, *dir)
		if err != nil {
			return err
		}
		report = filepath.Join(*dir, "report.json")
		if err := programs.run(ctx, choice, *focus, *procs, *limit, report); err != nil {
			return err
		}
	}
	specs, err := readReport(report)
	if err != nil {
		return err
	}
	outcome := choice.judge(specs, *focus)
	if *write != "" {
		if err := os.WriteFile(*write, outcome.document(), 0o644); err != nil {
			return err
		}
	}
	outcome.print(os.Stdout)
	return outcome.err()
}

// programs are the paths of programs.
type programs struct {
	suite, ginkgo, gatehouse, kubectl string
}

// build builds the programs into dir.
func build(ctx context.Context, dir string) (programs, error) {
	p := programs{
		suite:     filepath.Join(dir, "e2e.test"),
		ginkgo:    filepath.Join(dir, "ginkgo"),
		gatehouse: filepath.Join(dir, "gatehouse"),
		kubectl:   filepath.Join(dir, "assets", "kubectl"),
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return programs{}, err
	}
	steps := [][]string{
		{"go", "build", "-C", filepath.Join("..", ".."), "-ldflags=-w", "-o", p.gatehouse, "./cmd/gatehouse"},
		{p.gatehouse, "envtest", "install", filepath.Dir(p.kubectl)},
	}
	if _, err := os.Stat(p.suite); errors.Is(err, os.ErrNotExist) {
		steps = append(steps,
			[]string{"go", "build", "-o", p.ginkgo, "github.com/onsi/ginkgo/v2/ginkgo"},
			[]string{"go", "test", "-c", "-ldflags", "-s -w -X k8s.io/component-base/version.gitVersion=" + release, "-o", p.suite, "k8s.io/kubernetes/test/e2e"})
	}
	for _, step := range steps {
		cmd := exec.CommandContext(ctx, step[0], step[1:]...)
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return programs{}, fmt.Errorf("%s: %w", strings.Join(step, " "), err)
		}
	}
	return p, nil
}

// run runs the chosen specs against a new server and writes ginkgo's report. It returns no error for specs that fail.
func (p programs) run(ctx context.Context, c *choice, focus string, procs int, limit time.Duration, report string) (err error) {
	data, err := os.MkdirTemp("", "gatehouse-conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(data)
	server, err := p.serve(ctx, data, c.Serve)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	// Stop if the server ends: every spec would fail, each after minutes.
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	go func() {
		<-server.ended
		abort(fmt.Errorf("gatehouse serve has ended, see gatehouse.log: %v", server.err))
	}()

	if err := os.Remove(report); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	args := []string{
		"--procs", strconv.Itoa(procs), "--timeout", limit.String(), "--keep-going", "--silence-skips", "--no-color",
		"--output-dir", filepath.Dir(report), "--json-report", filepath.Base(report),
		"--skip", strings.Join(c.left(), "|"),
	}
	for _, f := range c.focuses(focus) {
		args = append(args, "--focus", f)
	}
	args = append(args, p.suite, "--",
		"--kubeconfig", server.kubeconfig, "--kubectl-path", p.kubectl, "--provider", "skeleton",
		// Do not wait for nodes: there are none.
		"--num-nodes", "1", "--allowed-not-ready-nodes", "-1", "--dump-logs-on-failure=false")
	cmd := exec.CommandContext(ctx, p.ginkgo, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	var failed *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &failed) {
		return err
	}
	return context.Cause(ctx)
}

// server is a running gatehouse.
type server struct {
	kubeconfig string
	process    *exec.Cmd
	// ended is closed when the process has ended, with err.
	ended chan struct{}
	err   error
}

// serve starts a server and returns when it is ready.
func (p programs) serve(ctx context.Context, data string, flags []string) (*server, error) {
	s := &server{kubeconfig: filepath.Join(data, "admin.kubeconfig"), ended: make(chan struct{})}
	log, err := os.Create(filepath.Join(filepath.Dir(p.gatehouse), "gatehouse.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s.process = exec.Command(p.gatehouse, append([]string{"serve", "--data-dir", data, "--secure-port", "0"}, flags...)...)
	s.process.Stdout, s.process.Stderr = log, log
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	go func() {
		s.err = s.process.Wait()
		close(s.ended)
	}()
	// kubectl waits for the API; the loop waits for the kubeconfig, which is written first.
	for ctx.Err() == nil {
		select {
		case <-s.ended:
			return nil, fmt.Errorf("gatehouse serve has ended, see %s: %v", log.Name(), s.err)
		case <-time.After(200 * time.Millisecond):
		}
		ready := exec.CommandContext(ctx, p.kubectl, "--kubeconfig", s.kubeconfig, "get", "--raw", "/readyz")
		if ready.Run() == nil {
			return s, nil
		}
	}
	return nil, errors.Join(ctx.Err(), s.stop())
}

// stop stops the server.
func (s *server) stop() error {
	if err := s.process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.ended:
		return s.err
	case <-time.After(time.Minute):
		return errors.Join(errors.New("gatehouse serve does not end"), s.process.Process.Kill())
	}
}

// readReport reads the specs of a report.
func readReport(file string) (types.SpecReports, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var reports []types.Report
	if err := json.Unmarshal(data, &reports); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(reports) != 1 {
		return nil, fmt.Errorf("%s: %d suites, want 1", file, len(reports))
	}
	return reports[0].SpecReports, nil
}
