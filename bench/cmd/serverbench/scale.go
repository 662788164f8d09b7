package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gatehouse-dev/gatehouse/bench/internal/compare"
	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
	"github.com/gatehouse-dev/gatehouse/bench/internal/pictures"
	"github.com/gatehouse-dev/gatehouse/bench/internal/report"
)

// scaleExplained is printed below the description of a scale.
const scaleExplained = `Each server starts on empty data. In each step there is more of it, until a step fails or takes longer than %s: a dash
says that a size was not tried or has no such value. If nothing else is said, 16 clients create ConfigMaps in each step. The
memory and the CPU time include the server and its etcd. The load comes from the same machine. Ratios compare the
second server with the first. Where there are several rounds, the values are medians, with the smallest and largest value.

`

// scale is a quantity that grows in steps.
type scale struct {
	// name is the value of the flag, title names the growing quantity, explained describes the measurement, and one
	// is the title for size 1.
	name, title, one, explained string
	sizes                       []int
	// grow creates the missing objects from one size to the next; nil if there is nothing to create.
	grow func(ctx context.Context, g *growth, from, to int) error
	// measure measures a size; nil measures only creates.
	measure func(ctx context.Context, g *growth, size int) error
	// made is the verb for grow; empty means "made".
	made string
	// drawn are the measures in the picture; nil means ofCreates.
	drawn []measured
	// shared is set for servers that share an etcd, which is then not embedded. controllers is set if kube-apiserver
	// needs a kube-controller-manager.
	shared, controllers bool
}

// measured is a measure and its unit.
type measured struct{ what, unit string }

// ofCreates are the measures of creates.
var ofCreates = []measured{{"creates", "/s"}, {"CPU for a create", "us"}, {"memory", "MiB"}}

// growth is a server on which a quantity grows.
type growth struct {
	*peer.Server
	// kind names the column; the kind of the server may be a different one.
	kind     peer.Kind
	options  *options
	scale    scale
	binaries peer.Binaries
	dir      string
	hook     *peer.Webhook
	table    *report.Table
	// size is the current size.
	size int
	// done counts the created or deleted objects of a step, up to count.
	done  atomic.Int64
	count int
	// others share the etcd of the server.
	others []*peer.Server
	// sent counts the events that watchers received.
	sent [][]lines
	// ended counts the watches that the server ended.
	ended atomic.Int64
	// named is the number of namespaces created so far, deleted the number of the last deletions; first is the number
	// of the first namespace that the current step created.
	named, deleted, first int
	// group contains the goroutines that run until the server is stopped; lasting is its context.
	group   *errgroup.Group
	lasting context.Context
}

func scaleNames() string { return joinNames(allScales, func(s scale) string { return s.name }) }

// row returns the title of the row of a measure at a size.
func (sc scale) row(size int, what string) string {
	title := sc.title
	if size == 1 && sc.one != "" {
		title = sc.one
	}
	return fmt.Sprintf("%s %s: %s", thousands(size), title, what)
}

// thousands formats a number with commas between thousands.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// runScales measures one scale after the other, and writes the section of each to the report as soon as it is
// measured.
func (o *options) runScales(ctx context.Context, b peer.Binaries, hook *peer.Webhook, out, progress io.Writer) error {
	columns := make([]string, len(o.servers))
	for i, kind := range o.servers {
		columns[i] = string(kind)
	}
	for _, sc := range o.scales {
		fmt.Fprintf(progress, "%s: %s\n", time.Now().Format(time.TimeOnly), sc.title)
		results := &report.Table{Ratio: true}
		err := compare.Alternate(&o.Options, progress, o.servers, func(kind peer.Kind, dir string) error {
			return o.scaleOne(ctx, b, kind, dir, sc, hook, progress, results)
		})
		var table strings.Builder
		results.Print(&table, columns)
		if err != nil {
			fmt.Fprint(out, table.String())
			return fmt.Errorf("%s: %w", sc.title, err)
		}
		shown, err := o.draw(sc, results)
		if err != nil {
			return err
		}
		title := "More and more " + sc.title
		fmt.Fprintf(out, "\n%s\n\n", title)
		o.Section = "serverbench scale " + sc.name
		explained := sc.explained + "\n\n" + fmt.Sprintf(scaleExplained, o.patience) + shown
		if err := o.Finish(out, title, explained, table.String()); err != nil {
			return err
		}
	}
	return nil
}

