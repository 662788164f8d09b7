package replay

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/order"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// Cluster is one side of a comparison: the policies, webhooks and other objects that requests are evaluated against.
type Cluster struct {
	// Snapshot is a cluster; nil for an empty one.
	Snapshot *clustersnapshot.Cluster
	// Set has the objects of files. They replace objects of the snapshot.
	Set *manifests.Set
	// Gatehouse has the meaning of stage.Options.Gatehouse.
	Gatehouse bool
}

// objects returns the objects that affect admission. files contains the subset from files.
func (c *Cluster) objects() (list []*unstructured.Unstructured, files map[string]*manifests.Object) {
	files = map[string]*manifests.Object{}
	var written []*unstructured.Unstructured
	if c.Set != nil {
		for _, o := range c.Set.Objects {
			u := o.Unstructured()
			if u.GetName() == "" {
				continue
			}
			if files[clustersnapshot.Key(u)] == nil {
				written = append(written, u)
			}
			files[clustersnapshot.Key(u)] = o
		}
	}
	if c.Snapshot != nil {
		for _, u := range c.Snapshot.Objects() {
			if files[clustersnapshot.Key(u)] == nil {
				list = append(list, u)
			}
		}
	}
	for _, u := range written {
		list = append(list, files[clustersnapshot.Key(u)].Unstructured())
	}
	return order.Judging(list), files
}

// needs lists the namespaces and service accounts that requests need.
type needs struct {
	// namespaces has the labels of each namespace if a request shows them, and nil otherwise. accounts are
	// NAMESPACE/NAME.
	namespaces map[string]map[string]string
	accounts   map[string]bool
}

// needsOf reads a source.
func needsOf(ctx context.Context, source Source) (*needs, *requestlog.Count, error) {
	n := &needs{namespaces: map[string]map[string]string{}, accounts: map[string]bool{}}
	count, err := source.Read(ctx, func(q *requestlog.Entry) error {
		n.see(q)
		return nil
	})
	return n, count, err
}

// see notes the namespace and the service account that a request needs.
func (n *needs) see(q *requestlog.Entry) {
	if known, ok := n.namespaces[q.Namespace]; q.Namespace != "" && (!ok || q.NamespaceLabels != nil) {
		n.namespaces[q.Namespace] = labelsOr(q.NamespaceLabels, known)
	}
	if q.Resource.Group != "" || q.Object == nil {
		return
	}
	switch resource := q.Resource.Resource; {
	case resource == "namespaces" && q.Subresource == "":
		var of struct {
			Metadata struct {
				Labels map[string]string `json:"labels"`
			} `json:"metadata"`
		}
		if json.Unmarshal(q.Object, &of) == nil && q.Name != "" {
			n.namespaces[q.Name] = labelsOr(of.Metadata.Labels, map[string]string{})
		}
	case resource == "serviceaccounts" && q.Subresource == "token":
		n.accounts[q.Namespace+"/"+q.Name] = true
	case resource == "pods":
		if account := requestlog.Text(q.Object, "spec", "serviceAccountName"); account != "" {
			n.accounts[q.Namespace+"/"+account] = true
		}
	}
}

func labelsOr(labels, or map[string]string) map[string]string {
	if labels != nil {
		return labels
	}
	return or
}

// furnished returns the objects together with the namespaces and service accounts that requests need and that are
// missing. made are the added namespaces, and unlabelled those whose labels no request shows.
func (n *needs) furnished(objects []*unstructured.Unstructured) (all []*unstructured.Unstructured, made []string, unlabelled map[string]bool) {
	there := map[string]bool{}
	for _, u := range objects {
		there[clustersnapshot.Key(u)] = true
	}
	all, unlabelled = slices.Clone(objects), map[string]bool{}
	add := func(kind, namespace, name string, labels map[string]string) bool {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name}}}
		u.SetNamespace(namespace)
		if len(labels) > 0 {
			u.SetLabels(labels)
		}
		if there[clustersnapshot.Key(u)] {
			return false
		}
		all = append(all, u)
		return true
	}
	for name, labels := range n.namespaces {
		if labels == nil && slices.Contains(stage.Everywhere, name) {
			unlabelled[name] = !there[clustersnapshot.Key(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}})]
			continue
		}
		if add("Namespace", "", name, labels) {
			made = append(made, name)
			unlabelled[name] = labels == nil
		}
	}
	for account := range n.accounts {
		namespace, name, _ := strings.Cut(account, "/")
		add("ServiceAccount", namespace, name, nil)
	}
	slices.Sort(made)
	slices.SortFunc(all[len(objects):], func(a, b *unstructured.Unstructured) int {
		return cmp.Compare(clustersnapshot.Key(a), clustersnapshot.Key(b))
	})
	return all, made, unlabelled
}

