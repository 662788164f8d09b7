package offline

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// mostVariants bounds the variants of a set of files.
const mostVariants = 8

// Variants returns a World for each variant of the registrations, at least w itself: files may have several
// registrations of one name, such as the overlays of a repository. A variant has the registrations of one directory
// tree, and all objects that the files have once.
func (w *World) Variants() []*World { return append([]*World{w}, w.variants...) }

// variantsOf returns the objects of each variant, and the names of the variants that are left out. It returns the
// objects as they are if there is one variant.
func variantsOf(objects []*manifests.Object) (variants [][]*manifests.Object, left []string) {
	byKey := map[string][]*manifests.Object{}
	var several []*manifests.Object
	for _, o := range objects {
		u := o.Unstructured()
		if u.GroupVersionKind().Group != registration.GroupName || hollow(o) > 0 {
			continue
		}
		key := keyOf(o)
		if !slices.ContainsFunc(byKey[key], func(other *manifests.Object) bool { return reflect.DeepEqual(other.Content, o.Content) }) {
			byKey[key] = append(byKey[key], o)
		}
	}
	for _, o := range objects {
		if len(byKey[keyOf(o)]) > 1 {
			several = append(several, o)
		}
	}
	if len(several) == 0 {
		return [][]*manifests.Object{objects}, nil
	}
	root := commonDirectory(several)
	var trees []string
	for _, o := range several {
		if t := treeOf(root, o.File); !slices.Contains(trees, t) {
			trees = append(trees, t)
		}
	}
	// inTree has the trees with an object, by its key.
	inTree := map[string][]string{}
	for _, o := range objects {
		inTree[keyOf(o)] = append(inTree[keyOf(o)], treeOf(root, o.File))
	}
	// own has the different objects of each tree by their key, and index the place of an object among all of its key.
	own, index := map[treeKey][]*manifests.Object{}, map[*manifests.Object]int{}
	for _, o := range several {
		if hollow(o) > 0 {
			continue
		}
		same := func(other *manifests.Object) bool { return reflect.DeepEqual(other.Content, o.Content) }
		k := treeKey{treeOf(root, o.File), keyOf(o)}
		if !slices.ContainsFunc(own[k], same) {
			own[k] = append(own[k], o)
			index[o] = slices.IndexFunc(byKey[k.key], same)
		}
	}
	var later, again []variant
	seen := map[string]bool{}
	for _, t := range newest(trees) {
		depth := 1
		for key := range byKey {
			depth = max(depth, len(own[treeKey{t, key}]))
		}
		for n := range depth {
			v := variant{tree: t, n: n, chosen: map[string]*manifests.Object{}}
			made := ""
			for _, key := range slices.Sorted(maps.Keys(byKey)) {
				if list := byKey[key]; len(list) > 1 {
					v.chosen[key] = list[0]
					if list := own[treeKey{t, key}]; len(list) > 0 {
						v.chosen[key] = list[min(n, len(list)-1)]
					}
					made += fmt.Sprint(index[v.chosen[key]], " ")
				}
			}
			if seen[made] {
				again = append(again, v)
			} else {
				later = append(later, v)
			}
			seen[made] = true
		}
	}
	for _, v := range append(later, again...) {
		if len(variants) == mostVariants {
			left = append(left, fmt.Sprintf("%s, variant %d: it has other registrations of the same names, and lint reads at most %d variants: give its path alone", filepath.Join(root, v.tree), v.n+1, mostVariants))
			continue
		}
		variants = append(variants, slices.DeleteFunc(slices.Clone(objects), func(o *manifests.Object) bool {
			key := keyOf(o)
			if chosen := v.chosen[key]; chosen != nil {
				return o != chosen && hollow(o) == 0
			}
			in := treeOf(root, o.File)
			return in != v.tree && slices.Contains(trees, in) && slices.Contains(inTree[key], v.tree)
		}))
	}
	return variants, left
}

// treeKey is a key of objects in a directory tree.
type treeKey struct{ tree, key string }

// variant is a choice of one object of each name, for a directory tree.
type variant struct {
	tree   string
	n      int
	chosen map[string]*manifests.Object
}

// newest returns trees with the highest version first, if all names are versions, such as 1.35 or v2.
func newest(trees []string) []string {
	parsed := map[string]*version.Version{}
	for _, t := range trees {
		v, err := version.ParseGeneric(cmp.Or(strings.TrimPrefix(t, "v"), "0") + ".0")
		if err != nil {
			return trees
		}
		parsed[t] = v
	}
	trees = slices.Clone(trees)
	slices.SortStableFunc(trees, func(a, b string) int {
		switch x, y := parsed[a], parsed[b]; {
		case y.LessThan(x):
			return -1
		case x.LessThan(y):
			return 1
		}
		return 0
	})
	return trees
}

// keyOf returns the identity of an object among the objects of all kinds.
func keyOf(o *manifests.Object) string {
	u := o.Unstructured()
	return u.GroupVersionKind().GroupKind().String() + " " + u.GetNamespace() + "/" + u.GetName()
}

// commonDirectory returns the directory below which all objects are.
func commonDirectory(objects []*manifests.Object) string {
	dir := filepath.Dir(objects[0].File)
	for _, o := range objects[1:] {
		for dir != "." && dir != string(filepath.Separator) && !strings.HasPrefix(o.File, dir+string(filepath.Separator)) {
			dir = filepath.Dir(dir)
		}
	}
	return dir
}

// treeOf returns the first name in a file's path below a directory; empty if the file is not below it.
func treeOf(root, file string) string {
	below, err := filepath.Rel(root, file)
	if err != nil || strings.HasPrefix(below, "..") {
		return ""
	}
	tree, _, _ := strings.Cut(filepath.ToSlash(below), "/")
	return tree
}