// draw writes a picture of a scale next to the report, and returns the Markdown that shows it.
func (o *options) draw(sc scale, r *report.Table) (string, error) {
	if o.Report == "" {
		return "", nil
	}
	const dir = "benchmarks"
	measures := sc.drawn
	if measures == nil {
		measures = ofCreates
	}
	var panels []pictures.Panel
	var titles []string
	for _, m := range measures {
		p := pictures.Panel{Title: fmt.Sprintf("%s (%s)", m.what, m.unit), Sizes: sc.title}
		for _, kind := range o.servers {
			line := pictures.Line{Name: string(kind)}
			for _, size := range sc.sizes {
				// A logarithmic scale has no zero.
				if v, ok := r.Median(sc.row(size, m.what), string(kind)); ok && v > 0 {
					line.Points = append(line.Points, pictures.Point{Size: float64(size), Value: v})
				}
			}
			p.Lines = append(p.Lines, line)
		}
		panels = append(panels, p)
		titles = append(titles, m.what)
	}
	name := fmt.Sprintf("scale-%s.svg", sc.name)
	if err := pictures.Write(filepath.Join(filepath.Dir(o.Report), dir, name), panels); err != nil {
		return "", err
	}
	return fmt.Sprintf("![With more and more %s, as in the table: %s](%s/%s)\n\n", sc.title, strings.Join(titles, ", "), dir, name), nil
}

// scaleOne measures all sizes of a scale on a server. The failure of a server is a result; it returns only the error
// of the context.
func (o *options) scaleOne(ctx context.Context, b peer.Binaries, kind peer.Kind, dir string, sc scale, hook *peer.Webhook, progress io.Writer, r *report.Table) error {
	lasting, end := context.WithCancel(ctx)
	g := &growth{kind: kind, options: o, scale: sc, binaries: b, dir: dir, hook: hook, table: r}
	g.group, g.lasting = errgroup.WithContext(lasting)
	failed := func(size int, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		text := outcome(err)
		fmt.Fprintf(progress, "%s, %s %s: failed: %s\n", kind, thousands(size), sc.title, text)
		r.Say(sc.row(size, "outcome"), string(kind), "failed: "+text)
		return nil
	}
	if err := g.start(ctx); err != nil {
		end()
		return failed(sc.sizes[0], errors.Join(err, g.Stop()))
	}
	from := 0
	var err error
	for _, to := range sc.sizes {
		r.Reserve(sc.row(to, "outcome"))
		began := time.Now()
		if err = o.step(ctx, g, sc, from, to); err != nil {
			err = failed(to, err)
			break
		}
		from = to
		r.Say(sc.row(to, "outcome"), string(kind), report.Passed)
		fmt.Fprintf(progress, "%s, %s %s: %s\n", kind, thousands(to), sc.title, time.Since(began).Round(time.Second/10))
	}
	end()
	_ = g.group.Wait()
	if stopped := g.Stop(); stopped != nil && err == nil {
		return failed(max(from, sc.sizes[0]), stopped)
	}
	return err
}

// start starts the server, and the helpers that the scale needs.
func (g *growth) start(ctx context.Context) (err error) {
	kind := g.kind
	if g.scale.shared && kind == peer.GatehouseEmbedded {
		kind = peer.Gatehouse
	}
	if g.Server, err = peer.Start(ctx, g.binaries, kind, g.dir); err != nil {
		g.Server = &peer.Server{}
		return err
	}
	if g.scale.controllers && kind == peer.KubeAPIServer {
		path, err := peer.BuildControllerManager(ctx, g.options.Module, g.options.Binaries)
		if err != nil {
			return err
		}
		return g.StartNamespaceControllers(path, g.dir)
	}
	return nil
}

// restart stops the server and starts it again.
func (g *growth) restart(ctx context.Context) error {
	err := g.Stop()
	g.Server = &peer.Server{}
	if err != nil {
		return err
	}
	return g.start(ctx)
}

// mostText is the maximum length of an error in a cell of a table.
const mostText = 400

// outcome describes an error in a cell of a table.
func outcome(err error) string {
	var refused *load.Refused
	text := err.Error()
	if errors.As(err, &refused) && refused.Message != "" {
		text = strings.TrimSpace(fmt.Sprint(refused.Code, " ", refused.Reason)) + ": " + refused.Message
	}
	text = strings.NewReplacer("|", "/", "\n", " ", "<", "(", ">", ")").Replace(strings.TrimSpace(text))
	if len(text) > mostText {
		text = text[:mostText] + "..."
	}
	return text
}

