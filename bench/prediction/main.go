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
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
	"github.com/gatehouse-dev/gatehouse/test/prediction"
)

var errDifferent = errors.New("the explanation was wrong")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	binaries := flag.String("binaries", "", "`directory` of the programs (default: in the user's cache)")
	cases := flag.Uint64("cases", 1000, "how many worlds are played; each has two requests")
	seed := flag.Uint64("seed", 1, "seed of the first world; the others follow it")
	flag.Parse()
	if err := run(ctx, os.Stdout, *binaries, *seed, *cases); err != nil {
		fmt.Fprintln(os.Stderr, "prediction:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, binaries string, seed, cases uint64) (err error) {
	b, err := peer.Build(ctx, ".", binaries)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "prediction-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "SERVER\tREQUESTS\tREJECTED\tCALLS\tREPEATED\tIN ANOTHER VERSION\tEXPLANATIONS\tNOT ALL KNOWN\tDIFFERENCES\tTOOK\n")
	var differences []string
	for _, kind := range []peer.Kind{peer.KubeAPIServer, peer.Gatehouse} {
		began := time.Now()
		t, err := play(ctx, b, kind, filepath.Join(dir, string(kind)), seed, cases)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", kind, t.Requests, t.Rejected, t.Calls, t.Again, t.Equivalent, t.Explained, t.Unknown,
			len(t.Differences), time.Since(began).Round(time.Second))
		for _, d := range t.Differences {
			differences = append(differences, fmt.Sprintf("%s: %s", kind, d))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, d := range differences {
		fmt.Fprintln(out, d)
	}
	if len(differences) > 0 {
		return errDifferent
	}
	return nil
}

// play plays the worlds on a new server.
func play(ctx context.Context, b peer.Binaries, kind peer.Kind, dir string, seed, cases uint64) (_ *prediction.Tally, err error) {
	var flags []string
	if kind != peer.KubeAPIServer {
		// No controllers: kube-apiserver also runs without them.
		flags = append(flags, "--controllers=-*")
	}
	s, err := peer.Start(ctx, b, kind, dir, flags...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	recorder, err := prediction.NewRecorder()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, recorder.Close()) }()
	files := filepath.Join(dir, "explain")
	if err := os.MkdirAll(files, 0o700); err != nil {
		return nil, err
	}
	session, err := prediction.NewSession(ctx, prediction.Options{Admin: s.Config, Gatehouse: kind != peer.KubeAPIServer, Recorder: recorder, Dir: files})
	if err != nil {
		return nil, err
	}
	sum := &prediction.Tally{}
	for i := range cases {
		t, err := session.Play(ctx, prediction.NewWorld(seed+i))
		if err != nil {
			return nil, err
		}
		sum.Add(t)
	}
	return sum, nil
}
