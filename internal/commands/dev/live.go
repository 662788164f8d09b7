package dev

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/kit/temporary"
)

// Live is an existing cluster that calls the program, instead of a server of the session.
type Live struct {
	// Cluster is a client configuration, and Kubeconfig the kubeconfig for the program.
	Cluster    *rest.Config
	Kubeconfig []byte
	// Namespaces whose requests go to the program; if empty, the requests of the user of Cluster do.
	Namespaces []string
	// Place is where the session listens for the cluster.
	Place temporary.Place
	// Guard starts a process that calls Leave with the ID of the session if the session is killed; released ends it.
	Guard func(id string) (released func(), err error)
	// Show is called with each request, by several goroutines.
	Show func(*trace.Record)
}

const (
	// sessionLabel has the ID of a registration's session, untilAnnotation the end of its term, and forAnnotation the
	// description of its requests.
	sessionLabel    = "gatehouse.dev/dev-session"
	untilAnnotation = "gatehouse.dev/dev-until"
	forAnnotation   = "gatehouse.dev/dev-for"
	// conditionPrefix begins the names of match conditions of sessions; the session ID follows.
	conditionPrefix = "gatehouse.dev/dev-"
	// mostConditions is the API's limit for match conditions of a webhook.
	mostConditions = 64
	// leaveWithin bounds the cleanup at the end.
	leaveWithin = 20 * time.Second
	fieldOwner  = "gatehouse-dev"
)

// registrations are the resources of webhook configurations.
var registrations = trustful[:2]

// LiveRules returns the RBAC rules of a session with a cluster.
func LiveRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}, Verbs: []string{"list", "get", "create", "update", "delete"}},
		// For the dry run of a write.
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
	}
}

// live sends the requests of one user, or of some namespaces, to the program. The program's registrations in the
// cluster get a match condition that excludes these requests, and a copy of each registration matches only them. All
// conditions expire unless they are renewed.
type live struct {
	*Live
	id string
	// user makes the requests; empty if namespaces select them.
	user     string
	project  *project
	say      func(string, ...any)
	clock    temporary.Clock
	client   dynamic.Interface
	probe    *temporary.Probe
	listener net.Listener
	front    *front
	base     string
	hosts    []string
	// authority is the PEM certificate of the front's CA.
	authority []byte

	// mu is held while the registrations are written.
	mu    sync.Mutex
	taken []*taken
	// idle is set if the program does not serve: nothing is renewed then, and the cluster returns to its own webhooks.
	idle bool
}

// taken is a registration whose webhooks are served by the program for some requests.
type taken struct {
	resource schema.GroupVersionResource
	original *unstructured.Unstructured
	// made is set if the copy was created. since is the time of the last renewal of the original's condition.
	made  bool
	since time.Time
	// gone is set if the deletion of the original was reported, and spared if the original has the condition.
	gone, spared bool
}

// name returns the name of the copy, which sorts directly after the original, so that no other webhook is called
// between them.
func (l *live) name(t *taken) string { return t.original.GetName() + "--gatehouse-dev-" + l.id }

// kept are prefixes of users whose requests keep a cluster running.
var kept = []string{"system:node:", "system:kube-", "system:apiserver", "system:anonymous", "system:serviceaccount:kube-system:"}

// newLive finds the registrations, and checks that they may be written. It writes nothing.
func newLive(ctx context.Context, o *Options, p *project) (_ *live, err error) {
	l := &live{Live: o.Live, id: strings.ToLower(rand.Text()[:10]), project: p, say: o.Say}
	for _, name := range l.Namespaces {
		if strings.HasPrefix(name, "kube-") {
			return nil, fmt.Errorf("--namespace %s: a program on this machine must not decide requests of the control plane: name namespaces of your own", name)
		}
	}
	if len(p.services()) == 0 {
		return nil, errors.New("--live: say with --service NAMESPACE/NAME, or with the manifests (-f, -k), which service of the cluster the program replaces")
	}
	config := l.clock.Reading(l.Cluster)
	if l.client, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if len(l.Namespaces) == 0 {
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("asking the cluster who you are: %w", err)
		}
		l.user = review.Status.UserInfo.Username
		if slices.ContainsFunc(kept, func(prefix string) bool { return strings.HasPrefix(l.user, prefix) }) {
			return nil, fmt.Errorf("--live: the kubeconfig has the user %s of the control plane: use a kubeconfig of your own user, or --namespace", l.user)
		}
	}
	l.probe = &temporary.Probe{Client: client, Name: "0--gatehouse-dev-" + l.id, Namespace: metav1.NamespaceDefault, Probed: make(chan struct{}, 1)}
	if len(l.Namespaces) > 0 {
		l.probe.Namespace = l.Namespaces[0]
	}
	if err := l.find(ctx); err != nil {
		return nil, err
	}
	if l.listener, l.hosts, l.base, err = l.Place.Listen(); err != nil {
		return nil, err
	}
	return l, nil
}