// step measures one size.
func (o *options) step(ctx context.Context, g *growth, sc scale, from, to int) error {
	step, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(o.patience, func() { cancel(fmt.Errorf("it takes longer than %s", o.patience)) })
	defer timer.Stop()
	watching, processes := make(chan struct{}), g.Processes()
	go func() {
		defer close(watching)
		bound(step, processes, cancel)
	}()
	err := o.tryStep(step, g, sc, from, to)
	if cause := context.Cause(step); err != nil && cause != nil {
		err = cause
	}
	if err != nil && ctx.Err() == nil && g.count > 0 {
		err = fmt.Errorf("%w (after %s of %s)", err, thousands(int(g.done.Load())), thousands(g.count))
	}
	cancel(nil)
	<-watching
	return err
}

// bound cancels a step when a process uses more than half of the memory of the machine.
func bound(ctx context.Context, processes []*peer.Process, cancel context.CancelCauseFunc) {
	most, err := report.Memory()
	if err != nil {
		cancel(err)
		return
	}
	most /= 2
	tick := time.NewTicker(time.Second / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, p := range processes {
			// A stopped process has no memory.
			if used, err := p.RSS(); err == nil && used > most {
				cancel(fmt.Errorf("it takes more than %d GiB of memory", most>>30))
				return
			}
		}
	}
}

func (o *options) tryStep(ctx context.Context, g *growth, sc scale, from, to int) error {
	g.size, g.count = to, 0
	g.done.Store(0)
	if sc.grow != nil {
		began := time.Now()
		if err := sc.grow(ctx, g, from, to); err != nil {
			return err
		}
		if to-from > 1 {
			g.add(cmp.Or(sc.made, "made"), "/s", float64(to-from)/time.Since(began).Seconds())
		}
	}
	g.count = 0
	if sc.measure != nil {
		return sc.measure(ctx, g, to)
	}
	return g.creates(ctx)
}

// add adds a value for the current size.
func (g *growth) add(what, unit string, value float64) {
	g.table.Add(g.scale.row(g.size, what), unit, string(g.kind), value)
}

// creates measures creates of ConfigMaps.
func (g *growth) creates(ctx context.Context) error {
	return g.requests(ctx, operators, load.ConfigMap.Create)
}

// requests measures requests from a number of clients.
func (g *growth) requests(ctx context.Context, clients int, request func() load.Request) error {
	connected, err := g.connect(ctx, clients)
	defer closeAll(connected)
	if err != nil {
		return err
	}
	res, err := measureClients(ctx, g.Server, connected, g.options.duration, func(ctx context.Context, c *load.Client, _ int) error {
		return c.Do(ctx, request(), io.Discard)
	})
	if err != nil {
		return err
	}
	if g.lasting.Err() != nil {
		return g.group.Wait()
	}
	g.add("creates", "/s", res.rate)
	g.add("CPU for a create", "us", float64(res.all)/1e3)
	return g.memory()
}

func (g *growth) memory() error {
	sum, err := g.Memory()
	if err == nil {
		g.add("memory", "MiB", float64(sum)/(1<<20))
	}
	return err
}

// make sends count requests, and counts the answered ones.
func (g *growth) make(ctx context.Context, count int, request func(i int) load.Request) error {
	g.done.Store(0)
	g.count = count
	next := numbered(count, request)
	_, err := load.Loop(ctx, g.Server, operators, func(ctx context.Context, c *load.Client, _ int) (bool, error) {
		r, more := next()
		if !more {
			return false, nil
		}
		err := c.Do(ctx, r, io.Discard)
		if err == nil {
			g.done.Add(1)
		}
		return true, err
	})
	return err
}

// get returns the body of an answer.
func (g *growth) get(ctx context.Context, r load.Request) (string, error) {
	c := load.NewClient(g.Server)
	defer c.Close()
	var answer bytes.Buffer
	err := c.Do(ctx, r, &answer)
	return answer.String(), err
}

// connect opens connections, a limited number at a time: a server waits two seconds for the first bytes of a client,
// and on a busy machine, clients that all connect at the same time take longer.
func (g *growth) connect(ctx context.Context, count int) ([]*load.Client, error) {
	clients := make([]*load.Client, count)
	for i := range clients {
		clients[i] = load.NewClient(g.Server)
	}
	return clients, atOnce(ctx, count, func(ctx context.Context, i int) error {
		return clients[i].Do(ctx, load.Request{Path: "/version"}, io.Discard)
	})
}

func closeAll(clients []*load.Client) {
	for _, c := range clients {
		c.Close()
	}
}

// waitFor waits for a duration, or until the context ends.
func waitFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
