package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
	"github.com/gatehouse-dev/gatehouse/bench/internal/pictures"
	"github.com/gatehouse-dev/gatehouse/bench/internal/report"
)

// scaleExplained stands above the table.
const scaleExplained = `Medians, with the smallest and largest value. Each server starts on empty data, and gets ten times as much of one thing in
each step, until a step fails or takes longer than --patience; a dash says that it did. In each step, 16 clients create ConfigMaps.
The memory and the CPU time are those of the server and of its etcd. A line of a picture ends where its server failed.

`

// scale is something of which there is more and more.
type scale struct {
	name, title string
	sizes       []int
	// grow makes what is missing, from one size to another.
	grow func(ctx context.Context, g *growth, from, to int) error
	// also measures more than creates.
	also func(ctx context.Context, g *growth, add func(what, unit string, value float64)) error
}

// growth is a server on which something grows.
type growth struct {
	*peer.Server
	restart func() error
	// group has what lasts until the server is stopped; its context is lasting.
	group   *errgroup.Group
	lasting context.Context
}

var allScales = []scale{
	{"objects", "ConfigMaps", []int{1000, 10_000, 100_000, 300_000}, growObjects, listAndRestart},
	{"watchers", "watchers of ConfigMaps", []int{10, 100, 1000, 5000}, growWatchers, nil},
	{"connections", "idle connections", []int{10, 100, 1000, 10_000}, growConnections, nil},
	{"webhooks", "webhooks that do not match", []int{100, 1000, 10_000, 100_000}, growWebhooks, nil},
	{"policies", "policies that do not match", []int{10, 100, 1000, 10_000}, growPolicies, nil},
}

func scaleNames() string { return joinNames(allScales, func(s scale) string { return s.name }) }

// row names the row of a measure at a size.
func (sc scale) row(size int, what string) string {
	return fmt.Sprintf("%d %s: %s", size, sc.title, what)
}

// scalePictures are the measures that pictures show of every scale.
var scalePictures = []struct{ what, unit string }{{"creates", "/s"}, {"CPU for a create", "us"}, {"memory", "MiB"}}

// objectPictures are those of objects.
var objectPictures = []struct{ what, unit string }{{"list, consistent", "s"}, {"list as a watch", "s"}, {"ready after a restart", "s"}}

// draw writes a picture of each scale next to the report, and returns the Markdown that shows
// these pictures.
func (o *options) draw(r *report.Table) (string, error) {
	if o.Report == "" {
		return "", nil
	}
	const dir = "benchmarks"
	var shown strings.Builder
	for _, sc := range o.scales {
		measures := scalePictures
		if sc.also != nil {
			measures = slices.Concat(measures, objectPictures)
		}
		var panels []pictures.Panel
		for _, m := range measures {
			p := pictures.Panel{Title: fmt.Sprintf("%s (%s)", m.what, m.unit), Sizes: sc.title}
			for _, kind := range o.servers {
				line := pictures.Line{Name: string(kind)}
				for _, size := range sc.sizes {
					if v, ok := r.Median(sc.row(size, m.what), string(kind)); ok {
						line.Points = append(line.Points, pictures.Point{Size: float64(size), Value: v})
					}
				}
				p.Lines = append(p.Lines, line)
			}
			panels = append(panels, p)
		}
		name := fmt.Sprintf("scale-%s.svg", sc.name)
		if err := pictures.Write(filepath.Join(filepath.Dir(o.Report), dir, name), panels); err != nil {
			return "", err
		}
		fmt.Fprintf(&shown, "![Creates and memory of the servers with more and more %s, as in the table](%s/%s)\n\n", sc.title, dir, name)
	}
	return shown.String(), nil
}

// scale measures a server with more and more of each thing.
func (o *options) scale(ctx context.Context, b peer.Binaries, kind peer.Kind, dir string, progress io.Writer, r *report.Table) error {
	for _, sc := range o.scales {
		if err := o.scaleOne(ctx, b, kind, filepath.Join(dir, sc.name), sc, progress, r); err != nil {
			return fmt.Errorf("%s: %w", sc.title, err)
		}
	}
	return nil
}

func (o *options) scaleOne(ctx context.Context, b peer.Binaries, kind peer.Kind, dir string, sc scale, progress io.Writer, r *report.Table) (err error) {
	s, err := peer.Start(ctx, b, kind, dir)
	if err != nil {
		return err
	}
	lasting, end := context.WithCancel(ctx)
	g := &growth{Server: s}
	g.group, g.lasting = errgroup.WithContext(lasting)
	g.restart = func() error {
		if err := g.Stop(); err != nil {
			return err
		}
		s, err := peer.Start(ctx, b, kind, dir)
		if err == nil {
			g.Server = s
		}
		return err
	}
	defer func() {
		end()
		_ = g.group.Wait()
		err = errors.Join(err, g.Stop())
	}()
	from := 0
	for _, to := range sc.sizes {
		if err := o.step(ctx, g, sc, from, to, r); ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil {
			// A server that fails here is a result.
			fmt.Fprintf(progress, "%s, %d %s: %v\n", kind, to, sc.title, err)
			return nil
		}
		from = to
	}
	return nil
}

