// Apiextensions runs upstream's integration tests of custom resources against gatehouse.
//
//	go run ./apiextensions
//	go run ./apiextensions -run 'TestRatchetingFunctionality|TestEtcdStorage'
//
// The tests are upstream's, unchanged, in the version of go.mod. All of them start their server with one function.
// The program replaces this function in a copy of the module, so that it starts gatehouse serve on an etcd of the
// suite. known.yaml lists the tests that fail or are left out, with the reasons. The program exits with 1 if another
// test fails, or if one of these passes.
package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/bench/internal/compare"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// module is upstream's module with the tests, and replaced is its file that starts a server.
const module, replaced = "k8s.io/apiextensions-apiserver", "pkg/cmd/server/testing/testserver.go"

// packages are the packages of tests.
var packages = []string{"test/integration", "test/integration/conversion"}

//go:embed testserver.go.txt
var starter []byte

//go:embed known.yaml
var knownText []byte

type options struct {
	compare.Options
	run string
}

// known is the content of known.yaml: reasons by the names of tests. The tests in Leave would end their test program.
type known struct {
	Fail  map[string]string `json:"fail"`
	Leave map[string]string `json:"leave"`
}

func main() {
	o := &options{Options: compare.Options{Name: "apiextensions", Rounds: 1}}
	flag.StringVar(&o.Module, "module", ".", "`directory` of the bench module")
	flag.StringVar(&o.Binaries, "binaries", "", "`directory` of the programs (default: in the user's cache)")
	flag.StringVar(&o.run, "run", "", "`regexp` of the names of tests (default: all)")
	o.Main(o.suite)
}

func (o *options) suite(ctx context.Context, out, progress io.Writer) (err error) {
	only, err := regexp.Compile(o.run)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	var k known
	if err := yaml.UnmarshalStrict(knownText, &k); err != nil {
		return fmt.Errorf("known.yaml: %w", err)
	}
	binaries, err := peer.Build(ctx, o.Module, o.Binaries)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "apiextensions-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	copied, err := o.copyModule(ctx, work)
	if err != nil {
		return err
	}
	etcd, url, err := startEtcd(ctx, binaries.Etcd, work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd()) }()
	results := map[string]string{}
	for _, name := range packages {
		// The tests use the name of their program as a field manager.
		program := filepath.Join(work, filepath.Base(name)+".test")
		build := exec.CommandContext(ctx, "go", "test", "-c", "-modfile", filepath.Join(work, "suite.mod"), "-o", program, module+"/"+name)
		build.Dir = o.Module
		if text, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", name, err, text)
		}
		suite := exec.CommandContext(ctx, program, "-test.v", "-test.timeout=2h", "-test.run", o.run,
			"-test.skip", "^("+strings.Join(slices.Sorted(maps.Keys(k.Leave)), "|")+")$")
		suite.Dir = filepath.Join(copied, name)
		suite.Env = append(os.Environ(), "GATEHOUSE_BINARY="+binaries.Gatehouse, "KUBE_INTEGRATION_ETCD_URL="+url)
		if err := watch(suite, progress, results); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return judge(out, results, k.Fail, only)
}

// copyModule copies upstream's module and replaces the function that starts a server. It writes suite.mod, which
// replaces the module by the copy.
func (o *options) copyModule(ctx context.Context, work string) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	list.Dir = o.Module
	from, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("finding %s: %w", module, err)
	}
	to := filepath.Join(work, "module")
	if err := os.CopyFS(to, os.DirFS(strings.TrimSpace(string(from)))); err != nil {
		return "", err
	}
	file := filepath.Join(to, replaced)
	if err := errors.Join(os.Remove(file), os.WriteFile(file, starter, 0o644)); err != nil {
		return "", err
	}
	for _, suffix := range []string{"mod", "sum"} {
		text, err := os.ReadFile(filepath.Join(o.Module, "go."+suffix))
		if err != nil {
			return "", err
		}
		// The module replaces Gatehouse by a relative path.
		parent, err := filepath.Abs(filepath.Join(o.Module, ".."))
		if err != nil {
			return "", err
		}
		text = bytes.ReplaceAll(text, []byte("=> ../\n"), []byte("=> "+parent+"\n"))
		if suffix == "mod" {
			text = fmt.Appendf(text, "\nreplace %s => %s\n", module, to)
		}
		if err := os.WriteFile(filepath.Join(work, "suite."+suffix), text, 0o644); err != nil {
			return "", err
		}
	}
	return to, nil
}

// startEtcd starts an etcd, and returns its URL and a function that stops it.
func startEtcd(ctx context.Context, program, work string) (end func() error, url string, err error) {
	etcd := exec.CommandContext(ctx, program, "-data-dir", filepath.Join(work, "etcd"))
	out, err := etcd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := etcd.Start(); err != nil {
		return nil, "", err
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	end = func() error {
		err := etcd.Process.Signal(os.Interrupt)
		_ = etcd.Wait()
		return err
	}
	_, url, ready := strings.Cut(strings.TrimSpace(line), "ready at ")
	if !ready {
		return nil, "", errors.Join(fmt.Errorf("etcd is not ready: %q", line), end())
	}
	return end, url, nil
}

var verdict = regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (\S+)`)

// watch runs a test program, prints its output, and records the results of its tests.
func watch(suite *exec.Cmd, progress io.Writer, results map[string]string) error {
	out, err := suite.StdoutPipe()
	if err != nil {
		return err
	}
	suite.Stderr = progress
	if err := suite.Start(); err != nil {
		return err
	}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		_, _ = io.WriteString(progress, line)
		if found := verdict.FindStringSubmatch(line); found != nil {
			results[found[2]] = found[1]
		}
		if err != nil {
			break
		}
	}
	var failed *exec.ExitError
	if err := suite.Wait(); err != nil && (!errors.As(err, &failed) || failed.ExitCode() != 1) {
		return err
	}
	return nil
}

// judge prints how many tests passed. It returns an error if the results and known disagree.
func judge(out io.Writer, results, known map[string]string, only *regexp.Regexp) error {
	counts, errs := map[string]int{}, []error(nil)
	for _, name := range slices.Sorted(maps.Keys(results)) {
		got, reason := results[name], known[name]
		counts[got]++
		switch {
		case got == "FAIL" && reason == "":
			errs = append(errs, fmt.Errorf("%s fails", name))
		case got == "PASS" && reason != "":
			errs = append(errs, fmt.Errorf("%s passes, although known.yaml has a reason why it fails", name))
		}
	}
	for name := range known {
		if _, there := results[name]; !there && only.MatchString(name) {
			errs = append(errs, fmt.Errorf("%s is in known.yaml, and was not run", name))
		}
	}
	if len(results) == 0 {
		errs = append(errs, errors.New("no test was run"))
	}
	fmt.Fprintf(out, "%d tests of %s pass, %d fail, %d are skipped by themselves\n", counts["PASS"], module, counts["FAIL"], counts["SKIP"])
	return errors.Join(errs...)
}
