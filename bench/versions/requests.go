package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/bench/internal/fieldrequests"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// answered is the answer of a server to a request.
type answered struct {
	code int
	text string
}

// compareRequests sends the same requests to a real server of a release, and to Gatehouse as this release, and writes
// the differences. It counts the differences with a reason in reasons, and lists all others. It returns an error if
// there are others.
func compareRequests(ctx context.Context, w io.Writer, b peer.Binaries, release, real, dir string) (err error) {
	old := b
	old.KubeAPIServer = real
	var configs [2]*rest.Config
	for i, start := range []func() (*peer.Server, error){
		func() (*peer.Server, error) {
			return peer.Start(ctx, old, peer.KubeAPIServer, filepath.Join(dir, "real-"+release))
		},
		func() (*peer.Server, error) {
			return peer.Start(ctx, b, peer.Gatehouse, filepath.Join(dir, "emulated-"+release), "--emulated-version="+release, "--later-fields=reject")
		},
	} {
		s, failed := start()
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, s.Stop()) }()
		configs[i] = s.Config
	}
	requests, err := fieldrequests.For(configs[0])
	if err != nil {
		return err
	}
	var answers [2][]answered
	for i, config := range configs {
		if answers[i], err = askAll(ctx, config, requests); err != nil {
			return err
		}
	}
	counts, rejected, passes, failures := map[string]int{}, 0, 0, 0
	for i, q := range requests {
		r, g := answers[0][i], answers[1][i]
		if r.code >= 400 {
			rejected++
		}
		if r == g {
			continue
		}
		if why := reasonOf(&q, &r, &g); why != "" {
			if counts[why] == 0 {
				fmt.Fprintf(w, "for example, %s\n    real %s: %s\n    emulated: %s\n", q.Title, release, r.text, g.text)
			}
			counts[why]++
			continue
		}
		kind := "OTHER WORDS"
		switch {
		case r.code >= 400 && g.code < 400:
			kind = "FALSE PASS"
			passes++
		case r.code < 400 && g.code >= 400:
			kind = "FALSE FAILURE"
			failures++
		}
		fmt.Fprintf(w, "%s: %s\n    real %s: %d %s\n    emulated: %d %s\n", kind, q.Title, release, r.code, r.text, g.code, g.text)
		counts[kind]++
	}
	fmt.Fprintf(w, "%s: %d requests, %d rejected by the real server; %d false passes, %d false failures\n", release, len(requests), rejected, passes, failures)
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(w, "  %d %s\n", counts[why], why)
	}
	wrong := passes + failures
	c := &commands{w: w, gatehouse: b.Gatehouse, release: release, dir: filepath.Join(dir, "objects-"+release), requests: requests, real: answers[0]}
	for _, judge := range []struct {
		name string
		by   func(context.Context, *rest.Config) (map[int]answered, error)
	}{{"check", c.check}, {"test", c.test}, {"explain", c.explain}} {
		found, err := judge.by(ctx, configs[0])
		if err != nil {
			return fmt.Errorf("gatehouse %s: %w", judge.name, err)
		}
		wrong += c.compare(judge.name, found)
	}
	if wrong > 0 {
		err = fmt.Errorf("%d verdicts of Gatehouse as %s differ from a real server", wrong, release)
	}
	return err
}

// reasonOf returns why two answers to a request may differ; empty if there is no reason.
func reasonOf(q *fieldrequests.Request, real, emulated *answered) string {
	kind := fmt.Sprint(q.Object["kind"])
	switch {
	case real.code == http.StatusUnprocessableEntity && emulated.code == real.code:
		return "report in the words of the newest release an invalid " + kind
	}
	return ""
}

// askAll sends the requests, several at a time.
func askAll(ctx context.Context, config *rest.Config, requests []fieldrequests.Request) ([]answered, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	// In a cluster, a controller creates the service account.
	account := `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`
	err = client.RESTClient().Post().AbsPath("/api/v1/namespaces/default/serviceaccounts").SetHeader("Content-Type", "application/json").Body([]byte(account)).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	answers := make([]answered, len(requests))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i, q := range requests {
		group.Go(func() error {
			body, err := json.Marshal(q.Object)
			if err != nil {
				return err
			}
			var code int
			data, failed := client.RESTClient().Post().AbsPath(q.Path).Param("dryRun", "All").Param("fieldValidation", "Strict").
				SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Body(body).Do(ctx).StatusCode(&code).Raw()
			if code == 0 {
				return fmt.Errorf("%s: %w", q.Title, failed)
			}
			answers[i].code = code
			if code < 400 {
				return nil
			}
			status := metav1.Status{}
			if err := json.Unmarshal(data, &status); err != nil {
				return fmt.Errorf("%s: %w: %q", q.Title, err, data)
			}
			answers[i].text = drawn.ReplaceAllString(status.Message, "ID")
			return nil
		})
	}
	return answers, group.Wait()
}

// drawn matches the random UIDs of a server.
var drawn = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
