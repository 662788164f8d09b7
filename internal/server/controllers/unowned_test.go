package controllers

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

func objectNumber(n int) *metav1.PartialObjectMetadata {
	id := fmt.Sprintf("6f1a8e3c-5f0e-4a55-9d3e-%012d", n)
	if n%5 == 4 {
		id = fmt.Sprint("odd-", n)
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("o", n), UID: types.UID(id)}}
}

// TestWhatIsUnownedIsHidden does things to objects at random. Whatever a collector needs is in
// what an informer would have of a kind, and nothing is there that is gone.
func TestWhatIsUnownedIsHidden(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		all := newOwners()
		kind := all.of(admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicybindings"))
		// exists is what the server has, named what other objects name, and informed what an
		// informer has.
		exists, informed := map[types.UID]*metav1.PartialObjectMetadata{}, map[types.UID]string{}
		var named []metav1.OwnerReference
		version, hidden := 0, 0
		receive := func(events []watch.Event) {
			for _, e := range events {
				obj := e.Object.(*metav1.PartialObjectMetadata)
				switch e.Type {
				case watch.Added, watch.Modified:
					informed[obj.UID] = obj.Name
				case watch.Deleted:
					delete(informed, obj.UID)
				}
			}
		}
		list := func() {
			objects := make([]metav1.PartialObjectMetadata, 0, len(exists))
			for _, o := range exists {
				objects = append(objects, *o)
			}
			clear(informed)
			half := r.IntN(len(objects) + 1)
			for i, part := range [][]metav1.PartialObjectMetadata{objects[:half:half], objects[half:]} {
				page := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(version)}, Items: slices.Clone(part)}
				if i == 0 {
					page.Continue = "more"
				}
				kind.page(page, i == 0)
				for _, o := range page.Items {
					informed[o.UID] = o.Name
				}
				if i == 0 && r.IntN(2) == 0 {
					ref := metav1.OwnerReference{UID: objectNumber(r.IntN(20)).UID}
					named = append(named, ref)
					all.name(nil, []metav1.OwnerReference{ref})
				}
			}
		}
		list()
		for step := range 200 {
			version++
			o := objectNumber(r.IntN(20))
			o.ResourceVersion = fmt.Sprint(version)
			if r.IntN(4) == 0 {
				o.OwnerReferences = []metav1.OwnerReference{{UID: "x"}}
			}
			if r.IntN(6) == 0 {
				o.DeletionTimestamp = &metav1.Time{}
			}
			_, is := exists[o.UID]
			// The watch may come first, or the news.
			if r.IntN(2) == 0 {
				receive(kind.next(nil))
			}
			switch do := r.IntN(9); {
			case do < 3 && !is:
				exists[o.UID] = o
				receive(kind.next(&watch.Event{Type: watch.Added, Object: o.DeepCopy()}))
			case do < 4 && is:
				exists[o.UID] = o
				receive(kind.next(&watch.Event{Type: watch.Modified, Object: o.DeepCopy()}))
			case do < 6 && is:
				delete(exists, o.UID)
				receive(kind.next(&watch.Event{Type: watch.Deleted, Object: o.DeepCopy()}))
			case do == 6:
				ref := metav1.OwnerReference{UID: o.UID}
				named = append(named, ref)
				all.name(nil, []metav1.OwnerReference{ref})
			case do == 7 && len(named) > 0:
				i := r.IntN(len(named))
				all.name([]metav1.OwnerReference{named[i]}, nil)
				named = slices.Delete(named, i, i+1)
			case do == 8 && r.IntN(5) == 0:
				list()
			}
			if r.IntN(2) == 0 {
				continue
			}
			receive(kind.next(nil))
			for id, o := range exists {
				needed := len(o.OwnerReferences) > 0 || o.DeletionTimestamp != nil ||
					slices.ContainsFunc(named, func(ref metav1.OwnerReference) bool { return ref.UID == id })
				name, ok := informed[id]
				if needed && !ok || ok && name != o.Name {
					t.Fatalf("seed %d, step %d: %s is known as %q", seed, step, o.Name, name)
				}
				if !ok {
					hidden++
				}
			}
			for id, name := range informed {
				if exists[id] == nil {
					t.Fatalf("seed %d, step %d: %s is gone and known", seed, step, name)
				}
			}
		}
		if hidden == 0 {
			t.Fatalf("seed %d: nothing was hidden", seed)
		}
		all.name(named, nil)
		if len(all.named) > 0 {
			t.Fatalf("seed %d: %v are named by nothing", seed, all.named)
		}
	}
}

// TestAHidingWatchShowsWhatIsNamed: without an event of the watch, and it ends with the watch or
// when it is stopped.
func TestAHidingWatchShowsWhatIsNamed(t *testing.T) {
	all := newOwners()
	kind := all.of(admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicybindings"))
	of := watch.NewFake()
	w := newHidingWatch(of, kind)
	o := objectNumber(1)
	o.ResourceVersion = "7"
	of.Add(o)
	if e := <-w.ResultChan(); e.Type != watch.Bookmark || e.Object.(*metav1.PartialObjectMetadata).ResourceVersion != "7" {
		t.Errorf("what is unowned is shown: %+v", e)
	}
	all.name(nil, []metav1.OwnerReference{{UID: o.UID}})
	e := <-w.ResultChan()
	if got := e.Object.(*metav1.PartialObjectMetadata); e.Type != watch.Added || got.UID != o.UID || got.Name != o.Name || got.ResourceVersion != "7" {
		t.Errorf("what is named is not shown: %+v", e)
	}
	of.Stop()
	if e, ok := <-w.ResultChan(); ok {
		t.Errorf("after the end of the watch: %+v", e)
	}
	stopped := newHidingWatch(watch.NewFake(), kind)
	stopped.Stop()
	if e, ok := <-stopped.ResultChan(); ok {
		t.Errorf("after it was stopped: %+v", e)
	}
}

// BenchmarkUnowned reports the memory that an object of a kind takes which the collector has no use
// for: hidden, and in an informer's store, without what the collector keeps of it.
//
//	go test ./internal/server/controllers -run '^$' -bench Unowned -benchtime 1x
func BenchmarkUnowned(b *testing.B) {
	const objects = 100_000
	made := func(n int) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("binding-%06d", n), UID: types.UID(fmt.Sprintf("6f1a8e3c-5f0e-4a55-9d3e-%012d", n)), ResourceVersion: fmt.Sprint(n),
		}}
	}
	for name, keep := range map[string]func() (any, func(*metav1.PartialObjectMetadata)){
		"hidden": func() (any, func(*metav1.PartialObjectMetadata)) {
			kind := newOwners().of(admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicybindings"))
			return kind, func(obj *metav1.PartialObjectMetadata) { kind.sees(obj) }
		},
		"informed": func() (any, func(*metav1.PartialObjectMetadata)) {
			store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			return store, func(obj *metav1.PartialObjectMetadata) { _ = store.Add(obj) }
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				kept, add := keep()
				for n := range objects {
					add(made(n))
				}
				b.ReportMetric(float64(heap()-before)/objects, "B/object")
				runtime.KeepAlive(kept)
			}
		})
	}
}

// heap is how many bytes are alive on the heap.
func heap() int64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}