// claim describes the requests that go to the program.
func (l *live) claim() string {
	if l.user != "" {
		return "user " + l.user
	}
	return "namespace " + strings.Join(l.Namespaces, ",")
}

// find finds the registrations of the program, and removes the remains of ended sessions.
func (l *live) find(ctx context.Context) error {
	sessions := map[string]bool{}
	var found []*taken
	for _, resource := range registrations {
		list, err := l.client.Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return needsRight(fmt.Errorf("reading the registrations of the cluster: %w", err))
		}
		for i := range list.Items {
			u := &list.Items[i]
			if id := u.GetLabels()[sessionLabel]; id != "" {
				until, err := time.Parse(time.RFC3339, u.GetAnnotations()[untilAnnotation])
				now := l.clock.Now()
				sessions[id] = sessions[id] || err != nil || now.Before(until.Add(temporary.Abandoned))
				if err == nil && now.Before(until) && l.overlaps(u.GetAnnotations()[forAnnotation]) {
					return fmt.Errorf("--live: another session serves the %s (%s): end that session, or wait %s", u.GetAnnotations()[forAnnotation], u.GetName(), temporary.Term)
				}
				continue
			}
			if slices.ContainsFunc(clients(u), l.local) {
				found = append(found, &taken{resource: resource, original: u})
			}
		}
	}
	if len(found) == 0 {
		return fmt.Errorf("--live: no webhook that is registered in the cluster names the service %s (webhooks from files of the API server cannot be redirected)", l.project.services()[0])
	}
	l.taken = found
	return takeOut(ctx, l.client, func(id string) bool { return !sessions[id] })
}

// overlaps reports whether another session may receive requests of this one.
func (l *live) overlaps(who string) bool {
	names, ok := strings.CutPrefix(who, "namespace ")
	if !ok || l.user != "" {
		return who == l.claim()
	}
	return slices.ContainsFunc(strings.Split(names, ","), func(name string) bool { return slices.Contains(l.Namespaces, name) })
}

// local reports whether a webhook client of the cluster calls the program.
func (l *live) local(c client) bool { return slices.Contains(l.project.services(), c.service()) }

func needsRight(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; 'gatehouse dev --live --rbac' prints the rights that are needed", err)
	}
	return err
}

// mine returns the CEL expression for requests that go to the program. It evaluates without error for every request.
func (l *live) mine(since, renewed time.Time) string {
	who := `has(request.userInfo.username) && request.userInfo.username == ` + strconv.Quote(l.user)
	if l.user == "" {
		var names []string
		for _, name := range l.Namespaces {
			names = append(names, strconv.Quote(name))
		}
		who = `has(request.namespace) && request.namespace in [` + strings.Join(names, ", ") + `]`
	}
	// In some subresources, such as scales, mutating webhooks see a timestamp and validating webhooks do not.
	const whole = ` && request.resource.resource != "secrets" && (!has(request.subResource) || request.subResource in ["", "status"]) && `
	return who + whole + temporary.Within(since, renewed, "false")
}

// withCondition sets the condition of a session, and reports whether it changed. An empty expression removes it.
func withCondition(hook map[string]any, id, expression string) (changed bool) {
	name := conditionPrefix + id
	var conditions []any
	was := ""
	for _, c := range list(hook, "matchConditions") {
		if text(c, "name") == name {
			was = text(c, "expression")
		} else {
			conditions = append(conditions, c)
		}
	}
	if expression != "" {
		conditions = append(conditions, map[string]any{"name": name, "expression": expression})
	}
	if len(conditions) == 0 {
		delete(hook, "matchConditions")
	} else {
		hook["matchConditions"] = conditions
	}
	return was != expression
}

