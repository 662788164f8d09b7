package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

var allScales = []scale{
	{
		name: "objects", title: "ConfigMaps", sizes: []int{1000, 10_000, 100_000, 300_000}, grow: growObjects, measure: listAndRestart,
		explained: "All ConfigMaps are in one namespace. A list has all of them; as a watch, it ends with the bookmark that says so.",
		drawn:     slices.Concat(ofCreates, []measured{{"list, consistent", "s"}, {"list as a watch", "s"}, {"ready after a restart", "s"}}),
	},
	{
		name: "namespaces", title: "namespaces", sizes: []int{100, 1000, 10_000}, grow: growNamespaces, measure: deleteNamespaces, controllers: true,
		explained: `A tenth of the namespaces is deleted. With kube-apiserver a kube-controller-manager runs, with its default bounds on requests, as Gatehouse
includes its work: it empties namespaces, and makes the service account and the ConfigMap of each. Its memory and its CPU
time count, too.`,
		drawn: slices.Concat(ofCreates, []measured{{"a tenth deleted, until gone", "s"}}),
	},
	{
		name: "watchers", title: "watchers of ConfigMaps", sizes: []int{10, 100, 1000, 5000}, grow: growWatchers, measure: sendToWatchers,
		explained: `Each watcher has a connection of its own, and is sent each ConfigMap that is created. A server ends the watches of watchers that are
too slow; they watch again at once, from the present state.`,
		drawn: slices.Concat(ofCreates, []measured{{"events sent to watchers", "/s"}}),
	},
	{
		name: "crossed", title: "ConfigMaps created at once", sizes: []int{1000, 3000, 8000, 16_000}, measure: crossWatchers,
		explained: `The ConfigMaps are created three times, for 10, 60 and 300 watchers, each with a connection of its own. A create ends when all watchers have
received it. A server ends the watches of watchers that are too slow; they watch again at once, from their last event.`,
		drawn: slices.Concat(ofCrossed(10), ofCrossed(60), ofCrossed(300)),
	},
	{
		name: "connections", title: "idle connections", sizes: []int{10, 100, 1000, 10_000}, grow: growConnections,
		explained: "Each connection has made one request before.",
	},
	{
		name: "webhooks", title: "webhooks that do not match", sizes: []int{100, 1000, 10_000, 100_000}, grow: growWebhooks,
		explained: "The webhooks are for deployments, 100 in a configuration.",
	},
	{
		name: "validating", title: "validating webhooks that match", one: "validating webhook that matches", sizes: []int{1, 10, 100, 1000}, grow: growValidating, made: "made and in force", measure: judged,
		explained: `All webhooks are called for each create, by both servers at once. One process on the same machine answers for all of them, and takes
most of the CPU. "One create" is the median of five, from one client. Each call may take 10 s, which is the default.`,
		drawn: ofJudged,
	},
	{
		name: "mutating", title: "mutating webhooks that match", one: "mutating webhook that matches", sizes: []int{1, 10, 100, 1000}, grow: growMutating, made: "made and in force", measure: judged,
		explained: `All webhooks are called for each create, one after the other, and change nothing. One process on the same machine answers for all of
them. "One create" is the median of five, from one client.`,
		drawn: ofJudged,
	},
	{
		name: "policies", title: "policies that do not match", sizes: []int{10, 100, 1000, 10_000}, grow: growPolicies, made: "made and in force",
		explained: "The policies are for deployments, and have an expression and a binding each.",
	},
	{
		name: "bindings", title: "bindings of a policy", sizes: []int{10, 100, 1000, 10_000}, grow: growBindings, made: "made and in force",
		explained: "The policy matches each create and reads the object, once for each binding.",
	},
	{
		name: "sizes", title: "KiB in an object", sizes: []int{1, 10, 100, 1000, 1500, 2000, 4000}, measure: createLarge,
		explained: `The answers are those to the create of one ConfigMap, which may have 1 MiB, and of one ControllerRevision, which has no
bound of its own. 16 clients then create ControllerRevisions, 64 MiB in all.`,
	},
	{
		name: "events", title: "clients that create Events", one: "client that creates Events", sizes: []int{1, 10, 100, 1000}, measure: createEvents,
		explained: "Each client creates one Event after the other. Events go after an hour, by a lease of etcd.",
	},
	{
		name: "servers", title: "servers on one etcd", one: "server on one etcd", sizes: []int{1, 2, 3}, grow: growServers, measure: useServers, shared: true,
		explained: `The etcd is a process of its own, with Gatehouse, too. All servers share the cores of one machine, so that more of them do not do
more: the figures say what sharing costs. 16 clients, spread over the servers, create ConfigMaps; then each patches a ConfigMap
of its own (spread keys); then all patch the same one (a hot key), and try again after a conflict.`,
		drawn: []measured{{"creates", "/s"}, {"patches, spread keys", "/s"}, {"patches, a hot key", "/s"}, {"memory", "MiB"}},
	},
}

