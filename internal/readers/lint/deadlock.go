package lint

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// graph has the dependencies of servers at their start: services lead to webhooks, workloads serve
// services, and the start of a workload needs requests that webhooks intercept.
type graph struct {
	backends []*backend
	of       map[*snapshot.Entry]*backend
}

// backend is a service with webhooks that fail closed.
type backend struct {
	service types.NamespacedName
	// startups are the requests without which none of its pods can start and be reached.
	startups []*probe
	// needs are the webhooks that these requests depend on: one for each other backend, and all of
	// its own.
	needs []need
}

// need is a webhook that a request depends on.
type need struct {
	hit
	probe *probe
	to    *backend
}

// dependencies returns the graph.
func (p *pass) dependencies() *graph {
	if p.graph != nil {
		return p.graph
	}
	g := &graph{of: map[*snapshot.Entry]*backend{}}
	p.graph = g
	byName := map[types.NamespacedName]*backend{}
	for _, source := range hooks {
		for _, e := range p.Snapshot.Entries(source) {
			name, inside := p.serviceOf(&e.ClientConfig)
			if !inside || !failsClosed(e) || p.patched(e) {
				continue
			}
			b := byName[name]
			if b == nil {
				b = &backend{service: name, startups: p.startups(name)}
				byName[name] = b
				g.backends = append(g.backends, b)
			}
			g.of[e] = b
		}
	}
	for _, b := range g.backends {
		// For each other backend, one certain dependency is enough.
		sure := map[*backend]bool{}
		for _, q := range b.startups {
			p.eachHit(q, func(e *snapshot.Entry) bool { return g.of[e] != nil && !sure[g.of[e]] }, func(h hit) {
				to := g.of[h.Entry]
				b.needs = append(b.needs, need{h, q, to})
				sure[to] = to != b && h.unsure == ""
			})
		}
	}
	return g
}

