package storage

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/inflight"
)

// A list that waits for its turn equals the list without turns, object by object and with the same
// metadata. Only lists of all objects take a turn, and only long ones.
func TestLongListsTakeTurns(t *testing.T) {
	f := newFactory(t)
	long, short := open(t, f, "long"), open(t, f, "short")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	awaitProgress(ctx, t)
	create(t, short, "short", "one")
	group, _ := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range longList + 1 {
		group.Go(func() error {
			obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), Namespace: "ns"}}
			return long.Create(ctx, fmt.Sprint("/long/", i), obj, nil, 0)
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	whole := &corev1.ConfigMapList{}
	if err := long.GetList(ctx, "/long/", apistorage.ListOptions{Recursive: true, Predicate: everything()}, whole); err != nil {
		t.Fatal(err)
	}
	page := &corev1.ConfigMapList{}
	limited := everything()
	limited.Limit = 5
	if err := long.GetList(ctx, "/long/", apistorage.ListOptions{Recursive: true, Predicate: limited}, page); err != nil {
		t.Fatal(err)
	}
	continued := everything()
	continued.Continue = page.Continue
	selected := everything()
	selected.Field = fields.OneTermEqualSelector("metadata.name", "7")
	labelled := everything()
	labelled.Label = labels.Set{"a": "b"}.AsSelector()
	at := func(version string, match metav1.ResourceVersionMatch, p apistorage.SelectionPredicate) apistorage.ListOptions {
		return apistorage.ListOptions{ResourceVersion: version, ResourceVersionMatch: match, Predicate: p, Recursive: true}
	}
	const exact, newer = metav1.ResourceVersionMatchExact, metav1.ResourceVersionMatchNotOlderThan
	for _, c := range []struct {
		name     string
		store    apistorage.Interface
		key      string
		opts     apistorage.ListOptions
		turn     bool
		noObject bool
	}{
		{"consistent", long, "/long/", at("", "", everything()), false, false},
		{"at any version", long, "/long/", at("0", "", everything()), true, false},
		{"at any version, in words", long, "/long/", at("0", newer, everything()), true, false},
		{"at any version, with a limit that does not count", long, "/long/", at("0", "", limited), true, false},
		{"not older", long, "/long/", at(whole.ResourceVersion, "", everything()), true, false},
		{"not older, in words", long, "/long/", at(whole.ResourceVersion, newer, everything()), true, false},
		{"exact", long, "/long/", at(whole.ResourceVersion, exact, everything()), false, false},
		{"a page", long, "/long/", at("", "", limited), false, false},
		{"the other pages", long, "/long/", at("", "", continued), false, false},
		{"by field", long, "/long/", at("0", "", selected), false, false},
		{"by label", long, "/long/", at("", "", labelled), false, true},
		{"nothing", long, "/long/none/", at("", "", everything()), false, true},
		{"few objects", short, "/short/", at("", "", everything()), false, false},
		{"few objects at any version", short, "/short/", at("0", "", everything()), false, false},
		{"one object", short, "/short/one", apistorage.ListOptions{Predicate: everything()}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, got := &corev1.ConfigMapList{}, &corev1.ConfigMapList{}
			if err := c.store.GetList(ctx, c.key, c.opts, want); err != nil {
				t.Fatal(err)
			}
			turns, end := inflight.WithTurns(ctx)
			defer end()
			if err := c.store.GetList(turns, c.key, c.opts, got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the list with turns differs (-without +with):\n%s", diff)
			}
			if len(got.Items) == 0 != c.noObject {
				t.Errorf("%d objects", len(got.Items))
			}
			if taken := !inflight.HasTurns(turns); taken != c.turn {
				t.Errorf("took a turn: %v, want %v", taken, c.turn)
			}
		})
	}
}
