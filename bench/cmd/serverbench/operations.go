package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
	"github.com/gatehouse-dev/gatehouse/bench/internal/report"
)

const (
	// operators is the number of clients, watchers the number of additional clients that only watch.
	operators, watchers = 16, 60
	// mixedConfigMaps is the number of ConfigMaps before a mix, manyConfigMaps the number when memory is read.
	mixedConfigMaps, manyConfigMaps = 40_000, 60_000
	// fewObjects is the number of objects that are applied, or updated, in turns.
	fewObjects = 200
	// For lists, there are manyTimes the objects. manyLists clients read the list at the same time, each listsEach
	// times.
	manyLists, manyTimes, listsEach = 20, 4, 3
	// hotClients is the number of clients that patch the same object.
	hotClients = 64
	// settled is the idle time before the memory of a server is read again.
	settled = 10 * time.Second
)

// operationsExplained is printed above the table.
const operationsExplained = `Medians, with the smallest and largest value, or from seven rounds on the quartiles. 16 clients, each with an HTTP/2 connection
of its own, make one request after the other to a server with its defaults. The CPU time of one request includes the server and
its etcd. Allocations are counted in the process of the server, with etcd only where it is embedded. The load comes from the same
machine. A request that fails ends the measurement. Answers are JSON, not compressed, if nothing else is said. A cached list asks
for resource version 0, a consistent one for none. Ratios compare the second server with the first, from seven rounds on round by
round.

`

// operation is one kind of request.
type operation struct {
	name, title string
	run         func(ctx context.Context, w *world, title string) error
}

// world is the test environment of the operations.
type world struct {
	*options
	server *peer.Server
	hook   *peer.Webhook
	table  *report.Table
	number atomic.Int64
}

// podsPath is the path of the pods that operations use.
const podsPath = "/api/v1/namespaces/default/pods"

const protobuf = runtime.ContentTypeProtobuf

