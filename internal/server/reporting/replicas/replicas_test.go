package replicas

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gatehouse-dev/gatehouse/admission/announce"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/registrations"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/revisionmark"
	"github.com/gatehouse-dev/gatehouse/test/etcdtest"
)

const (
	root, prefix, mark = "/test", "/test/replicas", "/test/mark"
	resource           = "validatingwebhookconfigurations"
)

// store is an etcd.
type store struct {
	t      *testing.T
	client *etcdkubernetes.Client
	marked etcdkubernetes.Interface
	states *States
}

func newStore(t *testing.T) *store {
	t.Helper()
	client := etcdtest.Start(t)
	m := revisionmark.Mark{Key: mark}
	for _, c := range registrations.Collections(root) {
		m.Prefixes = append(m.Prefixes, c.Prefix)
	}
	nothing := About{
		Problems: func(context.Context, string, string) []v1alpha1.Problem { return nil },
		Costs:    func(string, string) []v1alpha1.ExpressionCost { return nil },
	}
	return &store{t: t, client: client, marked: revisionmark.Client(client.Kubernetes, client.KV, m), states: NewStates(client.KV, root, prefix, mark, nothing)}
}

// write writes a registration and returns the revision.
func (s *store) write(name string) int64 {
	s.t.Helper()
	key := root + "/" + resource + "/" + name
	old, err := s.marked.Get(s.t.Context(), key, etcdkubernetes.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	expected := int64(0)
	if old.KV != nil {
		expected = old.KV.ModRevision
	}
	r, err := s.marked.OptimisticPut(s.t.Context(), key, []byte("{}"), expected, etcdkubernetes.PutOptions{})
	if err != nil || !r.Succeeded {
		s.t.Fatalf("%+v, %v", r, err)
	}
	return r.Revision
}

func (s *store) remove(name string) int64 {
	s.t.Helper()
	key := root + "/" + resource + "/" + name
	old, err := s.marked.Get(s.t.Context(), key, etcdkubernetes.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := s.marked.OptimisticDelete(s.t.Context(), key, old.KV.ModRevision, etcdkubernetes.DeleteOptions{})
	if err != nil || !r.Succeeded {
		s.t.Fatalf("%+v, %v", r, err)
	}
	return r.Revision
}

// running announces a server until the returned function is called.
func (s *store) running(id string) (a *Announcer, stop func()) {
	s.t.Helper()
	a = NewAnnouncer(Options{Etcd: s.client.Client, Prefix: prefix, ID: id, Address: "https://" + id, MaxStaleness: 5 * time.Second})
	if err := a.Announce(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() {
		a.Run(ctx)
		close(done)
	}()
	stop = func() {
		cancel()
		<-done
	}
	s.t.Cleanup(stop)
	return a, stop
}

// adopt lets the announcer observe that the server took in a revision.
func adopt(a *Announcer, revision int64) {
	a.Observe(snapshot.Read{Begin: time.Now(), Changed: true, Snapshot: &snapshot.Snapshot{Revision: text(revision)}})
}

// summary is a state in short: the stored revision, and the revision that each server enforces.
type summary struct {
	Stored  string
	InForce bool
	By      map[string]string
}

func (s *store) summary(name string) summary {
	s.t.Helper()
	obj, err := s.states.Get(s.t.Context(), resource+"."+name, nil)
	if apierrors.IsNotFound(err) {
		return summary{}
	}
	if err != nil {
		s.t.Fatal(err)
	}
	state := obj.(*v1alpha1.RegistrationState)
	out := summary{Stored: state.Registration.ResourceVersion, InForce: state.InForce, By: map[string]string{}}
	for _, r := range state.Replicas {
		out.By[r.Name] = r.ResourceVersion
		if (r.Since == nil) != (r.ResourceVersion == "") && state.Registration.ResourceVersion != "" {
			s.t.Errorf("%s enforces %q since %v", r.Name, r.ResourceVersion, r.Since)
		}
	}
	return out
}

// eventually waits for a state, because announcements are written outside of requests.
func (s *store) eventually(what, name string, want summary) {
	s.t.Helper()
	var diff string
	err := wait.PollUntilContextTimeout(s.t.Context(), 5*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		diff = cmp.Diff(want, s.summary(name))
		return diff == "", nil
	})
	if err != nil {
		s.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestStatesSayWhatEachServerEnforces(t *testing.T) {
	s := newStore(t)
	first := s.write("podpolicy")
	s.eventually("nobody is there to enforce it", "podpolicy", summary{text(first), true, map[string]string{}})
	a, _ := s.running("a")
	b, stopB := s.running("b")
	s.eventually("announced, and nothing read", "podpolicy", summary{text(first), false, map[string]string{"a": "", "b": ""}})
	adopt(a, first)
	s.eventually("one has read it", "podpolicy", summary{text(first), false, map[string]string{"a": text(first), "b": ""}})
	adopt(b, first+1)
	s.eventually("both have", "podpolicy", summary{text(first), true, map[string]string{"a": text(first), "b": text(first)}})

	other := s.write("other")
	s.eventually("another one is written", "podpolicy", summary{text(first), true, map[string]string{"a": text(first), "b": text(first)}})
	s.eventually("and is in force nowhere", "other", summary{text(other), false, map[string]string{"a": "", "b": ""}})
	second := s.write("podpolicy")
	s.eventually("changed, they enforce what it was", "podpolicy", summary{text(second), false, map[string]string{"a": text(first), "b": text(first)}})
	adopt(a, second)
	adopt(b, other)
	s.eventually("one enforces the change", "podpolicy", summary{text(second), false, map[string]string{"a": text(second), "b": text(first)}})
	stopB()
	s.eventually("the other one is gone", "podpolicy", summary{text(second), true, map[string]string{"a": text(second)}})
	gone := s.remove("podpolicy")
	s.eventually("deleted, and enforced", "podpolicy", summary{"", false, map[string]string{"a": text(second)}})

	list, err := s.states.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, item := range list.(*v1alpha1.RegistrationStateList).Items {
		names = append(names, item.Name)
	}
	if diff := cmp.Diff([]string{resource + ".other", resource + ".podpolicy"}, names); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	adopt(a, gone)
	s.eventually("deleted, and not enforced", "podpolicy", summary{})
}

// States have no labels: selectors that ask for one select none.
func TestStatesAreSelected(t *testing.T) {
	s := newStore(t)
	s.write("other")
	s.write("podpolicy")
	for _, c := range []struct {
		labels, fields string
		want           []string
	}{
		{want: []string{resource + ".other", resource + ".podpolicy"}},
		{labels: "a=b"},
		{labels: "a"},
		{labels: "a in (b)"},
		{labels: "a!=b", want: []string{resource + ".other", resource + ".podpolicy"}},
		{labels: "!a", fields: "metadata.name=" + resource + ".other", want: []string{resource + ".other"}},
		{labels: "a=b", fields: "metadata.name=" + resource + ".other"},
		{fields: "metadata.name=none"},
	} {
		t.Run("labels "+c.labels+" fields "+c.fields, func(t *testing.T) {
			l, err := labels.Parse(c.labels)
			if err != nil {
				t.Fatal(err)
			}
			f, err := fields.ParseSelector(c.fields)
			if err != nil {
				t.Fatal(err)
			}
			list, err := s.states.List(t.Context(), &metainternalversion.ListOptions{LabelSelector: l, FieldSelector: f})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, item := range list.(*v1alpha1.RegistrationStateList).Items {
				got = append(got, item.Name)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A server took in nothing for so long that etcd has compacted the revision that it took in last.
func TestStatesAfterCompaction(t *testing.T) {
	s := newStore(t)
	first := s.write("podpolicy")
	a, _ := s.running("a")
	adopt(a, first)
	s.eventually("in force", "podpolicy", summary{text(first), true, map[string]string{"a": text(first)}})
	put, err := s.client.Client.Put(t.Context(), "/test/x", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Client.Compact(t.Context(), put.Header.Revision); err != nil {
		t.Fatal(err)
	}
	second := s.write("podpolicy")
	s.eventually("changed", "podpolicy", summary{text(second), false, map[string]string{"a": text(first)}})
}

func TestStatesThatAreNot(t *testing.T) {
	s := newStore(t)
	for _, name := range []string{"podpolicy", resource, resource + ".", resource + ".podpolicy", "pods.x", ""} {
		if _, err := s.states.Get(t.Context(), name, &metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A server whose lease was revoked announces itself again. Admission does not use reads from the
// time in between.
func TestLostAnnouncementIsMadeAgain(t *testing.T) {
	s := newStore(t)
	first := s.write("podpolicy")
	a, _ := s.running("a")
	adopt(a, first)
	s.eventually("in force", "podpolicy", summary{text(first), true, map[string]string{"a": text(first)}})
	if err := a.Covers(time.Now()); err != nil {
		t.Errorf("just announced: %v", err)
	}
	if err := a.Covers(time.Now().Add(a.Lifetime() - 4*time.Second)); err == nil {
		t.Error("a read is covered that may be used when the announcement is gone")
	}
	leases, err := s.client.Client.Leases(t.Context())
	if err != nil || len(leases.Leases) != 1 {
		t.Fatalf("%+v, %v", leases, err)
	}
	if _, err := s.client.Client.Revoke(t.Context(), leases.Leases[0].ID); err != nil {
		t.Fatal(err)
	}
	s.eventually("gone", "podpolicy", summary{text(first), true, map[string]string{}})
	second := s.write("podpolicy")
	adopt(a, second)
	s.eventually("back", "podpolicy", summary{text(second), true, map[string]string{"a": text(second)}})
}

// A server is alone until another one is announced, whether or not it is announced itself.
func TestAServerIsAloneUntilAnotherIsAnnounced(t *testing.T) {
	s := newStore(t)
	check := func(a *Announcer, want bool) {
		t.Helper()
		if alone, err := a.Alone(t.Context()); err != nil || alone != want {
			t.Errorf("alone: %t, %v; want %t", alone, err, want)
		}
	}
	silent := NewAnnouncer(Options{Etcd: s.client.Client, Prefix: prefix, ID: "silent", MaxStaleness: time.Second})
	check(silent, true)
	a, stop := s.running("a")
	check(a, true)
	check(silent, false)
	b, _ := s.running("b")
	check(a, false)
	stop()
	check(b, true)
}

// The state of a registration names the webhooks that a server does not call. The server writes
// its announcement again only when they change.
func TestSkippedWebhooksAreTold(t *testing.T) {
	s := newStore(t)
	first := s.write("podpolicy")
	s.write("other")
	a, _ := s.running("a")
	adopt(a, first+1)
	skipped := announce.Skipped{Registration: resource + ".podpolicy", Webhook: "w.example.com", Target: "127.0.0.1:1", Since: time.Now().UTC().Truncate(time.Second), Reason: strings.Repeat("é", announce.MaxReason)}
	told := func(name string) []v1alpha1.SkippedWebhook {
		obj, err := s.states.Get(t.Context(), resource+"."+name, nil)
		if err != nil {
			t.Fatal(err)
		}
		return obj.(*v1alpha1.RegistrationState).Replicas[0].Skipped
	}
	await := func(n int) {
		t.Helper()
		if err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
			return len(told("podpolicy")) == n, nil
		}); err != nil {
			t.Fatalf("%v: %+v", err, told("podpolicy"))
		}
	}
	a.Skip([]announce.Skipped{skipped})
	await(1)
	got := told("podpolicy")[0]
	if got.Webhook != skipped.Webhook || got.Target != skipped.Target || !got.Since.Time.Equal(skipped.Since) || len(got.Reason) > announce.MaxReason+len("...") || !strings.HasPrefix(got.Reason, "éé") {
		t.Errorf("%+v", got)
	}
	if other := told("other"); len(other) > 0 {
		t.Errorf("of another registration: %+v", other)
	}
	news := a.News()
	skipped.Reason = "another one"
	a.Skip([]announce.Skipped{skipped})
	if a.News() != news {
		t.Error("the server announces a webhook again because its reason changed")
	}
	a.Skip(nil)
	await(0)
	a.Skip(make([]announce.Skipped, 10_000))
	if said, _ := a.Current(); len(said.Skipped) != announce.MaxSkipped {
		t.Errorf("the server reported %d skipped webhooks", len(said.Skipped))
	}
}

// Renewing writes nothing, and announcements are bounded.
func TestAnnouncementsAreSmall(t *testing.T) {
	s := newStore(t)
	a, _ := s.running("a")
	for revision := range int64(1000) {
		adopt(a, revision+1)
	}
	var got *clientv3.GetResponse
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		var err error
		got, err = s.client.Client.Get(ctx, prefix+"/a")
		if err == nil && len(got.Kvs) == 0 {
			err = errors.New("it is gone")
		}
		// After the last revision nothing is left to announce.
		return err == nil && strings.Contains(string(got.Kvs[0].Value), `"revision":1000,`), err
	})
	if err != nil {
		t.Fatal(err)
	}
	if size := len(got.Kvs[0].Value); size > 100*announce.Remembered {
		t.Errorf("%d bytes", size)
	}
	before := got.Header.Revision
	if err := a.renewLease(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err = s.client.Client.Get(t.Context(), prefix+"/a"); err != nil || got.Header.Revision != before {
		t.Errorf("revision %d after renewing, %d before: %v", got.Header.Revision, before, err)
	}
}

// S11.65: while the database of etcd is full, no server can announce itself, and no client can write or
// delete a registration. A server that starts then handles requests without the announcement, and
// announces itself as soon as there is room.
func TestAFullDatabaseKeepsNoServerFromJudging(t *testing.T) {
	s := newStore(t)
	s.write("there")
	alarm := func(action etcdserverpb.AlarmRequest_AlarmAction) {
		t.Helper()
		status, err := s.client.Status(t.Context(), s.client.Endpoints()[0])
		if err != nil {
			t.Fatal(err)
		}
		_, err = etcdserverpb.NewMaintenanceClient(s.client.ActiveConnection()).Alarm(t.Context(), &etcdserverpb.AlarmRequest{
			Action: action, MemberID: status.Header.MemberId, Alarm: etcdserverpb.AlarmType_NOSPACE,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	alarm(etcdserverpb.AlarmRequest_ACTIVATE)
	old, err := s.marked.Get(t.Context(), root+"/"+resource+"/there", etcdkubernetes.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.marked.OptimisticDelete(t.Context(), root+"/"+resource+"/there", old.KV.ModRevision, etcdkubernetes.DeleteOptions{}); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a registration is deleted although the database is full: %v", err)
	}
	a, _ := s.running("a")
	if err := a.Covers(time.Now()); err != nil {
		t.Errorf("a server that cannot be announced does not judge: %v", err)
	}
	alarm(etcdserverpb.AlarmRequest_DEACTIVATE)
	if err := wait.PollUntilContextCancel(t.Context(), 10*time.Millisecond, true, func(context.Context) (bool, error) {
		return cmp.Equal(s.summary("there").By, map[string]string{"a": ""}), nil
	}); err != nil {
		t.Fatal("the server does not announce itself when there is room again")
	}
	if err := a.Covers(time.Now()); err != nil {
		t.Errorf("the announced server does not judge: %v", err)
	}
}