// mineOf returns the webhooks of a registration that the program serves.
func (l *live) mineOf(u *unstructured.Unstructured) (found []map[string]any) {
	for _, c := range clients(u) {
		if l.local(c) {
			found = append(found, c.hook)
		}
	}
	return found
}

// spare returns the original with conditions that exclude the requests for the program.
func (l *live) spare(original *unstructured.Unstructured, now time.Time) (*unstructured.Unstructured, error) {
	u := original.DeepCopy()
	for _, hook := range l.mineOf(u) {
		withCondition(hook, l.id, `!(`+l.mine(now, now)+`)`)
		if n := len(list(hook, "matchConditions")); n > mostConditions {
			return nil, fmt.Errorf("%s/%s has %d match conditions, the most that a webhook may have: --live needs another one", u.GetName(), text(hook, "name"), n-1)
		}
	}
	return u, nil
}

// ownCopy returns the copy for the requests of the program: everything else is as in the original.
func (l *live) ownCopy(t *taken, now time.Time) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(t.original.GroupVersionKind())
	u.SetName(l.name(t))
	u.SetLabels(map[string]string{sessionLabel: l.id, "app.kubernetes.io/managed-by": "gatehouse"})
	annotations := map[string]string{untilAnnotation: now.Add(temporary.Term).UTC().Format(time.RFC3339), forAnnotation: l.claim()}
	for name, value := range t.original.GetAnnotations() {
		// Gatehouse servers read the enforcement of a registration from these annotations.
		if strings.HasPrefix(name, "gatehouse.dev/") {
			annotations[name] = value
		}
	}
	u.SetAnnotations(annotations)
	since := t.since
	if since.IsZero() {
		since = now
	}
	var hooks []any
	for _, hook := range l.mineOf(t.original.DeepCopy()) {
		for _, c := range list(hook, "matchConditions") {
			// Conditions that exclude the requests of other sessions belong to the original only.
			if id, ok := strings.CutPrefix(text(c, "name"), conditionPrefix); ok {
				withCondition(hook, id, "")
			}
		}
		withCondition(hook, l.id, l.mine(since, now))
		hook["clientConfig"] = map[string]any{
			"url":      l.base + l.front.path(t.original.GetKind(), t.original.GetName(), hook),
			"caBundle": base64.StdEncoding.EncodeToString(l.authority),
		}
		hooks = append(hooks, hook)
	}
	u.Object["webhooks"] = hooks
	return u
}

// try checks with dry runs that all required writes are allowed.
func (l *live) try(ctx context.Context) error {
	for _, t := range l.taken {
		hooks := l.client.Resource(t.resource)
		spared, err := l.spare(t.original, l.clock.Now())
		if err != nil {
			return err
		}
		if _, err = hooks.Create(ctx, l.ownCopy(t, l.clock.Now()), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
			_, err = hooks.Update(ctx, spared, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: fieldOwner})
		}
		// After a conflict, the real write retries.
		if err != nil && !apierrors.IsConflict(err) {
			return needsRight(fmt.Errorf("--live: nothing was written, since the cluster refuses it: %w", err))
		}
	}
	return nil
}

// begin makes the cluster call the program, which already serves.
func (l *live) begin(ctx context.Context) error {
	hook := temporary.Harmless("probe.gatehouse.dev", admissionregistrationv1.WebhookClientConfig{CABundle: l.authority})
	at := l.base + l.front.way + probePath
	hook.ClientConfig.URL = &at
	l.probe.Select(&hook)
	probes := l.probe.Client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	stored, err := probes.Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: l.probe.Name, Labels: map[string]string{sessionLabel: l.id}},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{hook},
	}, metav1.CreateOptions{})
	if err != nil {
		return needsRight(fmt.Errorf("registering the webhook: %w", err))
	}
	if err := temporary.KnowsConditions(stored); err != nil {
		return err
	}
	note, err := l.probe.Await(ctx, l.base)
	if err != nil {
		return err
	}
	if note != "" {
		l.say("%s", note)
	}
	if err := probes.Delete(ctx, l.probe.Name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("removing the webhook of the try: %w", err)
	}
	return l.renew(ctx)
}