// allOperations are ordered: later operations use the objects of earlier ones.
var allOperations = []operation{
	{"configmaps", "create ConfigMaps", func(ctx context.Context, w *world, title string) error {
		return w.during(ctx, title, load.ConfigMap.Create)
	}},
	{"pods", "create pods", func(ctx context.Context, w *world, title string) error {
		return w.pods(ctx, title, w.objects)
	}},
	{"get", "get a pod", func(ctx context.Context, w *world, title string) error {
		return w.during(ctx, title, func() load.Request { return load.Request{Path: w.anyPod()} })
	}},
	list("cached", "list all pods, cached", "?resourceVersion=0", "", false),
	list("cached-protobuf", "list all pods, cached, protobuf", "?resourceVersion=0", protobuf, false),
	list("cached-gzip", "list all pods, cached, compressed", "?resourceVersion=0", "", true),
	list("consistent", "list all pods, consistent", "", "", false),
	list("consistent-protobuf", "list all pods, consistent, protobuf", "", protobuf, false),
	list("page", "list 500 pods, the first page", "?limit=500", "", false),
	list("selector", "list pods by selector, one hit", "?labelSelector=only%3Done", "", false),
	{"patch", "merge patch of a pod", func(ctx context.Context, w *world, title string) error {
		return w.during(ctx, title, func() load.Request {
			body := fmt.Sprintf(`{"metadata":{"labels":{"changed":"n%d"}}}`, w.number.Add(1))
			return load.Request{Method: http.MethodPatch, Path: w.anyPod(), ContentType: "application/merge-patch+json", Body: body}
		})
	}},
	{"apply", fmt.Sprintf("server-side apply, %d ConfigMaps", fewObjects), func(ctx context.Context, w *world, title string) error {
		return w.during(ctx, title, func() load.Request {
			n := w.number.Add(1)
			name := fmt.Sprintf("applied-%d", n%fewObjects)
			body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"key":"value-%d"}}`, name, n)
			return load.Request{Method: http.MethodPatch, Path: "/api/v1/namespaces/default/configmaps/" + name + "?fieldManager=bench", ContentType: "application/apply-patch+yaml", Body: body}
		})
	}},
	{"lease", "update a lease", leases},
	{"hot", fmt.Sprintf("%d clients patch one ConfigMap", hotClients), hot},
	hooked("patch+validate", "create ConfigMaps, one mutating and one validating webhook"),
	hooked("validating=10", "create ConfigMaps, 10 validating webhooks"),
	{"watch", fmt.Sprintf("create ConfigMaps, %d watchers", watchers), fanOut},
	{"mix", fmt.Sprintf("create ConfigMaps, in a mix, with %d of them", mixedConfigMaps), mix},
	{"delete", "delete pods", func(ctx context.Context, w *world, title string) error {
		r, err := measureEach(ctx, w.server, operators, w.objects, func(i int) load.Request {
			return load.Request{Method: http.MethodDelete, Path: fmt.Sprintf("%s/pod-%d", podsPath, i)}
		})
		w.add(title, r)
		return err
	}},
	{"memory", fmt.Sprintf("memory after these operations, with %d ConfigMaps", manyConfigMaps), memoryAfter},
	{"lists", fmt.Sprintf("%d lists at once of %d times the pods", manyLists, manyTimes), lists},
}

func operationNames() string {
	return joinNames(allOperations, func(o operation) string { return o.name })
}

func joinNames[T any](all []T, name func(T) string) string {
	var names []string
	for _, one := range all {
		names = append(names, name(one))
	}
	return strings.Join(names, ", ")
}

// parseOperations parses the lists of operations and of scales.
func (o *options) parseOperations(operations, scales string) (err error) {
	if o.operations, err = choose("-operations", operations, allOperations, func(o operation) string { return o.name }); err != nil {
		return err
	}
	if o.scales, err = choose("-scale", scales, allScales, func(s scale) string { return s.name }); err != nil {
		return err
	}
	if o.objects < 500 {
		return errors.New("-objects: there must be 500 or more")
	}
	if o.operations != nil {
		o.Section = "serverbench operations" + o.numbered()
	}
	return nil
}

// usualObjects is the number of pods without the flag -objects.
const usualObjects = 2500

// numbered distinguishes the section of operations on an unusual number of pods.
func (o *options) numbered() string {
	if o.objects == usualObjects {
		return ""
	}
	return fmt.Sprintf(", %d pods", o.objects)
}

// choose returns the elements of all that a list names, in the order of all.
func choose[T any](flag, list string, all []T, name func(T) string) ([]T, error) {
	switch list {
	case "":
		return nil, nil
	case "all":
		return all, nil
	}
	var chosen []T
	names := strings.Split(list, ",")
	for _, one := range all {
		if i := slices.Index(names, name(one)); i >= 0 {
			chosen, names = append(chosen, one), slices.Delete(names, i, i+1)
		}
	}
	if len(names) > 0 {
		return nil, fmt.Errorf("%s: %q is not known", flag, names[0])
	}
	return chosen, nil
}

// operate measures the operations.
func (o *options) operate(ctx context.Context, s *peer.Server, hook *peer.Webhook, r *report.Table) error {
	if err := account(ctx, s); err != nil {
		return err
	}
	if o.as != "" {
		if err := trust(ctx, s, o.as); err != nil {
			return err
		}
		s.As = o.as
	}
	w := &world{options: o, server: s, hook: hook, table: r}
	if !slices.ContainsFunc(o.operations, func(op operation) bool { return op.name == "pods" }) {
		// The other operations need the pods.
		if err := w.pods(ctx, "", o.objects); err != nil {
			return err
		}
	}
	for _, op := range o.operations {
		end, err := o.profileCPU(s, op.name)
		if err != nil {
			return err
		}
		if err := errors.Join(op.run(ctx, w, op.title), end()); err != nil {
			return fmt.Errorf("%s: %w", op.title, err)
		}
	}
	return nil
}

// trust grants a user all rights, and waits until they are active.
func trust(ctx context.Context, s *peer.Server, who string) error {
	c := load.NewClient(s)
	defer c.Close()
	if err := c.Do(ctx, load.Request{Method: http.MethodPost, Path: "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", Body: fmt.Sprintf(
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"serverbench"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":%q}]}`, who)}, io.Discard); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, inForce, true, func(ctx context.Context) (bool, error) {
		return c.Do(ctx, load.Request{Path: "/metrics", Accept: "text/plain", As: who}, io.Discard) == nil, ctx.Err()
	})
}

