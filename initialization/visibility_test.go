package initialization

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// list returns the names that a client's list finds, in pages of limit.
func (e *env) list(r Reading, p apistorage.SelectionPredicate, version string) []string {
	e.t.Helper()
	if p.Label == nil {
		p.Label = labels.Everything()
	}
	if p.Field == nil {
		p.Field = fields.Everything()
	}
	p.GetAttrs = apistorage.DefaultNamespaceScopedAttr
	names := []string{}
	for {
		out := &corev1.ConfigMapList{}
		err := e.store.GetList(WithReading(e.ctx, r), "/configmaps/", apistorage.ListOptions{
			ResourceVersion: version, Recursive: true, Predicate: p,
		}, out)
		if err != nil {
			e.t.Fatal(err)
		}
		for _, item := range out.Items {
			names = append(names, item.Name)
		}
		if p.Continue = out.Continue; p.Continue == "" {
			return names
		}
	}
}

func TestListsHideUninitializedObjects(t *testing.T) {
	e := newEnv(t)
	var all, plain []string
	var last string
	for i := range 20 {
		name := fmt.Sprintf("o%02d", i)
		o := object(name)
		if i%3 == 0 {
			o = object(name, "a.example.com")
		} else {
			plain = append(plain, name)
		}
		all = append(all, name)
		o.Labels = map[string]string{"parity": []string{"even", "odd"}[i%2]}
		last = e.create(o, nil).ResourceVersion
	}
	// A list from the cache may be of any age: this one waits until the cache has
	// the last object.
	e.list(Reading{}, apistorage.SelectionPredicate{}, last)
	odd := func(names []string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return strings.IndexByte("13579", n[2]) < 0 })
	}
	for _, test := range []struct {
		name       string
		predicate  apistorage.SelectionPredicate
		version    string
		want, hide []string
	}{
		{name: "S11.31 from etcd", want: all, hide: plain},
		{name: "S11.31 from the cache", version: "0", want: all, hide: plain},
		{name: "S11.31 in pages", predicate: apistorage.SelectionPredicate{Limit: 4}, want: all, hide: plain},
		{name: "S11.31 by label", predicate: apistorage.SelectionPredicate{Label: labels.SelectorFromSet(labels.Set{"parity": "odd"})}, want: odd(all), hide: odd(plain)},
		{name: "S11.31 by the name of an uninitialized object", predicate: apistorage.SelectionPredicate{Field: fields.OneTermEqualSelector("metadata.name", "o00")}, want: []string{"o00"}, hide: []string{}},
		{name: "S11.31 by the name of an initialized object", predicate: apistorage.SelectionPredicate{Field: fields.OneTermEqualSelector("metadata.name", "o01")}, want: []string{"o01"}, hide: []string{"o01"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := e.list(Reading{}, test.predicate, test.version); !slices.Equal(got, test.want) {
				t.Errorf("all: %v, want %v", got, test.want)
			}
			if got := e.list(Reading{Hide: true}, test.predicate, test.version); !slices.Equal(got, test.hide) {
				t.Errorf("initialized: %v, want %v", got, test.hide)
			}
		})
	}
}

func TestWatchTransitions(t *testing.T) {
	e := newEnv(t)
	start := e.create(object("start"), nil).ResourceVersion
	all := e.watcher(Reading{}, nil, start)
	plain := e.watcher(Reading{Hide: true}, nil, start)
	named := e.watcher(Reading{Hide: true}, fields.OneTermEqualSelector("metadata.name", "o"), start)

	e.create(object("o", "a.example.com", "b.example.com"), nil)
	e.write(e.store, "o", setField(field("b.example.com")))
	e.write(e.store, "o", setField(nil))
	e.write(e.store, "o", func(c *corev1.ConfigMap) { c.Data = map[string]string{"x": "y"} })
	e.create(object("gone", "a.example.com"), nil)
	for _, name := range []string{"gone", "o"} {
		err := e.store.Delete(e.ctx, keyOf(name), &corev1.ConfigMap{}, nil, apistorage.ValidateAllObjectFunc, nil, apistorage.DeleteOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name string
		next func() string
		want []string
	}{
		{"S11.32 who includes them sees all", func() string { return e.next(all) }, []string{
			"ADDED o a b", "MODIFIED o b", "MODIFIED o initialized", "MODIFIED o initialized",
			"ADDED gone a", "DELETED gone a", "DELETED o initialized"}},
		{"S11.32 to others it is added when it is initialized", func() string { return e.next(plain) }, []string{
			"ADDED o initialized", "MODIFIED o initialized", "DELETED o initialized"}},
		{"S11.31 a watch of one name", func() string { return e.next(named) }, []string{
			"ADDED o initialized", "MODIFIED o initialized", "DELETED o initialized"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for i, want := range test.want {
				if got := test.next(); got != want {
					t.Fatalf("event %d: %q, want %q", i, got, want)
				}
			}
		})
	}
}

func TestGetsHideUninitializedObjects(t *testing.T) {
	e := newEnv(t)
	e.create(object("o", "a.example.com"), nil)
	t.Run("S11.33 as if absent", func(t *testing.T) {
		if got := e.get("o", Reading{Hide: true}); got != nil {
			t.Errorf("got %v", got)
		}
	})
	t.Run("S11.33 with the parameter it is there", func(t *testing.T) {
		if got := show(t, e.get("o", Reading{})); got != "a" {
			t.Errorf("the object is %s", got)
		}
	})
	t.Run("S11.33 nothing is left of what was there before", func(t *testing.T) {
		out := object("previous content")
		err := e.store.Get(WithReading(e.ctx, Reading{Hide: true}), keyOf("o"), apistorage.GetOptions{IgnoreNotFound: true}, out)
		if err != nil || out.Name != "" {
			t.Errorf("error %v, object %v", err, out)
		}
	})
	t.Run("S11.30 the name is taken", func(t *testing.T) {
		err := e.store.Create(e.ctx, keyOf("o"), object("o"), &corev1.ConfigMap{}, 0)
		if !apistorage.IsExist(err) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("S11.31 another server hides it too", func(t *testing.T) {
		after := newEnvAt(t, e.prefix)
		if got := after.list(Reading{Hide: true}, apistorage.SelectionPredicate{}, ""); len(got) != 0 {
			t.Errorf("listed %v", got)
		}
		if got := after.list(Reading{}, apistorage.SelectionPredicate{}, ""); len(got) != 1 {
			t.Errorf("listed %v", got)
		}
	})
	t.Run("S11.33 Show decides about an uninitialized object", func(t *testing.T) {
		e.create(object("initialized"), nil)
		for _, show := range []bool{false, true} {
			var asked []string
			reading := Reading{Hide: true, Show: func(field *initializers.Initializers) bool {
				asked = append(asked, field.Pending[0].Name)
				return show
			}}
			if got := e.get("o", reading); (got != nil) != show {
				t.Errorf("Show says %v, got %v", show, got)
			}
			if got := e.get("initialized", reading); got == nil {
				t.Error("the initialized object is hidden")
			}
			if !slices.Equal(asked, []string{"a.example.com"}) {
				t.Errorf("Show was asked about %v", asked)
			}
		}
	})
}