// ObjectError reports that the server rejects an object of a file.
type ObjectError struct {
	File, Object, Message string
	Line                  int
}

func (e *ObjectError) Error() string {
	return fmt.Sprintf("%s:%d: %s cannot be stored: %s", e.File, e.Line, e.Object, e.Message)
}

// open starts a stage with objects. Rejected objects of a snapshot are left out; a rejected object of a file is an
// error.
func open(ctx context.Context, c *Cluster, objects []*unstructured.Unstructured, files map[string]*manifests.Object, addresses []string) (_ *stage.Stage, notes []string, err error) {
	s, err := stage.Open(ctx, stage.Options{Snapshot: c.Snapshot, Gatehouse: c.Gatehouse, Webhooks: true, ServiceAddresses: addresses})
	if err != nil {
		return nil, nil, fmt.Errorf("starting a temporary server: %w", err)
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	refused, notes, err := s.Load(ctx, metav1.FieldValidationIgnore, slices.Concat(objects, s.Named(objects)))
	if err != nil {
		return nil, nil, err
	}
	notes = append(s.Hardened(objects), notes...)
	unseen := s.Unseen()
	for i := range refused {
		left := stage.LeftOut(&refused[i])
		if o := files[clustersnapshot.Key(refused[i].Object)]; o != nil {
			return nil, nil, &ObjectError{o.File, left.Resource, refused[i].Status.Message, o.Line}
		}
		unseen = append(unseen, left)
	}
	slices.SortStableFunc(unseen, func(a, b stage.Unseen) int { return cmp.Compare(a.Resource, b.Resource) })
	for i := range unseen {
		notes = append(notes, unseen[i].Text())
	}
	return s, notes, nil
}

// changed is the difference between the objects of two stages.
type changed struct {
	// all reports whether the difference may affect every request. Otherwise it may affect requests that match one
	// of the registrations (policies and webhook configurations, by kind and name) or are in one of the namespaces.
	all           bool
	registrations map[string]bool
	namespaces    map[string]bool

	// users are the policies of both sides by the kind of their params.
	users map[schema.GroupKind][]*unstructured.Unstructured
}

// changes compares objects.
func changes(before, after []*unstructured.Unstructured) changed {
	c := changed{registrations: map[string]bool{}, namespaces: map[string]bool{}, users: map[schema.GroupKind][]*unstructured.Unstructured{}}
	old := map[string]*unstructured.Unstructured{}
	for _, list := range [][]*unstructured.Unstructured{before, after} {
		for _, u := range list {
			if kind, ok := order.ParamKind(u); ok {
				c.users[kind] = append(c.users[kind], u)
			}
		}
	}
	for _, u := range before {
		old[clustersnapshot.Key(u)] = u
	}
	for _, u := range after {
		if o := old[clustersnapshot.Key(u)]; o == nil || !reflect.DeepEqual(o.Object, u.Object) {
			c.add(u)
			if o != nil {
				c.add(o)
			}
		}
		delete(old, clustersnapshot.Key(u))
	}
	for _, u := range old {
		c.add(u)
	}
	return c
}

// ofNamespaces lists the kinds whose objects affect only requests in their namespace, unless they are params.
var ofNamespaces = []string{"LimitRange", "ResourceQuota", "ServiceAccount"}

func (c *changed) add(u *unstructured.Unstructured) {
	kind := u.GroupVersionKind().GroupKind()
	users := c.users[kind]
	d := registered(u)
	switch {
	case d != nil && len(users) == 0 && !hasNames(u.Object):
		c.registrations[configured(u, d)] = true
	case d == nil && len(users) > 0 && onlyParams(u.GroupVersionKind()):
		for _, policy := range users {
			c.add(policy)
		}
	case len(users) > 0 || kind.Group != "":
		c.all = true
	case kind.Kind == "Namespace":
		c.namespaces[u.GetName()] = true
	case slices.Contains(ofNamespaces, kind.Kind) && u.GetNamespace() != "":
		c.namespaces[u.GetNamespace()] = true
	default:
		c.all = true
	}
}

// registered returns the kind of registration of an object; nil for other objects.
func registered(u *unstructured.Unstructured) *registration.Descriptor {
	if source, ok := registration.SourceOf(u); ok {
		return source.Descriptor()
	}
	return nil
}

// configured returns the name of the policy or webhook configuration that an object registers, or binds.
func configured(u *unstructured.Unstructured, d *registration.Descriptor) string {
	if !d.Binds {
		return u.GetName()
	}
	name, _, _ := unstructured.NestedString(u.Object, "spec", "policyName")
	return name
}

// builtin returns the kinds that every cluster has.
var builtin = sync.OnceValue(offline.Builtin)

// onlyParams reports whether objects of a kind are read only by policies, as params.
func onlyParams(kind schema.GroupVersionKind) bool {
	return kind.GroupKind() == schema.GroupKind{Kind: "ConfigMap"} || kind.Group != registration.GroupName && builtin().Of(kind).Guessed
}

// hasNames reports whether a rule in a registration lists resourceNames.
func hasNames(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if key == "resourceNames" || hasNames(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hasNames)
	}
	return false
}