// step measures one size.
func (o *options) step(ctx context.Context, g *growth, sc scale, from, to int, r *report.Table) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.patience, fmt.Errorf("it takes longer than %s", o.patience))
	defer cancel()
	add := func(what, unit string, value float64) {
		r.Add(sc.row(to, what), unit, string(g.Kind), value)
	}
	began := time.Now()
	if err := sc.grow(ctx, g, from, to); err != nil {
		return err
	}
	add("made", "/s", float64(to-from)/time.Since(began).Seconds())
	res, err := measure(ctx, g.Server, load.ConfigMap, operators, o.duration)
	if err != nil {
		return err
	}
	if g.lasting.Err() != nil {
		return g.group.Wait()
	}
	add("creates", "/s", res.rate)
	add("CPU for a create", "us", float64(res.all)/1e3)
	if err := memory(g.Server, func(what string, value float64) {
		if what == "memory" {
			add(what, "MiB", value)
		}
	}); err != nil || sc.also == nil {
		return err
	}
	return sc.also(ctx, g, add)
}

func growObjects(ctx context.Context, g *growth, from, to int) error {
	_, err := load.Run(ctx, g.Server, operators, numbered(to-from, func(int) load.Request { return load.ConfigMap.Create() }))
	return err
}

// listAndRestart lists all ConfigMaps, opens a watch that is sent them, and starts the server anew.
func listAndRestart(ctx context.Context, g *growth, add func(what, unit string, value float64)) error {
	const path = "/api/v1/configmaps"
	for _, of := range []struct{ what, query string }{
		{"list, cached", "?resourceVersion=0"},
		{"list, consistent", ""},
		{"list as a watch", "?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=300"},
	} {
		c := load.NewClient(g.Server)
		began := time.Now()
		var end initialEvents
		err := c.Do(ctx, load.Request{Path: path + of.query}, &end)
		c.Close()
		if err != nil && !end.seen {
			return err
		}
		add(of.what, "s", time.Since(began).Seconds())
	}
	if err := g.restart(); err != nil {
		return err
	}
	add("ready after a restart", "s", g.Ready.Seconds())
	return nil
}

// initialEvents is a writer that fails when it was sent all that a watch begins with.
type initialEvents struct {
	tail []byte
	seen bool
}

func (e *initialEvents) Write(data []byte) (int, error) {
	mark := []byte("k8s.io/initial-events-end")
	e.tail = append(e.tail, data...)
	if bytes.Contains(e.tail, mark) {
		e.seen = true
		return 0, errors.New("all was sent")
	}
	e.tail = append(e.tail[:0], e.tail[max(0, len(e.tail)-len(mark)):]...)
	return len(data), nil
}

func growWatchers(ctx context.Context, g *growth, from, to int) error {
	sent := make([]lines, to-from)
	version, err := version(ctx, g.Server)
	if err != nil {
		return err
	}
	clients, err := g.connect(ctx, to-from)
	if err != nil {
		return err
	}
	for i, c := range clients {
		g.group.Go(func() error { return watch(g.lasting, c, version, &sent[i]) })
	}
	if err := load.CreateOne(ctx, g.Server); err != nil {
		return err
	}
	return awaitLines(ctx, g.lasting, g.group, sent, 1)
}

// growConnections opens connections that stay open.
func growConnections(ctx context.Context, g *growth, from, to int) error {
	clients, err := g.connect(ctx, to-from)
	for _, c := range clients {
		g.group.Go(func() error { <-g.lasting.Done(); c.Close(); return nil })
	}
	return err
}

// connect opens connections, some at a time: a server waits two seconds for what a client says
// first, and on a machine that is busy, clients that all connect at once take longer.
func (g *growth) connect(ctx context.Context, count int) ([]*load.Client, error) {
	clients := make([]*load.Client, count)
	for i := range clients {
		clients[i] = load.NewClient(g.Server)
	}
	return clients, atOnce(ctx, count, func(ctx context.Context, i int) error {
		return clients[i].Do(ctx, load.Request{Path: "/version"}, io.Discard)
	})
}

func growWebhooks(ctx context.Context, g *growth, from, to int) error {
	_, err := load.Run(ctx, g.Server, operators, numbered((to-from)/perConfiguration, func(i int) load.Request {
		hooks := make([]string, perConfiguration)
		for n := range hooks {
			hooks[n] = fmt.Sprintf(`{"name":"n%d.bench.gatehouse.dev","clientConfig":{"url":"https://127.0.0.1:9/"},"rules":[{"operations":["CREATE"],"apiGroups":["apps"],"apiVersions":["v1"],"resources":["deployments"]}],"sideEffects":"None","admissionReviewVersions":["v1"]}`, n)
		}
		return registration("validatingwebhookconfigurations", fmt.Sprintf(`"kind":"ValidatingWebhookConfiguration","metadata":{"name":"bench-%d"},"webhooks":[%s]`, from/perConfiguration+i, strings.Join(hooks, ",")))
	}))
	return err
}

func growPolicies(ctx context.Context, g *growth, from, to int) error {
	_, err := load.Run(ctx, g.Server, operators, numbered(2*(to-from), func(i int) load.Request {
		n := from + i/2
		if i%2 == 1 {
			return registration("validatingadmissionpolicybindings", fmt.Sprintf(`"kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"bench-%[1]d"},"spec":{"policyName":"bench-%[1]d","validationActions":["Deny"]}`, n))
		}
		return registration("validatingadmissionpolicies", fmt.Sprintf(`"kind":"ValidatingAdmissionPolicy","metadata":{"name":"bench-%[1]d"},"spec":{"matchConstraints":{"resourceRules":[{"operations":["CREATE"],"apiGroups":["apps"],"apiVersions":["v1"],"resources":["deployments"]}]},"validations":[{"expression":"object.spec.replicas <= %[1]d"}]}`, n))
	}))
	return err
}

// registration is the creation of one.
func registration(resource, content string) load.Request {
	return load.Request{Method: http.MethodPost, Path: "/apis/admissionregistration.k8s.io/v1/" + resource, Body: `{"apiVersion":"admissionregistration.k8s.io/v1",` + content + "}"}
}
