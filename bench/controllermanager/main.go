package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

var errFailed = errors.New("not all checks passed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	binaries := flag.String("binaries", "", "`directory` of the programs (default: in the user's cache)")
	flag.Parse()
	if err := run(ctx, os.Stdout, *binaries); err != nil {
		fmt.Fprintln(os.Stderr, "controllermanager:", err)
		os.Exit(1)
	}
}

// rounds contain the flags that select the controllers of gatehouse.
var rounds = []struct{ name, flag string }{
	{"ours off", "--controllers=-*"},
	{"both on", "--controllers=+deployment,+replicaset,+job"},
}

func run(ctx context.Context, out io.Writer, binaries string) (err error) {
	b, err := peer.Build(ctx, ".", binaries)
	if err != nil {
		return err
	}
	manager, err := peer.BuildControllerManager(ctx, ".", binaries)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "controllermanager-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	failed := false
	for _, r := range rounds {
		outcome, err := play(ctx, b, manager, filepath.Join(dir, strings.ReplaceAll(r.name, " ", "-")), r.flag)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		fmt.Fprintf(out, "%s (%s)\n", r.name, r.flag)
		failed = outcome.print(out) || failed
	}
	if failed {
		return errFailed
	}
	return nil
}

// outcome is the result of a round.
type outcome struct {
	took   []time.Duration
	errs   []error
	logged []string
}

// play starts a server and a kube-controller-manager, and runs all checks.
func play(ctx context.Context, b peer.Binaries, manager, dir, flag string) (_ *outcome, err error) {
	s, err := peer.Start(ctx, b, peer.GatehouseEmbedded, dir, flag)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	process, err := peer.StartControllerManager(manager, s, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, process.Stop()) }()
	w, err := newWorld(ctx, s.Config, filepath.Join(dir, "tls.crt"))
	if err != nil {
		return nil, err
	}
	o := &outcome{}
	for _, c := range checks {
		began := time.Now()
		o.errs = append(o.errs, c.run(w))
		o.took = append(o.took, time.Since(began))
	}
	log, err := process.Log()
	o.logged = serious(log)
	return o, err
}

// serious returns the messages of the errors in a log, each once.
func serious(log string) []string {
	var list []string
	for _, line := range regexp.MustCompile(`(?m)^E\d{4} .*$`).FindAllString(log, -1) {
		_, text, _ := strings.Cut(line, "] ")
		if !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return list
}

// print prints the results, and reports whether a check failed.
func (o *outcome) print(out io.Writer) (failed bool) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, c := range checks {
		result := "passed"
		if o.errs[i] != nil {
			result, failed = fmt.Sprint("FAILED: ", o.errs[i]), true
		}
		fmt.Fprintf(table, "  %s\t%.1f s\t%s\n", c.name, o.took[i].Seconds(), result)
	}
	table.Flush()
	for _, line := range o.logged {
		fmt.Fprintf(out, "  logged: %.300s\n", line)
	}
	return failed
}