// serves records whether the program serves.
func (l *live) serves(ctx context.Context, it bool) error {
	l.mu.Lock()
	l.idle = !it
	l.mu.Unlock()
	return l.renew(ctx)
}

// renew begins another term of all registrations.
func (l *live) renew(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idle {
		return nil
	}
	var failed []error
	for _, t := range l.taken {
		failed = append(failed, retry.RetryOnConflict(retry.DefaultRetry, func() error { return l.renewOne(ctx, t) }))
	}
	return errors.Join(failed...)
}

// renewOne renews the copy before the original: a request that matches both is evaluated twice, but a request that
// matches neither would bypass the webhook.
func (l *live) renewOne(ctx context.Context, t *taken) error {
	hooks := l.client.Resource(t.resource)
	original, err := hooks.Get(ctx, t.original.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && len(l.mineOf(original)) == 0 {
		if !t.gone {
			t.gone = true
			l.say("%s no longer has a webhook of the program: its requests go nowhere.", t.original.GetName())
		}
		return deleted(hooks.Delete(ctx, l.name(t), metav1.DeleteOptions{}))
	}
	if err != nil {
		return err
	}
	if t.gone {
		t.gone, t.made = false, false
	}
	if t.spared && slices.ContainsFunc(l.mineOf(original), func(hook map[string]any) bool {
		return !slices.ContainsFunc(list(hook, "matchConditions"), func(c any) bool { return text(c, "name") == conditionPrefix+l.id })
	}) {
		t.spared = false
		l.say("Somebody has written %s without the condition that excludes your requests; the session adds it again. In between, requests went to both.", original.GetName())
	}
	t.original = original
	now := l.clock.Now()
	own := l.ownCopy(t, now)
	if !t.made {
		if _, err = hooks.Create(ctx, own, metav1.CreateOptions{FieldManager: fieldOwner}); apierrors.IsAlreadyExists(err) {
			// The response to the earlier write was lost.
			err = nil
		}
		if t.made = err == nil; err != nil {
			return err
		}
	} else {
		var stored *unstructured.Unstructured
		if stored, err = hooks.Get(ctx, own.GetName(), metav1.GetOptions{}); err == nil {
			own.SetResourceVersion(stored.GetResourceVersion())
			_, err = hooks.Update(ctx, own, metav1.UpdateOptions{FieldManager: fieldOwner})
		}
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%w: %s", temporary.ErrRemoved, own.GetName())
		}
		if err != nil {
			return err
		}
	}
	spared, err := l.spare(original, now)
	if err != nil {
		return err
	}
	if _, err = hooks.Update(ctx, spared, metav1.UpdateOptions{FieldManager: fieldOwner}); err == nil {
		t.since, t.spared = now, true
	}
	return err
}

func deleted(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// takeOut removes the remains of ended sessions from a cluster: the conditions first, so that every request is
// evaluated.
func takeOut(ctx context.Context, client dynamic.Interface, gone func(id string) bool) error {
	type left struct {
		resource schema.GroupVersionResource
		name     string
	}
	var owns []left
	for _, resource := range registrations {
		hooks := client.Resource(resource)
		list, err := hooks.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			u := &list.Items[i]
			if id := u.GetLabels()[sessionLabel]; id != "" {
				if gone(id) {
					owns = append(owns, left{resource, u.GetName()})
				}
				continue
			}
			if !withoutConditions(u, gone) {
				continue
			}
			if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
				now, err := hooks.Get(ctx, u.GetName(), metav1.GetOptions{})
				if err != nil {
					return deleted(err)
				}
				if withoutConditions(now, gone) {
					_, err = hooks.Update(ctx, now, metav1.UpdateOptions{FieldManager: fieldOwner})
				}
				return err
			}); err != nil {
				return fmt.Errorf("taking the condition out of %s: %w", u.GetName(), err)
			}
		}
	}
	for _, b := range owns {
		if err := deleted(client.Resource(b.resource).Delete(ctx, b.name, metav1.DeleteOptions{})); err != nil {
			return fmt.Errorf("removing %s: %w", b.name, err)
		}
	}
	return nil
}

