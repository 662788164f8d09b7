package initialization

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/testapigroup"
	"k8s.io/apimachinery/pkg/apis/testapigroup/install"
	testv1 "k8s.io/apimachinery/pkg/apis/testapigroup/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// carpStore is a store that counts the objects that it copies for lists.
type carpStore struct {
	apistorage.Interface
	all    *testapigroup.CarpList
	copied int
}

func (s *carpStore) GetList(_ context.Context, _ string, opts apistorage.ListOptions, list runtime.Object) error {
	out := list.(*testapigroup.CarpList)
	out.ListMeta, out.Items = s.all.ListMeta, []testapigroup.Carp{}
	for i := range s.all.Items {
		if ok, err := opts.Predicate.Matches(&s.all.Items[i]); err != nil {
			return err
		} else if ok {
			out.Items = append(out.Items, s.all.Items[i])
			s.copied++
		}
	}
	return nil
}

// A list reads only the objects that are not kept, and equals the encoding of all objects by k8s.io/apiserver.
func TestListsReadWhatIsNotKept(t *testing.T) {
	known := runtime.NewScheme()
	install.Install(known)
	metav1.AddToGroupVersion(known, testv1.SchemeGroupVersion)
	base := Codecs(known)
	uninitialized := func(i int) *testapigroup.CarpList {
		list := carps(20, "1")
		initializers.Set(&list.Items[i], &initializers.Initializers{Pending: []initializers.Initializer{{Name: "a.example.com"}}})
		list.Items[i].ResourceVersion = "3"
		return list
	}
	changed := carps(20, "1")
	changed.Items[7].ResourceVersion, changed.Items[7].Spec.Hostname = "2", "changed"
	fewer := carps(20, "1")
	fewer.Items = fewer.Items[3:8]
	for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(mediaType, func(t *testing.T) {
			codec := NewStoredCodec(base)
			info, _ := runtime.SerializerInfoForMediaType(base.SupportedMediaTypes(), mediaType)
			d := New(Options{})
			t.Cleanup(d.Close)
			for n, c := range []struct {
				all    *testapigroup.CarpList
				hide   bool
				copied int
			}{
				{carps(20, "1"), false, 20}, {carps(20, "1"), false, 20}, {carps(20, "1"), false, 0},
				{changed, false, 1}, {changed, false, 0}, {fewer, true, 1}, {&testapigroup.CarpList{}, true, 0},
				{uninitialized(0), false, 1}, {uninitialized(0), false, 0}, {uninitialized(0), true, 0}, {uninitialized(9), true, 1},
			} {
				inner := &carpStore{all: c.all}
				store := d.Store(testv1.Resource("carps"), "/carps", func() runtime.Object { return &testapigroup.Carp{} }, inner)
				ctx, listing, l := WithListing(WithReading(t.Context(), Reading{Hide: c.hide}), codec, info.Serializer, testv1.SchemeGroupVersion)
				list := &testapigroup.CarpList{}
				opts := apistorage.ListOptions{Recursive: true, Predicate: apistorage.SelectionPredicate{Label: labels.Everything(), Field: fields.Everything(), GetAttrs: apistorage.DefaultNamespaceScopedAttr}}
				if err := store.GetList(ctx, "/carps", opts, list); err != nil {
					t.Fatal(err)
				}
				if !l.Joins(list) {
					t.Error("the list is not that of the store")
				}
				var want, got bytes.Buffer
				shown := c.all.DeepCopy()
				if c.hide {
					shown.Items = slices.DeleteFunc(shown.Items, func(c testapigroup.Carp) bool { return initializers.Has(&c) })
				}
				if err := NewCodec(base).EncoderForVersion(info.Serializer, testv1.SchemeGroupVersion).Encode(shown, &want); err != nil {
					t.Fatal(err)
				}
				if err := listing.EncoderForVersion(info.Serializer, testv1.SchemeGroupVersion).Encode(list, &got); err != nil {
					t.Fatal(err)
				}
				if mediaType == runtime.ContentTypeJSON && len(shown.Items) == 0 {
					// The handler sets the items of an empty list.
					got, want = bytes.Buffer{}, bytes.Buffer{}
				}
				if !bytes.Equal(want.Bytes(), got.Bytes()) {
					t.Errorf("list %d: %s", n, cmp.Diff(want.String(), got.String()))
				}
				if inner.copied != c.copied {
					t.Errorf("list %d: %d objects were copied, want %d", n, inner.copied, c.copied)
				}
			}
		})
	}
}

// If the encoded list differs from the list that the store read, all objects are read again.
func TestOtherListsAreReadAsAWhole(t *testing.T) {
	known := runtime.NewScheme()
	install.Install(known)
	base := Codecs(known)
	codec := NewStoredCodec(base)
	info, _ := runtime.SerializerInfoForMediaType(base.SupportedMediaTypes(), runtime.ContentTypeJSON)
	d := New(Options{})
	t.Cleanup(d.Close)
	inner := &carpStore{all: carps(20, "1")}
	store := d.Store(testv1.Resource("carps"), "/carps", func() runtime.Object { return &testapigroup.Carp{} }, inner)
	opts := apistorage.ListOptions{Recursive: true, Predicate: apistorage.SelectionPredicate{Label: labels.Everything(), Field: fields.Everything(), GetAttrs: apistorage.DefaultNamespaceScopedAttr}}
	read := func(ctx context.Context) *testapigroup.CarpList {
		list := &testapigroup.CarpList{}
		if err := store.GetList(ctx, "/carps", opts, list); err != nil {
			t.Fatal(err)
		}
		return list
	}
	for range 2 {
		if err := codec.EncoderForVersion(info.Serializer, testv1.SchemeGroupVersion).Encode(read(t.Context()), &bytes.Buffer{}); err != nil {
			t.Fatal(err)
		}
	}
	inner.all.Items[3].ResourceVersion = "2"
	for _, c := range []struct {
		name   string
		change func(context.Context, *testapigroup.CarpList)
		joins  bool
	}{
		{"the list of the store", func(context.Context, *testapigroup.CarpList) {}, true},
		{"a list without an object", func(_ context.Context, list *testapigroup.CarpList) { list.Items = nil }, false},
		{"a list with one more", func(_ context.Context, list *testapigroup.CarpList) { list.Items = append(list.Items, list.Items[0]) }, false},
		{"a list with another object", func(_ context.Context, list *testapigroup.CarpList) { list.Items[0].UID = "another" }, false},
		{"two lists", func(ctx context.Context, list *testapigroup.CarpList) { *list = *read(ctx) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, _, l := WithListing(t.Context(), codec, info.Serializer, testv1.SchemeGroupVersion)
			list := read(ctx)
			if len(list.Items) != 1 {
				t.Fatalf("%d objects were read, want the one that is not kept", len(list.Items))
			}
			c.change(ctx, list)
			if joins := l.Joins(list); joins != c.joins {
				t.Fatalf("the list is that of the store: %v, want %v", joins, c.joins)
			}
			if !c.joins {
				if again := read(ctx); len(again.Items) != 20 || !l.Joins(again) {
					t.Errorf("%d objects were read again", len(again.Items))
				}
			}
		})
	}
}