// startups returns the requests that are needed to start the pods behind a service.
func (p *pass) startups(service types.NamespacedName) []*probe {
	var list []*probe
	var selector labels.Selector
	guess := corev1.PodTemplateSpec{}
	s := p.service(service)
	if s != nil && len(s.Spec.Selector) > 0 {
		selector = labels.SelectorFromSet(s.Spec.Selector)
		guess.Labels = s.Spec.Selector
	}
	for i := range p.Workloads {
		w := &p.Workloads[i]
		if w.isIn(service.Namespace) && selector != nil && selector.Matches(labels.Set(w.Pods.Labels)) {
			list = append(list, pod(service.Namespace, w.Name, w.Kind, &w.Pods))
		}
	}
	if len(list) == 0 {
		q := pod(service.Namespace, service.Name, "", &guess)
		q.vague = "the labels of the pods behind service " + service.String()
		list = append(list, q)
	}
	in := func(group, version, kind, resource, sub, name string) target {
		return target{group, version, kind, resource, sub, service.Namespace, name}
	}
	first := list[0].request.Name
	status := request(admission.Update, in("", "v1", "Pod", "pods", "status", first), node, list[0].object.Object)
	status.vague = list[0].vague
	return append(list,
		request(admission.Create, in("", "v1", "Binding", "pods", "binding", first), scheduler, nil),
		status,
		request(admission.Create, in("authentication.k8s.io", "v1", "TokenRequest", "serviceaccounts", "token", "default"), node, nil),
		request(admission.Create, in("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "", service.Name), controller("endpointslice-controller"), sliceOf(service.Name)),
		request(admission.Update, in("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "", service.Name), controller("endpointslice-controller"), sliceOf(service.Name)),
	)
}

func sliceOf(service string) map[string]any {
	return map[string]any{"metadata": map[string]any{"labels": map[string]any{
		"kubernetes.io/service-name":             service,
		"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
	}}}
}

var selfDeadlock = &Rule{
	ID: "self-deadlock", Level: Error, Advice: "avoid-self-mutation", OnWrite: true,
	Reads: []Part{Namespaces, Services, Workloads},
	check: func(p *pass) {
		if p.about != nil {
			p.ownDeadlocks()
			return
		}
		for _, b := range p.dependencies().backends {
			said := map[*snapshot.Entry]bool{}
			for _, n := range b.needs {
				if n.to != b || said[n.Entry] {
					continue
				}
				said[n.Entry] = true
				p.findsDeadlock(b, n.hit, n.probe)
			}
		}
	},
}

// ownDeadlocks checks only the webhooks for which findings are wanted. Servers use it to run lint
// at each write.
func (p *pass) ownDeadlocks() {
	said := map[*snapshot.Entry]bool{}
	p.webhooks(func(e *snapshot.Entry) {
		service, inside := p.serviceOf(&e.ClientConfig)
		if !inside || !failsClosed(e) {
			return
		}
		b := &backend{service: service}
		for _, q := range p.startups(service) {
			for _, h := range p.hits(q, func(other *snapshot.Entry) bool { return other == e && !said[e] }) {
				said[e] = h.unsure == ""
				p.findsDeadlock(b, h, q)
			}
		}
	})
}

func (p *pass) findsDeadlock(b *backend, h hit, q *probe) {
	level := Error
	if h.unsure != "" {
		level = Warning
	}
	p.findsAs(level, at(h.Entry.Entry), "the webhook %s fails closed and calls service %s, and intercepts the %s, which the pods behind that service need: when none of them runs, none can start%s",
		h.Name, b.service, q.what, unless(h.unsure))
}

var deadlockCycle = &Rule{
	ID: "deadlock-cycle", Level: Error, Advice: "avoid-dependency-loops",
	Reads: []Part{Namespaces, Services, Workloads},
	check: func(p *pass) {
		for _, knot := range p.dependencies().knots() {
			var steps []string
			cycle := knot.cycle
			unsure := ""
			where := at(cycle[0].Entry.Entry)
			for i, n := range cycle {
				from := cycle[(i+len(cycle)-1)%len(cycle)].to
				steps = append(steps, fmt.Sprintf("the pods of service %s need %s (service %s) for the %s", from.service, n.Entry, n.to.service, n.probe.what))
				if unsure == "" {
					unsure = n.unsure
				}
				if p.wanted(objectOf(n.Entry.Entry)) && !p.wanted(where.object) {
					where = at(n.Entry.Entry)
				}
			}
			level := Error
			if unsure != "" {
				level = Warning
			}
			more := ""
			if n := knot.size - len(cycle); n > 0 {
				more = fmt.Sprintf("; %d more of the services that webhooks need are in cycles with these", n)
			}
			p.findsAs(level, where, "webhooks that fail closed need each other to start: %s%s%s", strings.Join(steps, "; "), more, unless(unsure))
		}
	},
}

// knot is a set of backends that all depend on each other.
type knot struct {
	// cycle is a shortest cycle through the first backend: the needs that lead from one backend to
	// the next. size is the number of backends.
	cycle []need
	size  int
}

// knots returns the sets of backends that depend on each other.
func (g *graph) knots() []knot {
	forward, backward := map[*backend][]*backend{}, map[*backend][]*backend{}
	for _, b := range g.backends {
		for _, n := range b.needs {
			if n.to != b {
				forward[b], backward[n.to] = append(forward[b], n.to), append(backward[n.to], b)
			}
		}
	}
	var found []knot
	known := map[*backend]bool{}
	for _, start := range g.backends {
		if known[start] {
			continue
		}
		cycle := around(start, needsOfOthers, func(n need) *backend { return n.to })
		if cycle == nil {
			continue
		}
		k := knot{cycle: cycle}
		back := reach(start, backward)
		for b := range reach(start, forward) {
			if back[b] {
				known[b] = true
				k.size++
			}
		}
		found = append(found, k)
	}
	return found
}

// needsOfOthers returns the needs of a backend except its own webhooks.
func needsOfOthers(b *backend) []need {
	return slices.DeleteFunc(slices.Clone(b.needs), func(n need) bool { return n.to == b })
}

// reach returns the backends that can be reached from a backend, including itself if it is in a
// cycle.
func reach(from *backend, next map[*backend][]*backend) map[*backend]bool {
	seen := map[*backend]bool{}
	queue := []*backend{from}
	for len(queue) > 0 {
		for _, b := range next[queue[0]] {
			if !seen[b] {
				seen[b] = true
				queue = append(queue, b)
			}
		}
		queue = queue[1:]
	}
	return seen
}
