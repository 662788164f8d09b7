package offline

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

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
	for _, t := range trees {
		depth := 1
		for _, list := range byKey {
			depth = max(depth, len(inTreeOnly(list, root, t)))
		}
		for n := range depth {
			if len(variants) == mostVariants {
				left = append(left, fmt.Sprintf("%s, variant %d: it has other registrations of the same names, and lint reads at most %d variants: give its path alone", filepath.Join(root, t), n+1, mostVariants))
				continue
			}
			variants = append(variants, slices.DeleteFunc(slices.Clone(objects), func(o *manifests.Object) bool {
				key := keyOf(o)
				if list := byKey[key]; len(list) > 1 {
					chosen := list[0]
					if own := inTreeOnly(list, root, t); len(own) > 0 {
						chosen = own[min(n, len(own)-1)]
					}
					return o != chosen && hollow(o) == 0
				}
				in := treeOf(root, o.File)
				return in != t && slices.Contains(trees, in) && slices.Contains(inTree[key], t)
			}))
		}
	}
	return variants, left
}

func inTreeOnly(list []*manifests.Object, root, tree string) []*manifests.Object {
	return slices.DeleteFunc(slices.Clone(list), func(o *manifests.Object) bool { return treeOf(root, o.File) != tree })
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