// add adds the rows of an operation. Operations without a title are not reported.
func (w *world) add(title string, r result) {
	if title == "" || r.rate == 0 {
		return
	}
	w.table.Add(title, "/s", string(w.server.Kind), r.rate)
	w.table.Add(title+": CPU", "us", string(w.server.Kind), float64(r.all)/1e3)
	w.table.Add(title+": allocated", "KiB", string(w.server.Kind), r.allocated/(1<<10))
}

// during sends requests for the duration of the flags.
func (w *world) during(ctx context.Context, title string, request func() load.Request) error {
	r, err := measureFor(ctx, w.server, operators, w.duration, request)
	w.add(title, r)
	return err
}

// pods creates count pods. Only the first pod has the label only=one.
func (w *world) pods(ctx context.Context, title string, count int) error {
	r, err := measureEach(ctx, w.server, operators, count, func(i int) load.Request {
		only := "other"
		if i == 0 {
			only = "one"
		}
		return load.Request{Method: http.MethodPost, Path: podsPath, Body: fmt.Sprintf(
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod-%d","labels":{"app":"bench","only":%q}},"spec":{"containers":[{"name":"c","image":"i"}]}}`, i, only)}
	})
	w.add(title, r)
	return err
}

func (w *world) anyPod() string { return fmt.Sprintf("%s/pod-%d", podsPath, rand.IntN(w.objects)) }

// list reads a list. It checks the number of objects once.
func list(name, title, query, accept string, compressed bool) operation {
	return operation{name, title, func(ctx context.Context, w *world, title string) error {
		want := w.objects
		switch name {
		case "page":
			want = 500
		case "selector":
			want = 1
		}
		if err := w.holds(ctx, load.Request{Path: podsPath + query, Accept: accept}, want); err != nil {
			return err
		}
		r := load.Request{Path: podsPath + query, Accept: accept, Compressed: compressed}
		return w.during(ctx, title, func() load.Request { return r })
	}}
}

// holds returns an error if a list does not contain the expected number of objects.
func (w *world) holds(ctx context.Context, r load.Request, want int) error {
	c := load.NewClient(w.server)
	defer c.Close()
	var answer bytes.Buffer
	if err := c.Do(ctx, r, &answer); err != nil {
		return err
	}
	obj, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), answer.Bytes())
	if err != nil {
		return err
	}
	if got := meta.LenList(obj); got != want {
		return fmt.Errorf("GET %s: %d objects, not %d", r.Path, got, want)
	}
	return nil
}

// leases makes each client update its own lease, like a kubelet.
func leases(ctx context.Context, w *world, title string) error {
	const path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	versions := make([]string, operators)
	r, err := measureTurns(ctx, w.server, operators, w.duration, func(ctx context.Context, c *load.Client, i int) error {
		r := load.Request{Method: http.MethodPut, Path: fmt.Sprintf("%s/lease-%d", path, i)}
		if versions[i] == "" {
			r = load.Request{Method: http.MethodPost, Path: path}
		}
		now := time.Now().UTC().Format(metav1.RFC3339Micro)
		r.Body = fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"lease-%d","resourceVersion":%q},"spec":{"holderIdentity":"bench","leaseDurationSeconds":40,"renewTime":%q}}`, i, versions[i], now)
		var answer bytes.Buffer
		if err := c.Do(ctx, r, &answer); err != nil {
			return err
		}
		_, rest, _ := strings.Cut(answer.String(), `"resourceVersion":"`)
		versions[i], _, _ = strings.Cut(rest, `"`)
		return nil
	})
	w.add(title, r)
	return err
}

