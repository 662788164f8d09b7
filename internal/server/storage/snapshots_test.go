package storage

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
)

// compactions are the compactions that a cache was asked for.
type compactions []string

func (c *compactions) Compact(version string) error {
	*c = append(*c, version)
	return nil
}

func TestSnapshotsStayWhileListsAskForThem(t *testing.T) {
	page := func(limit int64, token string) apistorage.SelectionPredicate {
		return apistorage.SelectionPredicate{Limit: limit, Continue: token}
	}
	for name, test := range map[string]struct {
		list apistorage.ListOptions
		keep bool
	}{
		"a list":                          {},
		"a list at version 0":             {list: apistorage.ListOptions{ResourceVersion: "0", Predicate: page(10, "")}},
		"a list that is not older":        {list: apistorage.ListOptions{ResourceVersion: "7", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}},
		"a first page":                    {list: apistorage.ListOptions{Predicate: page(10, "")}},
		"another page":                    {list: apistorage.ListOptions{Predicate: page(10, "token")}, keep: true},
		"an exact version":                {list: apistorage.ListOptions{ResourceVersion: "7", ResourceVersionMatch: metav1.ResourceVersionMatchExact}, keep: true},
		"an exact version, the older way": {list: apistorage.ListOptions{ResourceVersion: "7", Predicate: page(10, "")}, keep: true},
	} {
		t.Run(name, func(t *testing.T) {
			now, forgotten, version := time.Now(), &compactions{}, 0
			s := newSnapshots(func() time.Time { return now })
			attrs := s.attributes(apistorage.DefaultNamespaceScopedAttr)
			s.of(forgotten)
			events := func() []string {
				*forgotten = nil
				for range keptSnapshots {
					version++
					if _, _, err := attrs(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(version)}}); err != nil {
						t.Fatal(err)
					}
				}
				return *forgotten
			}
			if got, want := events(), []string{strconv.Itoa(keptSnapshots - 1)}; !slices.Equal(got, want) {
				t.Errorf("before the list, snapshots were forgotten before %v, want %v", got, want)
			}
			s.list(test.list)
			now = now.Add(keepSnapshots - time.Second)
			if got := events(); (len(got) == 0) != test.keep {
				t.Errorf("after the list, snapshots were forgotten before %v; they are kept: %t", got, test.keep)
			}
			now = now.Add(time.Second)
			if got, want := events(), []string{strconv.Itoa(3*keptSnapshots - 1)}; !slices.Equal(got, want) {
				t.Errorf("a while later, snapshots were forgotten before %v, want %v", got, want)
			}
		})
	}
}

// The pages of a list have the objects of the time of the first page, whether the cache still has a
// snapshot of them or not.
func TestPagesAreTheSameWithAndWithoutSnapshots(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f := newFactory(t)
	store := open(t, f, "things").(*lazy)
	awaitProgress(ctx, t)
	made := 0
	more := func(n int) {
		for range n {
			create(t, store, "things", fmt.Sprintf("thing-%04d", made))
			made++
		}
	}
	more(10)
	list := func(limit int64, token string) (names []string, next, version string) {
		t.Helper()
		predicate := everything()
		predicate.Limit, predicate.Continue = limit, token
		var list corev1.ConfigMapList
		if err := store.GetList(ctx, "/things/", apistorage.ListOptions{Recursive: true, Predicate: predicate}, &list); err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			names = append(names, item.Name)
		}
		return names, list.Continue, list.ResourceVersion
	}
	// snapshot reports whether the cache has the objects of a version.
	snapshot := func(version string) bool {
		t.Helper()
		result, err := store.used().cacher.ShouldDelegateExactRV(version, true)
		if err != nil {
			t.Fatal(err)
		}
		return !result.ShouldDelegate
	}
	for _, round := range []struct {
		name string
		has  bool
	}{{"before the first list by pages", false}, {"after a list by pages", true}} {
		first, token, version := list(4, "")
		before := made
		if !snapshot(version) {
			t.Errorf("%s: the cache has no snapshot of version %s, the last one", round.name, version)
		}
		more(2 * keptSnapshots)
		if all, _, _ := list(0, ""); len(all) != made {
			t.Fatalf("%d objects, want %d", len(all), made)
		}
		if got := snapshot(version); got != round.has {
			t.Errorf("%s: the cache has a snapshot of version %s: %t, want %t", round.name, version, got, round.has)
		}
		got := first
		for token != "" {
			var names []string
			names, token, _ = list(50, token)
			got = append(got, names...)
		}
		var want []string
		for i := range before {
			want = append(want, fmt.Sprintf("thing-%04d", i))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: the pages (-want +got):\n%s", round.name, diff)
		}
	}
}

var _ compacting = (*cacher.Cacher)(nil)