func growObjects(ctx context.Context, g *growth, from, to int) error {
	return g.make(ctx, to-from, func(int) load.Request { return load.ConfigMap.Create() })
}

// listAndRestart measures creates, lists all ConfigMaps, opens a watch with initial events, and restarts the server.
func listAndRestart(ctx context.Context, g *growth, _ int) error {
	if err := g.creates(ctx); err != nil {
		return err
	}
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
		g.add(of.what, "s", time.Since(began).Seconds())
	}
	if err := g.restart(ctx); err != nil {
		return err
	}
	g.add("ready after a restart", "s", g.Ready.Seconds())
	return nil
}

// initialEvents is a writer that fails when it has received all initial events of a watch.
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

// growNamespaces creates the missing namespaces, including the deleted ones. It labels a tenth of all namespaces.
func growNamespaces(ctx context.Context, g *growth, from, to int) error {
	g.first = g.named
	g.named += to - from + g.deleted
	return g.make(ctx, g.named-g.first, func(i int) load.Request {
		marks := ""
		if i < to/10 {
			marks = fmt.Sprintf(`,"labels":{"goes":"at-%d"}`, to)
		}
		return load.Request{Method: http.MethodPost, Path: "/api/v1/namespaces", Body: fmt.Sprintf(
			`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"bench-%d"%s}}`, g.first+i, marks)}
	})
}