// hot makes many clients patch one ConfigMap, while another client creates ConfigMaps.
func hot(ctx context.Context, w *world, title string) error {
	const name, updates = "hot", `etcd_requests_total{group="",operation="update",resource="configmaps"}`
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, name)
	collection := "/api/v1/namespaces/default/configmaps"
	patch := func(ctx context.Context, c *load.Client, _ int) error {
		return c.Do(ctx, load.Request{
			Method: http.MethodPatch, Path: collection + "/" + name, ContentType: "application/merge-patch+json",
			Body: fmt.Sprintf(`{"data":{"number":"%d"}}`, w.number.Add(1)),
		}, io.Discard)
	}
	c := load.NewClient(w.server)
	defer c.Close()
	if err := errors.Join(c.Do(ctx, load.Request{Method: http.MethodPost, Path: collection, Body: body}, io.Discard), patch(ctx, c, 0)); err != nil {
		return err
	}
	triedBefore, err := metric(ctx, w.server, updates)
	if err != nil {
		return err
	}
	doneBefore := w.number.Load()
	stop := make(chan struct{})
	var others []time.Duration
	var group errgroup.Group
	group.Go(func() (err error) {
		others, err = load.Create(ctx, w.server, load.ConfigMap, 1, stop)
		return err
	})
	r, err := measureTurns(ctx, w.server, hotClients, w.duration, patch)
	close(stop)
	if err := errors.Join(err, group.Wait()); err != nil {
		return err
	}
	tried, err := metric(ctx, w.server, updates)
	if err != nil {
		return err
	}
	w.add(title, r)
	w.table.Add(title+": 99th percentile", "ms", string(w.server.Kind), r.p99.Seconds()*1e3)
	w.table.Add(title+": tries of a patch", "", string(w.server.Kind), (tried-triedBefore)/float64(w.number.Load()-doneBefore))
	slices.Sort(others)
	w.table.Add("create ConfigMaps meanwhile, 1 client: 99th percentile", "ms", string(w.server.Kind), others[(len(others)-1)*99/100].Seconds()*1e3)
	return nil
}

// hooked creates ConfigMaps while webhooks are registered.
func hooked(name, title string) operation {
	return operation{name, title, func(ctx context.Context, w *world, title string) error {
		sc, err := parseScenario(name)
		if err != nil {
			return err
		}
		remove, err := sc.register(ctx, w.server, w.hook)
		if err != nil {
			return err
		}
		return errors.Join(w.during(ctx, title, load.ConfigMap.Create), remove(ctx))
	}}
}

// lines counts the lines written to it, and keeps the last one. It allows one writer at a time.
type lines struct {
	atomic.Int64
	last, rest []byte
}

func (l *lines) Write(data []byte) (int, error) {
	whole := bytes.LastIndexByte(data, '\n')
	if whole < 0 {
		l.rest = append(l.rest, data...)
		return len(data), nil
	}
	// The last line begins in data, or in an earlier write.
	if begin := bytes.LastIndexByte(data[:whole], '\n'); begin >= 0 {
		l.last = append(l.last[:0], data[begin+1:whole]...)
	} else {
		l.last = append(append(l.last[:0], l.rest...), data[:whole]...)
	}
	l.rest = append(l.rest[:0], data[whole+1:]...)
	l.Add(int64(bytes.Count(data, []byte{'\n'})))
	return len(data), nil
}

// fanOut measures creates of ConfigMaps that are sent to watchers.
func fanOut(ctx context.Context, w *world, title string) error {
	r, ended, err := sendTo(ctx, w.server, watchers, w.objects)
	if err != nil {
		return err
	}
	w.add(title, r)
	w.table.Add(title+": watches that the server ended", "", string(w.server.Kind), float64(ended))
	return nil
}

