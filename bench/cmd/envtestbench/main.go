// Envtestbench runs controller-runtime's envtest with the real kube-apiserver and etcd and with Gatehouse under their
// names, in alternating rounds. It prints a Markdown table of medians with the smallest and largest value: the time
// to start and to stop an environment, the time of the suite of examples/operator, the CPU time of both, and the peak
// memory of kube-apiserver and etcd together.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gatehouse-dev/gatehouse/bench/internal/compare"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
	"github.com/gatehouse-dev/gatehouse/bench/internal/report"
)

type options struct{ compare.Options }

func main() {
	o := options{compare.Options{Name: "envtestbench"}}
	o.AddFlags(5)
	o.Main(o.run)
}

// The sides, with their names in the table.
const (
	upstream  = "kube-apiserver and etcd"
	gatehouse = "gatehouse"
)

// measurement contains the programs under measurement, and the results.
type measurement struct {
	// assets are the directories of the programs, by side.
	assets map[string]string
	// operator is the directory of the operator, suite its compiled test.
	operator, suite string
	results         report.Table
}

func (o *options) run(ctx context.Context, out, progress io.Writer) error {
	log.SetLogger(logr.Discard())
	assets, err := peer.BuildAssets(ctx, o.Module, o.Binaries)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "envtestbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	m := &measurement{assets: map[string]string{}, suite: filepath.Join(dir, "operator.test")}
	for side, from := range map[string]string{upstream: assets.Real, gatehouse: assets.Gatehouse} {
		// Processes share the pages of a file. If other processes run the same program, a part of its pages would
		// count for them: use a copy.
		m.assets[side] = filepath.Join(dir, side)
		if err := copyPrograms(from, m.assets[side]); err != nil {
			return err
		}
	}
	if m.operator, err = filepath.Abs(filepath.Join(o.Module, "..", "examples", "operator")); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", m.suite, ".")
	build.Dir = m.operator
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the suite: %w\n%s", err, text)
	}
	sides := []string{upstream, gatehouse}
	err = compare.Alternate(&o.Options, progress, sides, func(side, _ string) error {
		if err := m.start(side); err != nil {
			return err
		}
		if err := m.runSuite(ctx, side); err != nil {
			return fmt.Errorf("the suite: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var table strings.Builder
	m.results.Print(&table, sides)
	return o.Finish(out, "A suite with envtest", explanation, table.String())
}

// explanation is printed above the table.
const explanation = `Medians, with the smallest and largest value. envtest is the package of controller-runtime, with its defaults; the suite is
` + "`examples/operator`" + `, built before. Ready is when Start of envtest returns, with the CRD and the webhooks
of that operator installed. The CPU time of a start includes kube-apiserver and etcd until ready; the CPU time of a suite also
includes its tests. The memory is the peak of kube-apiserver and etcd together: resident pages, with pages of a shared file
counted once. Without files, it is heaps and stacks. How much of a file is resident
depends on the kernel, and on how the file was written: here in pieces of 32 KiB, as programs unpack an archive.

`

// copyPrograms copies a directory of programs. Links within it stay links: all names of a program share its memory.
func copyPrograms(from, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		source, target := filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())
		if link, err := os.Readlink(source); err == nil && filepath.Base(link) == link {
			if err := os.Symlink(link, target); err != nil {
				return err
			}
			continue
		}
		if err := copyProgram(source, target); err != nil {
			return err
		}
	}
	return nil
}

// copyProgram copies a file in small pieces, as unpacking an archive does. The kernel may cache a file in pieces as
// large as the writes, and map a whole piece when a program touches one of its pages.
func copyProgram(source, target string) error {
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	// io.Copy between files would copy within the kernel.
	_, err = io.Copy(struct{ io.Writer }{out}, struct{ io.Reader }{in})
	return errors.Join(err, out.Close())
}

// start starts and stops one environment with the CRD and the webhooks of the operator.
func (m *measurement) start(side string) (err error) {
	e := &envtest.Environment{
		BinaryAssetsDirectory: m.assets[side],
		CRDDirectoryPaths:     []string{filepath.Join(m.operator, "config", "crd")},
		ErrorIfCRDPathMissing: true,
		WebhookInstallOptions: envtest.WebhookInstallOptions{Paths: []string{filepath.Join(m.operator, "config", "webhook")}},
	}
	memory := watchMemory(os.Getpid())
	began := time.Now()
	_, err = e.Start()
	ready, cpu := time.Since(began), used("/proc", os.Getpid()).cpu
	began = time.Now()
	// A Start that failed may have started one of the two programs.
	err = errors.Join(err, e.Stop())
	stopped := time.Since(began)
	peak, memoryErr := memory.Peak()
	if err = errors.Join(err, memoryErr); err != nil {
		return err
	}
	m.results.Add("Start, to ready", "s", side, ready.Seconds())
	m.results.Add("Start, CPU time", "s", side, cpu.Seconds())
	m.results.Add("Stop", "s", side, stopped.Seconds())
	m.results.Add("Start to Stop, peak memory", "MiB", side, mib(peak.memory))
	m.results.Add("Start to Stop, peak memory without files", "MiB", side, mib(peak.own))
	return nil
}

// runSuite runs the suite of the operator, which starts and stops an environment.
func (m *measurement) runSuite(ctx context.Context, side string) error {
	cmd := exec.CommandContext(ctx, m.suite, "-test.v", "-test.count=1")
	cmd.Dir = m.operator
	cmd.Env = append(os.Environ(), "KUBEBUILDER_ASSETS="+m.assets[side])
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	memory := watchMemory(cmd.Process.Pid)
	err := cmd.Wait()
	took := time.Since(began)
	peak, memoryErr := memory.Peak()
	if err != nil || !strings.Contains(text.String(), "--- PASS: TestOperator") {
		return fmt.Errorf("it did not pass: %w\n%s", err, text.String())
	}
	if memoryErr != nil {
		return memoryErr
	}
	m.results.Add("suite, wall time", "s", side, took.Seconds())
	// The CPU time of a process includes the children that it has waited for.
	m.results.Add("suite, CPU time", "s", side, (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
	m.results.Add("suite, peak memory", "MiB", side, mib(peak.memory))
	m.results.Add("suite, peak memory without files", "MiB", side, mib(peak.own))
	return nil
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
