package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// settle is the time in which the answers to an asynchronous step must become equal; expected is the time in which
// they must meet the expectation of a case.
const settle, expected = 3 * time.Second, 15 * time.Second

var errDifferent = errors.New("the servers differ")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	binaries := flag.String("binaries", "", "`directory` of the programs (default: in the user's cache)")
	only := flag.String("run", "", "only the cases that match this `regexp`, such as apps/v1/deployments")
	compatibility := flag.String("compatibility", "", "`file` to write what differs to, in Markdown")
	upstream := flag.Bool("upstream", false, "send the cases of policies and plugins to kube-apiserver alone, and compare its answers with their expectations")
	webhooks := flag.String("webhooks", "", "compare `plugins` of kube-apiserver with the same plugins of gatehouse webhook, such as LimitRanger,PodSecurity")
	objects := flag.String("objects", "", "write the objects of the cases to this `directory` as manifests, and send no request")
	release := flag.String("emulated-version", "", "`release` that both servers emulate, such as 1.35; the expectations of the cases do not count then, only differences of the servers")
	shared := flag.Bool("shared", false, "compare servers that emulate the release with servers of a newer release on the same etcd: downgrades, and writes by turns")
	releases := flag.String("releases", "", "compare real servers of successive releases with each other, and emulated ones with each other, and write the differences to this `file`, in Markdown")
	realFrom := flag.String("real-from", peer.Releases[0].Minor, "with --releases, the oldest `release` with a real server; the newest release means none")
	flag.Parse()
	var err error
	switch {
	case *objects != "":
		err = writeObjects(*objects)
	case *releases != "":
		err = inLab(ctx, *binaries, *only, func(l *lab, cases *regexp.Regexp) error {
			return compareReleases(ctx, l, cases, *binaries, *releases, *realFrom)
		})
	default:
		err = inLab(ctx, *binaries, *only, func(l *lab, cases *regexp.Regexp) error {
			l.upstream, l.release = *upstream, *release
			return run(ctx, l, cases, *compatibility, *webhooks, *shared)
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "differential:", err)
		os.Exit(1)
	}
}

// inLab calls do with the programs, which it builds, a temporary directory, and the pattern of the cases.
func inLab(ctx context.Context, binaries, only string, do func(*lab, *regexp.Regexp) error) error {
	cases, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	b, err := peer.Build(ctx, ".", binaries)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "differential-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return do(&lab{binaries: b, dir: dir}, cases)
}

func run(ctx context.Context, l *lab, cases *regexp.Regexp, compatibility, webhooks string, shared bool) (err error) {
	r := &runner{lab: l, unsettled: map[string]bool{}}
	switch {
	case shared && l.release == "":
		err = errors.New("--shared needs --emulated-version")
	case shared:
		err = r.shared(ctx, cases)
	case webhooks != "":
		err = r.asWebhooks(ctx, strings.Split(webhooks, ","), cases, os.Stdout)
	default:
		err = r.everything(ctx, cases)
	}
	r.tally.print(os.Stdout)
	if err != nil {
		return err
	}
	if compatibility != "" {
		var text strings.Builder
		if err := r.tally.document(&text); err != nil {
			return err
		}
		if err := os.WriteFile(compatibility, []byte(text.String()), 0o644); err != nil {
			return err
		}
	}
	if len(r.tally.unexpected) > 0 {
		return errUnexpected
	}
	if len(r.tally.unknown) > 0 {
		return errDifferent
	}
	return nil
}

// runner sends every case to both servers.
type runner struct {
	lab *lab
	// The servers that requests are sent to.
	*pair
	tally tally
	// unsettled are the paths of objects for which the runner does not wait any more.
	unsettled map[string]bool
	// served are the resources of each of the neighbouring releases.
	served []map[string]bool
	// lacking are the cases with an object that one of two neighbouring releases does not accept.
	lacking map[lack]bool
}

// everything compares kube-apiserver with gatehouse in all cases.
func (r *runner) everything(ctx context.Context, only *regexp.Regexp) (err error) {
	if r.tally.known, err = loadKnown(knownFile); err != nil {
		return err
	}
	if r.pair, err = r.lab.start(ctx, nil); err != nil {
		return err
	}
	servers := r.pair
	defer func() { err = errors.Join(err, servers.stop()) }()
	if !r.lab.upstream {
		err = r.all(ctx, only)
	}
	if err == nil {
		err = r.policies(ctx, only)
	}
	if err == nil {
		err = r.plugins(ctx, only)
	}
	return err
}