// sendTo creates ConfigMaps that are sent to watchers, and waits until all watchers have received them. ended is the
// number of watches that the server ended.
func sendTo(ctx context.Context, s *peer.Server, watchers, objects int) (r result, ended int64, err error) {
	watching, stop := context.WithCancel(ctx)
	group, watching := errgroup.WithContext(watching)
	defer func() { stop(); _ = group.Wait() }()
	seen := make([]lines, watchers)
	version, err := version(ctx, s)
	if err != nil {
		return r, 0, err
	}
	var restarts atomic.Int64
	for i := range seen {
		group.Go(func() error { return keepWatching(watching, load.NewClient(s), version, &seen[i], &restarts) })
	}
	// A watcher is ready when it has received one ConfigMap.
	if err := load.CreateOne(ctx, s); err != nil {
		return r, 0, err
	}
	if err := awaitLines(ctx, watching, group, seen, 1); err != nil {
		return r, 0, err
	}
	began := time.Now()
	r, err = watched(ctx, s, func() ([]time.Duration, error) {
		took, err := load.Run(ctx, s, operators, numbered(objects, func(int) load.Request { return load.ConfigMap.Create() }))
		if err != nil {
			return nil, err
		}
		return took, awaitLines(ctx, watching, group, seen, 1+int64(objects))
	})
	r.rate = float64(objects) / time.Since(began).Seconds()
	return r, restarts.Load(), err
}

