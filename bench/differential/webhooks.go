package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// The cases of the default profile, on two kube-apiservers: the first runs its built-in admission plugins, the second
// calls the same plugins as webhooks of gatehouse webhook.

const (
	// Latency is measured in this number of rounds, with perRound requests to each server in turn.
	rounds, perRound = 5, 100
	// callMetric counts the calls of webhooks and the seconds that they took.
	callMetric = "apiserver_admission_webhook_admission_duration_seconds"
)

var (
	// The text that the API server puts before the message of a webhook that denies a request.
	deniedBy = regexp.MustCompile(`^admission webhook "[a-z]+\.policies\.gatehouse\.dev" denied the request: `)
	callSum  = regexp.MustCompile(callMetric + `_(sum|count)\{name="([a-z]+)\.policies\.gatehouse\.dev",operation="[A-Z]+",rejected="(?:true|false)",type="([a-z]+)"\} (\S+)`)
)

// asWebhooks compares the built-in plugins of kube-apiserver with the plugins that gatehouse webhook serves.
func (r *runner) asWebhooks(ctx context.Context, plugins []string, only *regexp.Regexp, out io.Writer) (err error) {
	if r.tally.known, err = loadKnown(knownOfWebhooks); err != nil {
		return err
	}
	compiledIn, stop, err := r.lab.one(ctx, peer.KubeAPIServer, filepath.Join(r.lab.dir, "compiled-in"), "--enable-admission-plugins="+strings.Join(plugins, ","))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	outside, stopOutside, err := r.lab.one(ctx, peer.KubeAPIServer, filepath.Join(r.lab.dir, "webhooks"), "--disable-admission-plugins="+strings.Join(plugins, ","))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopOutside()) }()
	compiledIn.name, outside.name = "compiled in", "as webhooks"
	served, err := peer.StartPlugins(ctx, r.lab.binaries, &peer.Server{Config: outside.config}, filepath.Join(r.lab.dir, "plugins"), plugins...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, served.Stop()) }()
	compiledIn.adapt, outside.adapt = withoutSender, withoutSender
	r.pair = &pair{kube: compiledIn, gatehouse: outside}
	for _, s := range r.sessions() {
		for _, object := range namespaceObjects(namespace) {
			if err := s.create(ctx, object); err != nil {
				return err
			}
		}
	}
	if err := r.awaitCalls(ctx, outside); err != nil {
		return err
	}
	of := regexp.MustCompile("^plugins/default/(" + strings.Join(plugins, "|") + "): ")
	if err := r.profile(ctx, profiles[0], func(name string) bool { return of.MatchString(name) && only.MatchString(name) }, "", nil); err != nil {
		return err
	}
	return r.latency(ctx, out)
}

// withoutSender removes the parts that distinguish a webhook from a built-in plugin: the beginning of a denial, and
// the prefix of the keys of audit annotations.
func withoutSender(a *answer) {
	if body, ok := a.Body.(map[string]any); ok && body["kind"] == "Status" {
		body["message"] = deniedBy.ReplaceAllString(text(body["message"]), "")
	}
	kept := map[string]any{}
	for key, value := range a.Audit {
		group, name, _ := strings.Cut(key, "/")
		if group != "mutation.webhook.admission.k8s.io" {
			kept[name] = value
		}
	}
	a.Audit = kept
}

// pod returns a dry run of the creation of a pod.
func (r *runner) pod() step {
	return step{method: http.MethodPost, path: "/api/v1/namespaces/" + namespace + "/pods?dryRun=All", body: anyPod}
}

// awaitCalls waits until the server calls webhooks of both kinds.
func (r *runner) awaitCalls(ctx context.Context, s *session) error {
	for deadline := time.Now().Add(inForceWithin); time.Now().Before(deadline); {
		if _, err := s.send(ctx, r.pod()); err != nil {
			return err
		}
		calls, err := r.calls(ctx, s)
		if err != nil {
			return err
		}
		kinds := map[string]bool{}
		for at := range calls {
			kinds[at.kind] = true
		}
		if len(kinds) == 2 {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("the webhooks are not called %s after they were registered", inForceWithin)
}

// place is a plugin in one of the admission passes.
type place struct{ plugin, kind string }

// spent is a number of calls and their total duration in seconds.
type spent struct{ count, seconds float64 }

// calls reads the webhook calls of a server from its metrics.
func (r *runner) calls(ctx context.Context, s *session) (map[place]spent, error) {
	a, err := s.send(ctx, step{method: http.MethodGet, path: "/metrics", accept: "text/plain"})
	if err != nil {
		return nil, err
	}
	all := map[place]spent{}
	for _, found := range callSum.FindAllStringSubmatch(text(a.Body), -1) {
		value, err := strconv.ParseFloat(found[4], 64)
		if err != nil {
			return nil, err
		}
		at := place{found[2], found[3]}
		so := all[at]
		if found[1] == "sum" {
			so.seconds += value
		} else {
			so.count += value
		}
		all[at] = so
	}
	return all, nil
}

// latency prints the time of a pod's creation on both servers, and the time of a call of each webhook.
func (r *runner) latency(ctx context.Context, out io.Writer) error {
	before, err := r.calls(ctx, r.gatehouse)
	if err != nil {
		return err
	}
	taken := map[string][]time.Duration{}
	for range rounds {
		for _, s := range r.sessions() {
			for range perRound {
				began := time.Now()
				if a, err := s.send(ctx, r.pod()); err != nil || a.Code != http.StatusCreated {
					return fmt.Errorf("%s: a pod: %d %v: %w", s.name, a.Code, a.Body, err)
				}
				taken[s.name] = append(taken[s.name], time.Since(began))
			}
		}
	}
	after, err := r.calls(ctx, r.gatehouse)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nA dry run of a pod, %d times on each side\n\n| plugins | median | 99th percentile |\n|---|---|---|\n", rounds*perRound)
	for _, s := range r.sessions() {
		all := slices.Sorted(slices.Values(taken[s.name]))
		fmt.Fprintf(out, "| %s | %.2f ms | %.2f ms |\n", s.name, ms(all[len(all)/2]), ms(all[len(all)*99/100]))
	}
	fmt.Fprint(out, "\n| webhook | pass | mean of a call |\n|---|---|---|\n")
	places := slices.SortedFunc(maps.Keys(after), func(a, b place) int { return strings.Compare(a.kind+a.plugin, b.kind+b.plugin) })
	for _, at := range places {
		if n := after[at].count - before[at].count; n > 0 {
			fmt.Fprintf(out, "| %s | %s | %.2f ms |\n", at.plugin, at.kind, 1e3*(after[at].seconds-before[at].seconds)/n)
		}
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
