// Testagreement compares the results that gatehouse test computes with the answers of a kube-apiserver.
//
// Its arguments are files and directories with tests, as for gatehouse test: tests in Gatehouse's format, and suites
// of kyverno, gator and kaptest. For each suite, the program creates the objects of the suite on kube-apiserver, and
// sends the request of each test as a dry run, as the user of the test. Code, message, warnings and object must be
// the same as in the outcome that gatehouse test uses to decide whether the test passes. A CONNECT that admission
// allows must fail on kube-apiserver because there is no kubelet. Requests that need the webhooks of other programs
// are not sent, and are counted by reason.
//
//	cd bench && go run ./testagreement testagreement/cases
//
// has requests for everything that can be compared with a server without controllers: conversion, subresources,
// CONNECT, quotas, stored objects, params, bindings, reinvocation and field validation. This program serves the
// webhooks of the service hooks/hook. Decided differences are counted separately.
//
// At the end, the program lists the tests whose results differ from the expectation of their suite.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	binaries := flag.String("binaries", "", "`directory` of the programs (default: in the user's cache)")
	verbose := flag.Bool("v", false, "print every test with its verdict")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "testagreement: name files or directories with tests")
		os.Exit(2)
	}
	if err := run(ctx, os.Stdout, *binaries, flag.Args(), *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "testagreement:", err)
		os.Exit(1)
	}
}

var errDifferent = errors.New("gatehouse test and kube-apiserver differ")