// awaitLines waits until each element of all has count lines. It returns the error of the writers if they end, which
// they should do only with the context lasting.
func awaitLines(ctx, lasting context.Context, writing *errgroup.Group, all []lines, count int64) error {
	for i := range all {
		for all[i].Load() < count {
			select {
			case <-time.After(time.Millisecond):
			case <-lasting.Done():
				return writing.Wait()
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// configMaps is the path of the watched ConfigMaps.
const configMaps = "/api/v1/namespaces/default/configmaps"

// version returns the current resource version of the ConfigMaps.
func version(ctx context.Context, s *peer.Server) (string, error) {
	list, err := one(ctx, s)
	return list.ResourceVersion, err
}

// one lists the first ConfigMap.
func one(ctx context.Context, s *peer.Server) (list metav1.PartialObjectMetadataList, err error) {
	c := load.NewClient(s)
	defer c.Close()
	var answer bytes.Buffer
	if err := c.Do(ctx, load.Request{Path: configMaps + "?limit=1"}, &answer); err != nil {
		return list, err
	}
	return list, json.Unmarshal(answer.Bytes(), &list)
}

var errWatchEnded = errors.New("the server ended a watch")

// watch watches ConfigMaps from a resource version until the context ends.
func watch(ctx context.Context, c *load.Client, version string, to io.Writer) error {
	defer c.Close()
	err := c.Do(ctx, load.Request{Path: configMaps + "?watch=true&resourceVersion=" + version}, to)
	if ctx.Err() != nil {
		return nil
	}
	return cmp.Or(err, errWatchEnded)
}

// keepWatching restarts the watch at the last event whenever the server ends it. ended counts the restarts.
func keepWatching(ctx context.Context, c *load.Client, from string, to *lines, ended *atomic.Int64) error {
	for {
		if err := watch(ctx, c, from, to); !errors.Is(err, errWatchEnded) {
			return err
		}
		ended.Add(1)
		if len(to.last) == 0 {
			continue
		}
		var event struct {
			Object struct {
				metav1.PartialObjectMetadata
				Code int
			}
		}
		if err := json.Unmarshal(to.last, &event); err != nil {
			return fmt.Errorf("the last event of a watch: %w", err)
		}
		if event.Object.Code == http.StatusGone {
			// The initial objects arrive in the order of their names, so the version of the last one may be old.
			from, to.rest = "0", nil
			continue
		}
		if event.Object.ResourceVersion == "" {
			return fmt.Errorf("the last event of a watch: %s", to.last)
		}
		from, to.rest = event.Object.ResourceVersion, nil
	}
}

// mix measures the tail latency of creates while other clients list, watch, update, delete and wait for a webhook
// that hangs, and a policy evaluates the created objects.
func mix(ctx context.Context, w *world, title string) error {
	// Each watcher first receives all of them.
	if err := w.fill(ctx, mixedConfigMaps); err != nil {
		return err
	}
	if err := waitFor(ctx, settled); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(w.server.Config)
	if err != nil {
		return err
	}
	removePolicy, err := (&policies{bindings: 1}).register(ctx, w.server)
	if err != nil {
		return err
	}
	hook := validatingHook(w.hook, "hangs.bench.gatehouse.dev", "/allow/20s", "endpoints")
	ignore, second := admissionv1.Ignore, int32(1)
	hook.FailurePolicy, hook.TimeoutSeconds = &ignore, &second
	hooks := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := hooks.Create(ctx, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "hangs"}, Webhooks: []admissionv1.ValidatingWebhook{hook}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	background, stop := context.WithCancel(ctx)
	group, background := errgroup.WithContext(background)
	// The other requests have a fixed rate: a faster server does not get more of them.
	also := func(clients int, every time.Duration, request func() load.Request) {
		group.Go(func() error {
			turns := time.NewTicker(every)
			defer turns.Stop()
			_, err := load.Run(background, w.server, clients, func() (load.Request, bool) {
				select {
				case <-turns.C:
					return request(), true
				case <-background.Done():
					return load.Request{}, false
				}
			})
			if background.Err() != nil && ctx.Err() == nil && errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		})
	}
	also(2, 200*time.Millisecond, func() load.Request { return load.Request{Path: podsPath + "?resourceVersion=0"} })
	also(4, 50*time.Millisecond, func() load.Request {
		n := w.number.Add(1)
		return load.Request{Method: http.MethodPost, Path: "/api/v1/namespaces/default/endpoints", Body: fmt.Sprintf(`{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":"mix-%d"}}`, n)}
	})
	also(2, 20*time.Millisecond, func() load.Request {
		n := w.number.Add(1)
		return load.Request{Method: http.MethodPatch, Path: fmt.Sprintf("/apis/coordination.k8s.io/v1/namespaces/default/leases/mix-%d?fieldManager=bench", n%fewObjects), ContentType: "application/apply-patch+yaml",
			Body: fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"mix-%d"},"spec":{"holderIdentity":"holder-%d"}}`, n%fewObjects, n)}
	})
	for c := range 2 {
		made := 0
		also(1, 40*time.Millisecond, func() load.Request {
			// The policy's probe denies Secrets and ServiceAccounts.
			const path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
			if made++; made%2 == 0 {
				return load.Request{Method: http.MethodDelete, Path: fmt.Sprintf("%s/goes-%d-%d", path, c, made-1)}
			}
			return load.Request{Method: http.MethodPost, Path: path, Body: fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"goes-%d-%d"}}`, c, made)}
		})
	}
	sent := make([]lines, 4)
	var ended atomic.Int64
	for i := range sent {
		group.Go(func() error { return keepWatching(background, load.NewClient(w.server), "0", &sent[i], &ended) })
	}
	r, err := measureFor(background, w.server, 8, w.duration, load.ConfigMap.Create)
	stop()
	err = errors.Join(err, group.Wait(), hooks.Delete(ctx, "hangs", metav1.DeleteOptions{}), removePolicy(ctx))
	if err != nil {
		return err
	}
	for i := range sent {
		if sent[i].Load() == 0 {
			return errors.New("a watcher was sent nothing")
		}
	}
	w.table.Add(title, "/s", string(w.server.Kind), r.rate)
	w.table.Add(title+": median", "ms", string(w.server.Kind), r.p50.Seconds()*1e3)
	w.table.Add(title+": 99th percentile", "ms", string(w.server.Kind), r.p99.Seconds()*1e3)
	w.table.Add(title+": 99.9th percentile", "ms", string(w.server.Kind), r.p999.Seconds()*1e3)
	w.table.Add(title+": watches that the server ended", "", string(w.server.Kind), float64(ended.Load()))
	return nil
}