// concern is a class of requests that a change affects, or not: an operation on a resource.
type concern struct {
	resource    schema.GroupVersionResource
	subresource string
	operation   string
	namespaced  bool
}

// concerned decides which requests a change may affect.
type concerned struct {
	changed
	worlds []*stage.Stage
	// known caches, by concern, whether the change may affect a request.
	known sync.Map
}

// by reports whether a change may affect a request: a rule of a changed registration matches it.
func (c *concerned) by(ctx context.Context, q *requestlog.Entry) bool {
	aboutNamespace := q.Resource.Group == "" && q.Resource.Resource == "namespaces"
	switch {
	case c.all, c.namespaces[q.Namespace], aboutNamespace && c.namespaces[q.Name]:
		return true
	case len(c.registrations) == 0:
		return false
	}
	key := concern{q.GVR(), q.Subresource, q.Operation, q.Namespace != ""}
	if found, ok := c.known.Load(key); ok {
		return found.(bool)
	}
	found := slices.ContainsFunc(c.worlds, func(w *stage.Stage) bool { return c.in(ctx, w, q) })
	c.known.Store(key, found)
	return found
}

func (c *concerned) in(ctx context.Context, w *stage.Stage, q *requestlog.Entry) bool {
	kind := w.Kinds().At(q.GVR())
	if kind == nil {
		return true
	}
	in := planned(kind, q)
	if in.Object == nil {
		if q.Apply != nil || q.Operation == requestlog.Connect {
			return true
		}
	}
	p, err := w.Plan(ctx, in)
	if err != nil {
		return true
	}
	for s := range p.Each() {
		if s.Entry != nil && c.registrations[s.Entry.Configuration] && (s.Reason == nil || s.Reason.Code != "NoRule" && s.Reason.Code != "NotAsked") {
			return true
		}
	}
	return false
}

// planned converts a request for a plan.
func planned(kind *offline.Kind, q *requestlog.Entry) *offline.Request {
	return &offline.Request{Operation: q.Operation, Kind: kind, Subresource: q.Subresource, Namespace: q.Namespace, Name: cmp.Or(q.Name, "name"), User: userOf(q),
		Object: decoded(q.Object), Old: decoded(q.OldObject)}
}

func decoded(data json.RawMessage) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if len(data) == 0 || json.Unmarshal(data, &u.Object) != nil || u.Object == nil {
		return nil
	}
	return u
}