// withoutConditions removes the conditions of ended sessions, and reports whether there were any.
func withoutConditions(u *unstructured.Unstructured, gone func(id string) bool) (changed bool) {
	for _, of := range clients(u) {
		for _, c := range list(of.hook, "matchConditions") {
			if id, ok := strings.CutPrefix(text(c, "name"), conditionPrefix); ok && gone(id) {
				changed = withCondition(of.hook, id, "") || changed
			}
		}
	}
	return changed
}

// Leave removes the remains of a session from a cluster. It repeats for the time settled, because a write may be in
// flight. It gives up when ctx ends.
func Leave(ctx context.Context, config *rest.Config, id string, settled time.Duration) error {
	client, err := dynamic.NewForConfig(new(temporary.Clock).Reading(config))
	if err != nil {
		return err
	}
	return temporary.Remove(ctx, settled, func(ctx context.Context) (bool, error) {
		return false, takeOut(ctx, client, func(one string) bool { return one == id })
	})
}

// leave removes everything that the session has written to the cluster. No write of the session is in flight, and none
// follows.
func (l *live) leave(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = true
	return Leave(ctx, l.Cluster, l.id, 0)
}

// registered returns the registrations in the form that the program has to serve.
func (l *live) registered() (found []runtime.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.taken {
		u := t.original.DeepCopy()
		for _, hook := range l.mineOf(u) {
			hook["clientConfig"].(map[string]any)["caBundle"] = base64.StdEncoding.EncodeToString(l.authority)
		}
		found = append(found, u)
	}
	return found
}

// webhooks lists the webhooks that the program serves, as CONFIGURATION/NAME.
func (l *live) webhooks() (names []string) {
	for _, t := range l.taken {
		for _, hook := range l.mineOf(t.original) {
			names = append(names, t.original.GetName()+"/"+text(hook, "name"))
		}
	}
	return names
}

// runLive runs the program with a cluster.
func (s *session) runLive(ctx context.Context) (err error) {
	l := s.live
	if l.authority, err = s.certify(l.hosts...); err != nil {
		return err
	}
	p := s.programs[0]
	p.gate = gateOf(p, true)
	if l.front, err = newFront(l, p.gate, p.address(), p.files); err != nil {
		return err
	}
	if err := l.try(ctx); err != nil {
		return err
	}
	kubeconfig := filepath.Join(s.dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, l.Kubeconfig, 0o600); err != nil {
		return err
	}
	if err := s.project.prepare(l.authority, certificateIn(p.files)); err != nil {
		return err
	}
	s.content.add(s.project.objects)
	if err := s.furnish(p, kubeconfig, nil); err != nil {
		return err
	}
	if p.workload != nil {
		s.sayAssumed(p)
	}
	released, err := l.Guard(l.id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := l.front.serve(l.listener); !errors.Is(err, http.ErrServerClosed) {
			cancel(fmt.Errorf("serving: %w", err))
		}
	})
	leave := sync.OnceValue(func() error {
		cancel(nil)
		end, done := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
		defer done()
		return l.leave(end)
	})
	// The cluster uses its own webhooks again when the program ends.
	s.leaving = func() { _ = leave() }
	defer func() {
		left := leave()
		end, done := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
		defer done()
		l.front.close(end)
		running.Wait()
		if left == nil {
			// On failure, the guard retries.
			released()
		}
		if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
			err = cause
		}
		err = errors.Join(err, left)
	}()
	begun := false
	s.served = func(ctx context.Context) error {
		if begun {
			return l.serves(ctx, true)
		}
		if err := l.begin(ctx); err != nil {
			return err
		}
		begun = true
		running.Go(func() {
			cancel(temporary.Keep(ctx, l.renew, func(err error) {
				if err != nil {
					s.Say("The registrations cannot be renewed: %v. The cluster uses its own webhooks meanwhile.", err)
				} else {
					s.Say("The registrations are renewed again.")
				}
			}))
		})
		s.Ready(Ready{Requests: l.claim(), Cluster: l.Cluster.Host, Webhooks: l.webhooks(), Port: p.port, Certificates: p.files})
		return nil
	}
	s.ended = func(ctx context.Context) { _ = l.serves(ctx, false) }
	return s.loop(ctx, nil)
}