// fill creates ConfigMaps until there are count of them: earlier measurements created more on a faster server.
func (w *world) fill(ctx context.Context, count int) error {
	list, err := one(ctx, w.server)
	if err != nil {
		return err
	}
	have := len(list.Items)
	if list.RemainingItemCount != nil {
		have += int(*list.RemainingItemCount)
	}
	if have > count {
		return fmt.Errorf("there are %d ConfigMaps already, more than the %d with which servers are compared: use a shorter -duration", have, count)
	}
	_, err = load.Run(ctx, w.server, operators, numbered(count-have, func(int) load.Request { return load.ConfigMap.Create() }))
	return err
}

// memoryAfter reads the resident memory, immediately and after an idle time.
func memoryAfter(ctx context.Context, w *world, title string) error {
	if err := w.fill(ctx, manyConfigMaps); err != nil {
		return err
	}
	read := func(when string) error {
		return memory(w.server, func(what string, value float64) {
			w.table.Add(strings.Replace(title, "memory", what, 1)+when, "MiB", string(w.server.Kind), value)
		})
	}
	if err := read(""); err != nil {
		return err
	}
	select {
	case <-time.After(settled):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return errors.Join(read(fmt.Sprintf(", %s later", settled)), w.profile(w.server, "operations"))
}

// lists reads many long lists at the same time, and the peak of the resident memory.
func lists(ctx context.Context, w *world, title string) error {
	c := load.NewClient(w.server)
	defer c.Close()
	if err := c.Do(ctx, load.Request{Method: http.MethodDelete, Path: podsPath}, io.Discard); err != nil {
		return err
	}
	count := w.objects * manyTimes
	if err := w.pods(ctx, "", count); err != nil {
		return err
	}
	for _, form := range []struct{ name, accept string }{{"", ""}, {", protobuf", protobuf}} {
		r := load.Request{Path: podsPath + "?resourceVersion=0", Accept: form.accept}
		if err := w.holds(ctx, r, count); err != nil {
			return err
		}
		select {
		case <-time.After(settled):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := w.server.Process.ForgetPeak(); err != nil {
			return err
		}
		res, err := measureEach(ctx, w.server, manyLists, manyLists*listsEach, func(int) load.Request { return r })
		if err != nil {
			return err
		}
		peak, err := w.server.Process.Peak()
		if err != nil {
			return err
		}
		w.add(title+form.name, res)
		w.table.Add(title+form.name+": peak memory of the server", "MiB", string(w.server.Kind), float64(peak)/(1<<20))
	}
	return nil
}

// profileCPU starts a CPU profile of the server, which is written to a file with the given name until end is called.
// Two more files contain the allocations until the start and until the end.
func (o *options) profileCPU(s *peer.Server, name string) (end func() error, err error) {
	if o.profiles == "" || s.Kind != peer.GatehouseEmbedded {
		return func() error { return nil }, nil
	}
	if err := s.Process.ProfileCPU(); err != nil {
		return nil, err
	}
	return func() error {
		path := filepath.Join(o.profiles, "cpu.pprof")
		err := s.Process.ProfileCPU()
		for deadline := time.Now().Add(time.Minute); err == nil; time.Sleep(50 * time.Millisecond) {
			if _, err = os.Stat(path); err == nil {
				var errs []error
				for _, file := range []string{"allocs-before.pprof", "allocs.pprof", "cpu.pprof"} {
					errs = append(errs, os.Rename(filepath.Join(o.profiles, file), filepath.Join(o.profiles, name+"-"+file)))
				}
				return errors.Join(errs...)
			}
			if time.Now().Before(deadline) {
				err = nil
			}
		}
		return fmt.Errorf("the server writes no profile: is it built from ./cmd/profiled? %w", err)
	}, nil
}
