// Enginebench runs the benchmarks of package engine in alternating rounds, so that both sides are disturbed equally,
// and compares upstream with gatehouse using benchstat, which it downloads.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
	"github.com/gatehouse-dev/gatehouse/bench/internal/report"
)

// benchstat is the tool and its version.
const benchstat = "golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	rounds := flag.Int("rounds", 10, "how often everything is run")
	bench := flag.String("bench", ".", "only benchmarks that match this `regexp`")
	benchtime := flag.String("benchtime", "500ms", "how long each is run in a round")
	out := flag.String("report", "", "`file` to write the comparison to, such as results/benchmarks.md")
	flag.Parse()
	if err := run(ctx, *rounds, *bench, *benchtime, *out); err != nil {
		fmt.Fprintln(os.Stderr, "enginebench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, bench, benchtime, out string) error {
	dir, err := os.MkdirTemp("", "enginebench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	webhook, err := peer.BuildWebhook(ctx, ".", dir)
	if err != nil {
		return err
	}
	tests := filepath.Join(dir, "engine.test")
	if _, err := output(ctx, ".", "go", "test", "-c", "-o", tests, "./engine"); err != nil {
		return err
	}
	var all bytes.Buffer
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, rounds)
		text, err := output(ctx, "engine", tests, "-webhook", webhook,
			"-test.run", "^$", "-test.bench", bench, "-test.benchtime", benchtime, "-test.timeout", "30m")
		if err != nil {
			return err
		}
		all.Write(text)
	}
	results := filepath.Join(dir, "results.txt")
	if err := os.WriteFile(results, all.Bytes(), 0o644); err != nil {
		return err
	}
	table, err := output(ctx, dir, "go", "run", benchstat, "-col", "/side", results)
	if err != nil {
		return err
	}
	fmt.Printf("%s", table)
	if out == "" {
		return nil
	}
	command := fmt.Sprintf("cd bench && go run ./cmd/enginebench --rounds %d --bench %s --benchtime %s --report results/benchmarks.md",
		rounds, strconv.Quote(bench), benchtime)
	return report.Write(out, "enginebench", "The engine compared with upstream's webhook plugins", command, explanation+"```\n"+strings.TrimSpace(string(table))+"\n```\n")
}

// explanation is printed above the table.
const explanation = `Both run in the same process behind the same interface: k8s.io/apiserver's MutatingAdmissionWebhook and
ValidatingAdmissionWebhook, and Gatehouse's, each in a chain with metrics, judging the creation of a ConfigMap in both
passes. The webhooks are another process, reached over TLS on the loopback device; on so few cores it takes its share
of the time, so the CPU time of the caller's process (cpu-sec/op) says more about the caller than the time does. In
NoneMatches all hooks are for other resources, and the plugins run alone, on one request; InChain adds the metrics, which
are the library's on both sides, and a new request with a new object each time. In Slow ten mutating hooks change nothing
and take 5 ms each. The column bare is the floor: as many round trips of about as many bytes by net/http, and nothing
else. Connections are HTTP/1.1, which both sides use for every webhook whose address is not a loopback one.

`

func output(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", filepath.Base(name), err, out, stderr.Bytes())
	}
	return out, nil
}