// deleteNamespaces measures creates, and the time until a tenth of the namespaces is deleted.
func deleteNamespaces(ctx context.Context, g *growth, size int) error {
	if err := g.creates(ctx); err != nil {
		return err
	}
	g.deleted = size / 10
	began := time.Now()
	if err := g.make(ctx, g.deleted, func(i int) load.Request {
		return load.Request{Method: http.MethodDelete, Path: fmt.Sprintf("/api/v1/namespaces/bench-%d", g.first+i)}
	}); err != nil {
		return err
	}
	marked := load.Request{
		Path:   fmt.Sprintf("/api/v1/namespaces?labelSelector=goes%%3Dat-%d", size),
		Accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
	}
	for left := g.deleted; left > 0; {
		text, err := g.get(ctx, marked)
		if err != nil {
			return err
		}
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return err
		}
		left = len(list.Items)
		g.done.Store(int64(g.deleted - left))
		if left > 0 {
			if err := waitFor(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
	}
	g.add("a tenth deleted, until gone", "s", time.Since(began).Seconds())
	return nil
}

func growWatchers(ctx context.Context, g *growth, from, to int) error {
	sent := make([]lines, to-from)
	version, err := version(ctx, g.Server)
	if err != nil {
		return err
	}
	clients, err := g.connect(ctx, to-from)
	if err != nil {
		closeAll(clients)
		return err
	}
	g.sent = append(g.sent, sent)
	for i, c := range clients {
		g.group.Go(func() error { return keepWatching(g.lasting, c, version, &sent[i], &g.ended) })
	}
	if err := load.CreateOne(ctx, g.Server); err != nil {
		return err
	}
	return awaitLines(ctx, g.lasting, g.group, sent, 1)
}

// sendToWatchers measures creates, and the events that the watchers receive for them.
func sendToWatchers(ctx context.Context, g *growth, _ int) error {
	events := func() (sum int64) {
		for _, some := range g.sent {
			for i := range some {
				sum += some[i].Load()
			}
		}
		return sum
	}
	before, ended, began := events(), g.ended.Load(), time.Now()
	if err := g.creates(ctx); err != nil {
		return err
	}
	g.add("events sent to watchers", "/s", float64(events()-before)/time.Since(began).Seconds())
	g.add("watches ended by the server", "", float64(g.ended.Load()-ended))
	return nil
}

// ofCrossed are the drawn measures of a number of watchers.
func ofCrossed(watchers int) []measured {
	return []measured{{fmt.Sprintf("creates, %d watchers", watchers), "/s"}, {fmt.Sprintf("CPU for a create, %d watchers", watchers), "us"}}
}

// crossWatchers measures creates that are sent to different numbers of watchers.
func crossWatchers(ctx context.Context, g *growth, size int) error {
	for _, watchers := range []int{10, 60, 300} {
		r, ended, err := sendTo(ctx, g.Server, watchers, size)
		if err != nil {
			return fmt.Errorf("%d watchers: %w", watchers, err)
		}
		g.add(fmt.Sprintf("creates, %d watchers", watchers), "/s", r.rate)
		g.add(fmt.Sprintf("CPU for a create, %d watchers", watchers), "us", float64(r.all)/1e3)
		g.add(fmt.Sprintf("watches ended by the server, %d watchers", watchers), "", float64(ended))
	}
	return g.memory()
}

// growConnections opens connections that stay open.
func growConnections(ctx context.Context, g *growth, from, to int) error {
	clients, err := g.connect(ctx, to-from)
	g.group.Go(func() error { <-g.lasting.Done(); closeAll(clients); return nil })
	return err
}

func growWebhooks(ctx context.Context, g *growth, from, to int) error {
	return g.make(ctx, (to-from)/perConfiguration, func(i int) load.Request {
		hooks := make([]string, perConfiguration)
		for n := range hooks {
			hooks[n] = fmt.Sprintf(`{"name":"n%d.bench.gatehouse.dev","clientConfig":{"url":"https://127.0.0.1:9/"},"rules":[{"operations":["CREATE"],"apiGroups":["apps"],"apiVersions":["v1"],"resources":["deployments"]}],"sideEffects":"None","admissionReviewVersions":["v1"]}`, n)
		}
		return registration("validatingwebhookconfigurations", fmt.Sprintf(`"kind":"ValidatingWebhookConfiguration","metadata":{"name":"bench-%d"},"webhooks":[%s]`, from/perConfiguration+i, strings.Join(hooks, ",")))
	})
}

// ofJudged are the measures of creates that webhooks review.
var ofJudged = slices.Concat([]measured{{"one create", "ms"}}, ofCreates)

func growValidating(ctx context.Context, g *growth, from, to int) error {
	return g.growMatching(ctx, from, to, "ValidatingWebhookConfiguration", func(name string) any {
		return validatingHook(g.hook, name, "/allow", "configmaps")
	})
}

func growMutating(ctx context.Context, g *growth, from, to int) error {
	return g.growMatching(ctx, from, to, "MutatingWebhookConfiguration", func(name string) any {
		return mutatingHook(g.hook, name, "/allow", "configmaps")
	})
}

// growMatching registers webhooks, and waits until all of them are called for a create.
func (g *growth) growMatching(ctx context.Context, from, to int, kind string, hook func(name string) any) error {
	missing := to - from
	if err := g.make(ctx, (missing+perConfiguration-1)/perConfiguration, func(i int) load.Request {
		var hooks []any
		for n := i * perConfiguration; n < min(missing, (i+1)*perConfiguration); n++ {
			hooks = append(hooks, hook(fmt.Sprintf("m%d.bench.gatehouse.dev", from+n)))
		}
		text, err := json.Marshal(hooks)
		if err != nil {
			panic(err) // Values of these types can always be encoded.
		}
		return registration(strings.ToLower(kind)+"s", fmt.Sprintf(`"kind":%q,"metadata":{"name":"bench-%d-%d"},"webhooks":%s`, kind, to, i, text))
	}); err != nil {
		return err
	}
	for {
		before, err := g.hook.Count(ctx)
		if err != nil {
			return err
		}
		if err := load.CreateOne(ctx, g.Server); err != nil {
			return err
		}
		after, err := g.hook.Count(ctx)
		if err != nil {
			return err
		}
		if after-before >= int64(to) {
			return nil
		}
		if err := waitFor(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// judged measures a single create by one client, and creates by many clients.
func judged(ctx context.Context, g *growth, _ int) error {
	clients, err := g.connect(ctx, 1)
	defer closeAll(clients)
	if err != nil {
		return err
	}
	var took []time.Duration
	for range 5 {
		began := time.Now()
		if err := clients[0].Do(ctx, load.ConfigMap.Create(), io.Discard); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	g.add("one create", "ms", took[len(took)/2].Seconds()*1e3)
	return g.creates(ctx)
}

func growPolicies(ctx context.Context, g *growth, from, to int) error {
	if err := g.make(ctx, 2*(to-from), func(i int) load.Request {
		n := from + i/2
		if i%2 == 1 {
			return registration("validatingadmissionpolicybindings", fmt.Sprintf(`"kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"bench-%[1]d"},"spec":{"policyName":"bench-%[1]d","validationActions":["Deny"]}`, n))
		}
		return registration("validatingadmissionpolicies", fmt.Sprintf(`"kind":"ValidatingAdmissionPolicy","metadata":{"name":"bench-%[1]d"},"spec":{"matchConstraints":{"resourceRules":[{"operations":["CREATE"],"apiGroups":["apps"],"apiVersions":["v1"],"resources":["deployments"]}]},"validations":[{"expression":"object.spec.replicas <= %[1]d"}]}`, n))
	}); err != nil {
		return err
	}
	return g.inForce(ctx, from)
}

func growBindings(ctx context.Context, g *growth, from, to int) error {
	client, err := kubernetes.NewForConfig(g.Config)
	if err != nil {
		return err
	}
	if from == 0 {
		if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, policy("bound", "", "configmaps", reads), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if err := g.make(ctx, to-from, func(i int) load.Request {
		return registration("validatingadmissionpolicybindings", fmt.Sprintf(`"kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"bench-%d"},"spec":{"policyName":"bound","validationActions":["Deny"]}`, from+i))
	}); err != nil {
		return err
	}
	return g.inForce(ctx, from)
}

// inForce waits until the binding that is created last is active, and then until its deletion has taken effect.
func (g *growth) inForce(ctx context.Context, from int) error {
	client, err := kubernetes.NewForConfig(g.Config)
	if err != nil {
		return err
	}
	registrations := client.AdmissionregistrationV1()
	if from == 0 {
		probe := policy("probe", "", "secrets,serviceaccounts", "false")
		forbidden := metav1.StatusReasonForbidden
		probe.Spec.Validations[0].Reason = &forbidden
		if _, err := registrations.ValidatingAdmissionPolicies().Create(ctx, probe, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if _, err := registrations.ValidatingAdmissionPolicyBindings().Create(ctx, binding("probe", "probe"), metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := await(ctx, client, true); err != nil {
		return err
	}
	if err := registrations.ValidatingAdmissionPolicyBindings().Delete(ctx, "probe", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return await(ctx, client, false)
}

// registration returns the request that creates a webhook configuration, policy or binding.
func registration(resource, content string) load.Request {
	return load.Request{Method: http.MethodPost, Path: "/apis/admissionregistration.k8s.io/v1/" + resource, Body: `{"apiVersion":"admissionregistration.k8s.io/v1",` + content + "}"}
}

// created numbers the objects of createLarge and createEvents.
var created atomic.Int64

// createLarge creates objects of the given number of KiB. Every answer is a result, including rejections.
func createLarge(ctx context.Context, g *growth, kib int) error {
	text := strings.Repeat("x", kib<<10)
	revision := func(int) load.Request {
		return load.Request{Method: http.MethodPost, Path: "/apis/apps/v1/namespaces/default/controllerrevisions", Body: fmt.Sprintf(
			`{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"bench-%d"},"revision":1,"data":{"key":%q}}`, created.Add(1), text)}
	}
	configMap := load.Request{Method: http.MethodPost, Path: configMaps, Body: fmt.Sprintf(
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large-%d"},"data":{"key":%q}}`, created.Add(1), text)}
	taken := false
	for _, of := range []struct {
		what    string
		request load.Request
	}{{"answer to a ConfigMap", configMap}, {"answer to a ControllerRevision", revision(0)}} {
		_, err := g.get(ctx, of.request)
		if ctx.Err() != nil {
			return err
		}
		answer := "201"
		if err != nil {
			answer = outcome(err)
		}
		taken = err == nil
		g.table.Say(g.scale.row(g.size, of.what), string(g.kind), answer)
	}
	if !taken {
		return nil
	}
	const all, most = 64 << 10, 2000
	res, err := measureEach(ctx, g.Server, operators, min(most, all/kib), revision)
	if err != nil {
		return err
	}
	g.add("creates", "/s", res.rate)
	g.add("CPU for a create", "us", float64(res.all)/1e3)
	return g.memory()
}

// createEvents creates Events from the given number of clients.
func createEvents(ctx context.Context, g *growth, clients int) error {
	return g.requests(ctx, clients, func() load.Request {
		n := created.Add(1)
		now := time.Now().UTC().Format(time.RFC3339)
		return load.Request{Method: http.MethodPost, Path: "/api/v1/namespaces/default/events", Body: fmt.Sprintf(
			`{"apiVersion":"v1","kind":"Event","metadata":{"name":"bench-%[1]d"},"involvedObject":{"apiVersion":"v1","kind":"Pod","namespace":"default","name":"pod-%[1]d"},"reason":"Scheduled","message":"Successfully assigned default/pod-%[1]d to node","type":"Normal","source":{"component":"bench"},"firstTimestamp":%[2]q,"lastTimestamp":%[2]q,"count":1}`, n, now)}
	})
}

// growServers starts more servers on the same etcd.
func growServers(ctx context.Context, g *growth, _, to int) error {
	for len(g.others)+1 < to {
		s, err := g.Join(ctx, g.binaries, fmt.Sprintf("%s-%d", g.dir, len(g.others)+2))
		if err != nil {
			return err
		}
		g.others = append(g.others, s)
		g.Helpers = append(g.Helpers, s.Process)
	}
	return nil
}

// useServers spreads clients over the servers. They create ConfigMaps, and change their own ConfigMap and a shared
// one.
func useServers(ctx context.Context, g *growth, _ int) error {
	servers := append([]*peer.Server{g.Server}, g.others...)
	clients := make([]*load.Client, operators)
	for i := range clients {
		clients[i] = load.NewClient(servers[i%len(servers)])
	}
	defer closeAll(clients)
	turns := func(what string, turn func(ctx context.Context, c *load.Client, i int) error) error {
		res, err := measureClients(ctx, g.Server, clients, g.options.duration, turn)
		if err != nil {
			return err
		}
		g.add(what, "/s", res.rate)
		g.add(what+", CPU for one", "us", float64(res.all)/1e3)
		return nil
	}
	if err := turns("creates", func(ctx context.Context, c *load.Client, _ int) error {
		return c.Do(ctx, load.ConfigMap.Create(), io.Discard)
	}); err != nil {
		return err
	}
	var conflicts, patches atomic.Int64
	patch := func(ctx context.Context, c *load.Client, name string) error {
		for {
			err := c.Do(ctx, load.Request{
				Method: http.MethodPatch, Path: configMaps + "/" + name, ContentType: "application/merge-patch+json",
				Body: fmt.Sprintf(`{"data":{"key":"value-%d"}}`, created.Add(1)),
			}, io.Discard)
			var refused *load.Refused
			if !errors.As(err, &refused) || refused.Code != http.StatusConflict {
				patches.Add(1)
				return err
			}
			conflicts.Add(1)
		}
	}
	names := []string{"hot"}
	for i := range clients {
		names = append(names, fmt.Sprintf("spread-%d", i))
	}
	for _, name := range names {
		err := clients[0].Do(ctx, load.Request{Method: http.MethodPost, Path: configMaps, Body: fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, name)}, io.Discard)
		var refused *load.Refused
		if err != nil && (!errors.As(err, &refused) || refused.Code != http.StatusConflict) {
			return err
		}
	}
	if err := turns("patches, spread keys", func(ctx context.Context, c *load.Client, i int) error {
		return patch(ctx, c, names[1+i])
	}); err != nil {
		return err
	}
	conflicts.Store(0)
	patches.Store(0)
	if err := turns("patches, a hot key", func(ctx context.Context, c *load.Client, _ int) error {
		return patch(ctx, c, names[0])
	}); err != nil {
		return err
	}
	g.add("conflicts for a patch, a hot key", "", float64(conflicts.Load())/float64(max(1, patches.Load())))
	return g.memory()
}