func (r *runner) all(ctx context.Context, only *regexp.Regexp) error {
	kinds, err := loadKinds()
	if err != nil {
		return err
	}
	scripts, err := loadScripts()
	if err != nil {
		return err
	}
	if err := r.create(ctx, "namespace", namespaceObjects(namespace)); err != nil {
		return err
	}
	for _, k := range kinds {
		if name := k.version().String() + "/" + k.Resource; only.MatchString(name) {
			if err := r.run(ctx, name, k.steps()); err != nil {
				return err
			}
		}
	}
	for _, s := range scripts {
		steps, err := s.steps()
		if err != nil {
			return err
		}
		if only.MatchString(s.Name) {
			if err := r.run(ctx, s.Name, steps); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *runner) run(ctx context.Context, name string, steps []step) error {
	r.tally.cases++
	otherwise := false
	for _, st := range steps {
		if otherwise {
			// The release may not have the feature: do not wait for its effects.
			st.expect, st.async = nil, false
		}
		differences, err := r.step(ctx, st)
		if errors.Is(err, errUnexpected) && r.lab.tolerant() {
			otherwise, err = true, nil
			r.tally.otherwise = append(r.tally.otherwise, name+": "+st.name)
		} else if errors.Is(err, errUnexpected) {
			r.tally.unexpected = append(r.tally.unexpected, fmt.Sprintf("%s: %s: %v", name, st.name, err))
			err = nil
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", name, st.name, err)
		}
		r.tally.requests++
		if len(differences) == 0 {
			r.tally.same++
		}
		r.note(differences, name, st.name, st.path)
	}
	return nil
}

// note adds the differences between the answers to a request about a path.
func (r *runner) note(differences []difference, name, step, path string) {
	for _, d := range differences {
		d.Case, d.Step = name, step
		if r.leftOut(d, path) {
			continue
		}
		if k := explain(r.tally.known, d, r.lab.release != ""); k != nil {
			k.seen++
		} else {
			r.tally.unknown = append(r.tally.unknown, d)
		}
	}
}

// step sends a step to both servers. If controllers of the servers change the object, it repeats the read until the
// answers agree, or until a timeout.
func (r *runner) step(ctx context.Context, st step) ([]difference, error) {
	if st.settled != "" && st.method != http.MethodGet && !r.unsettled[st.settled] {
		differences, err := r.step(ctx, step{method: http.MethodGet, path: st.settled, async: true})
		if err != nil {
			return nil, err
		}
		// Servers that have not agreed in time never will.
		r.unsettled[st.settled] = len(differences) > 0
	}
	began, wait := time.Now(), settle
	if st.expect != nil && !r.lab.tolerant() {
		wait = expected
	}
	for {
		answers := make([]answer, len(r.sessions()))
		for i, s := range r.sessions() {
			var err error
			if answers[i], err = s.do(ctx, st); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, err
			}
		}
		var differences []difference
		var unexpected error
		switch {
		case r.neighbours != nil:
			for i := 1; i < len(answers); i++ {
				differences = append(differences, between(i, answers[i-1], answers[i])...)
			}
			newest := answers[len(answers)-1]
			want := st.expect
			if st.decided != nil && r.lab.neighbours[0].program == "" {
				want = st.decided
			}
			unexpected = want.met(newest)
		case r.gatehouse != nil:
			differences = compare(answers[0], answers[1])
			unexpected = errors.Join(st.expect.met(answers[0]), st.decided.met(answers[1]))
		default:
			unexpected = st.expect.met(answers[0])
		}
		agreed, patience := len(differences) == 0 && unexpected == nil, wait
		if slices.ContainsFunc(answers, st.unserved) {
			// Servers that agree that a new resource is not served yet have not answered the request.
			agreed, patience = false, expected
		}
		if agreed || !st.async || r.unsettled[st.settled] || (st.method != http.MethodGet && st.expect == nil) || time.Since(began) > patience {
			return differences, unexpected
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