func run(ctx context.Context, out io.Writer, binaries string, paths []string, verbose bool) (err error) {
	if binaries == "" {
		if binaries, err = peer.Dir(); err != nil {
			return err
		}
	}
	set, err := suite.Find(paths, suite.Reading{})
	if err != nil {
		return err
	}
	for _, e := range set.Errors {
		fmt.Fprintln(out, "not read:", e)
	}
	klog.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "testagreement-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	h, err := startHooks(dir)
	if err != nil {
		return err
	}
	defer h.Close()
	b := peer.Binaries{KubeAPIServer: filepath.Join(binaries, "kube-apiserver"), Etcd: filepath.Join(binaries, "etcd")}
	s, err := peer.Start(ctx, b, peer.KubeAPIServer, filepath.Join(dir, "kube-apiserver"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	c, err := newCluster(s.Config)
	if err != nil {
		return err
	}
	c.hooks = h
	r := &comparison{cluster: c, out: out, verbose: verbose, left: map[string]int{}, known: map[string]int{}}
	began := time.Now()
	if err := r.all(ctx, set); err != nil {
		return err
	}
	r.print(time.Since(began))
	if r.differences > 0 {
		return errDifferent
	}
	return nil
}

// comparison runs the suites and counts the results.
type comparison struct {
	cluster *cluster
	out     io.Writer
	verbose bool

	results                                               []*suite.Result
	suites, compared, accepted, rejected, warned, changed int
	// left counts the tests that were not compared, by reason.
	left        map[string]int
	differences int
	// known counts the decided differences, by reason.
	known map[string]int
}

// all runs and compares each suite separately. Suites of other tools share a test environment if possible.
func (r *comparison) all(ctx context.Context, set *suite.Set) error {
	var list []*played
	for _, s := range set.Suites {
		report, err := suite.Run(ctx, suite.Options{
			Keep: true, Set: &suite.Set{Suites: []*suite.Suite{s}}, StartPrograms: true,
			Call: true, ServiceAddresses: []string{service + "=" + r.cluster.hooks.address},
		})
		if err != nil {
			return err
		}
		objects, err := s.World()
		if err != nil {
			return err
		}
		r.results = append(r.results, report.Tests...)
		list = append(list, &played{suite: s, objects: objects, results: report.Tests})
	}
	if err := r.cluster.define(ctx, list); err != nil {
		return err
	}
	for _, p := range list {
		if err := r.suite(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p.suite.File, err)
		}
	}
	return nil
}

// played is a suite with its results.
type played struct {
	suite   *suite.Suite
	objects []object
	results []*suite.Result
}

// suite compares the tests of a suite.
func (r *comparison) suite(ctx context.Context, p *played) error {
	var tests []*suite.Result
	for _, t := range p.results {
		switch why := r.unsuited(p, t); {
		case why != "":
			r.left[why]++
		default:
			tests = append(tests, t)
		}
	}
	if len(tests) == 0 {
		return nil
	}
	r.suites++
	for len(tests) > 0 {
		round, later := rounds(tests)
		if err := r.round(ctx, p, round); err != nil {
			return err
		}
		tests = later
	}
	return nil
}

// unsuited returns why a test cannot be compared, or "".
func (r *comparison) unsuited(p *played, t *suite.Result) string {
	switch {
	case t.Outcome == nil && t.Status == suite.Skipped:
		return "nothing was judged: " + class(t.Message)
	case t.Outcome == nil:
		return "the API server does not take the world, or the request"
	case t.Outcome.Sent().Authorize:
		return "RBAC decides about the request"
	}
	for _, o := range p.objects {
		u := copied(o)
		r.cluster.hooks.reached(u)
		switch kind := u.GetKind(); {
		case strings.HasSuffix(kind, "WebhookConfiguration") && strings.Contains(string(stage.Encode(u.Object)), `"service":`):
			return "the world has webhooks of others"
		case kind == "ResourceQuota" && u.Object["status"] == nil:
			return "the test environment has quotas, which are not counted there"
		}
	}
	return ""
}

// class returns the part of a message that is the same for similar reasons.
func class(message string) string {
	message, _, _ = strings.Cut(message, ":")
	for _, sign := range []string{" at ", ", in line", " is in none"} {
		if _, after, found := strings.Cut(message, sign); found {
			message = "..." + sign + after
		}
	}
	return message
}

// rounds returns the tests whose stored objects fit together; the other tests come later.
func rounds(tests []*suite.Result) (now, later []*suite.Result) {
	stored := map[string]string{}
	for _, t := range tests {
		fits := true
		for _, s := range t.Outcome.Sent().Stored {
			key := s.Resource.String() + " " + s.Namespace + "/" + s.Name
			if content := fmt.Sprint(s.Object.Object); stored[key] == "" {
				stored[key] = content
			} else if stored[key] != content {
				fits = false
			}
		}
		if fits {
			now = append(now, t)
		} else {
			later = append(later, t)
		}
	}
	return now, later
}

func (r *comparison) round(ctx context.Context, p *played, tests []*suite.Result) (err error) {
	made, wrong := r.cluster.make(ctx, p, tests)
	defer func() { err = errors.Join(err, made.remove(ctx)) }()
	if wrong != nil {
		for _, t := range tests {
			r.differ(t, fmt.Sprintf(" kube-apiserver does not take the world: %v", wrong))
		}
		return nil
	}
	for _, t := range tests {
		if made.lacks(t) {
			r.left["kube-apiserver does not store the object that the test finds"]++
			continue
		}
		var difference string
		// New objects become active with a delay: repeat a request whose answer differs.
		for deadline := time.Now().Add(5 * time.Second); ; {
			got, err := made.ask(ctx, t)
			if err != nil {
				return err
			}
			if difference = got.differs(t.Outcome); difference == "" || time.Now().After(deadline) {
				break
			}
			select {
			case <-time.After(500 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		r.count(t)
		if difference != "" {
			r.differ(t, difference)
		} else if r.verbose {
			fmt.Fprintf(r.out, "%s:%d: %s: %d, %s\n", t.File, t.Line, t.Name, t.Outcome.Code, t.Status)
		}
	}
	return nil
}

// known are the decided differences, by a part of their description. docs/test.md lists them.
var known = map[string]string{
	"code 500, computed 400":                       "an apply with a field that the kind does not have: kube-apiserver answers 500",
	"-protection\"":                                "plugins of kube-apiserver acted on the stored object",
	"may not change once set":                      "a stored Service has no cluster IP and no IP families",
	`"ipFamilies"`:                                 "a stored Service has no cluster IP and no IP families",
	`"kind":"CertificateSigningRequest"`:           "a stored CertificateSigningRequest belongs to the user of the test",
	`"kind":"FlowSchema"`:                          "a controller of kube-apiserver writes the status of a FlowSchema",
	`"spec":{},"status":{"phase":"Active"}`:        "a stored Namespace has the finalizers that the test says",
	"the server does not allow this method on the": "the message about a method that a subresource does not have",
}

// differ records a difference.
func (r *comparison) differ(t *suite.Result, text string) {
	for part, why := range known {
		if strings.Contains(text, part) {
			r.known[why]++
			return
		}
	}
	r.differences++
	fmt.Fprintf(r.out, "%s:%d: %s:%s\n", t.File, t.Line, t.Name, text)
}

func (r *comparison) count(t *suite.Result) {
	r.compared++
	if t.Outcome.Allowed {
		r.accepted++
	} else {
		r.rejected++
	}
	if len(t.Outcome.Warnings) > 0 {
		r.warned++
	}
	if t.Outcome.Object != nil {
		r.changed++
	}
}

func (r *comparison) print(took time.Duration) {
	status, files := map[suite.Status]int{}, map[string]bool{}
	for _, t := range r.results {
		status[t.Status]++
		files[t.File] = true
	}
	fmt.Fprintf(r.out, "%d tests in %d files: %d pass, %d fail, %d are skipped, %d are errors\n",
		len(r.results), len(files), status[suite.Passed], status[suite.Failed], status[suite.Skipped], status[suite.Broken])
	fmt.Fprintf(r.out, "compared with kube-apiserver: %d tests of %d suites: %d accepted (%d objects compared), %d rejected, %d with warnings; %d differences; %s\n",
		r.compared, r.suites, r.accepted, r.changed, r.rejected, r.warned, r.differences, took.Round(time.Second))
	for _, why := range slices.Sorted(maps.Keys(r.known)) {
		fmt.Fprintf(r.out, "    differ as decided: %d: %s\n", r.known[why], why)
	}
	for _, why := range slices.Sorted(maps.Keys(r.left)) {
		fmt.Fprintf(r.out, "    not compared: %d: %s\n", r.left[why], why)
	}
	fmt.Fprintln(r.out, "other results than the suites expect:")
	causes := map[string]int{}
	for _, t := range r.results {
		switch t.Status {
		case suite.Failed:
			for i := range t.Failures {
				fmt.Fprintf(r.out, "    %s:%d: %s: %s: want %s, got %s\n", t.File, t.Line, t.Name, t.Failures[i].Field, t.Failures[i].Want, t.Failures[i].Got)
			}
		case suite.Broken:
			fmt.Fprintf(r.out, "    %s:%d: %s: %s\n", t.File, t.Line, t.Name, t.Message)
		case suite.Skipped:
			causes[class(t.Message)]++
		}
	}
	for _, why := range slices.Sorted(maps.Keys(causes)) {
		fmt.Fprintf(r.out, "    skipped: %d: %s\n", causes[why], why)
	}
}
