package review

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-openapi/jsonpointer"
	"k8s.io/apimachinery/pkg/runtime"
)

// A document is edited by copying: a map or list is copied when it is first changed. The copy has
// one of these two types, which mark it as a copy. finish converts copies to plain maps and lists.
type (
	editMap  map[string]any
	editList struct{ items []any }
)

// edit applies the patch to root without changing it. The result may contain editMap and editList.
// An operation that exceeds the limits of w fails (S5.33). Copied values are shared between several
// places of the result: apart copies them.
//
// The semantics are the same as in the patch library of kube-apiserver, with its known
// peculiarities: a pointer may lack its first slash; replacing a missing member adds it; copying a
// missing member gives null; a negative index counts from the end (S5.7). Where that library
// compares the spelling of values, or panics, edit follows RFC 6902: test compares values, and
// finds a null in a list.
func (p Patch) edit(root any, w *work) (any, error) {
	for i := range p {
		err := w.begin()
		if err == nil {
			err = p[i].apply(&root, w)
		}
		if err != nil {
			o := &p[i]
			e := &PatchError{Index: i, Op: o.Op, Path: o.Path, Cause: err}
			if o.Op == "copy" || o.Op == "move" {
				e.From = o.From
			}
			return nil, e
		}
	}
	return root, nil
}

// apart returns the result of edit without values that are shared between two places. It copies the
// top-level members that operations wrote, if anything was copied. A patch that fails costs no
// copy.
func (p Patch) apart(root any, w *work) any {
	if !w.shared {
		return root
	}
	members, ok := root.(editMap)
	done := map[string]bool{}
	for i := range p {
		rest, pointer := strings.CutPrefix(p[i].Path, "/")
		if !ok || !pointer {
			return plain(root)
		}
		name, _, _ := strings.Cut(rest, "/")
		name = unescape(name)
		if member, there := members[name]; there && !done[name] {
			members[name], done[name] = plain(member), true
		}
	}
	return root
}

var (
	errNoPath = errors.New("the operation has no path")
	errNoFrom = errors.New("the operation has no from")
)

// ErrTestFailed is the cause of a [PatchError] if a test finds another value.
var ErrTestFailed = errors.New("test failed: the value differs")

func (o *Operation) apply(root *any, w *work) error {
	if !o.HasPath {
		return errNoPath
	}
	switch o.Op {
	case "add":
		return add(root, o.Path, runtime.DeepCopyJSONValue(o.Value), w)
	case "remove":
		_, err := remove(root, o.Path, w)
		return err
	case "replace":
		return replace(root, o.Path, runtime.DeepCopyJSONValue(o.Value))
	case "test":
		v, err := get(root, o.Path)
		if err != nil {
			return err
		}
		if !Equal(v, o.Value) {
			return ErrTestFailed
		}
		return nil
	case "copy", "move":
		if !o.HasFrom {
			return errNoFrom
		}
		if o.Op == "move" {
			v, err := remove(root, o.From, w)
			if err != nil {
				return err
			}
			return add(root, o.Path, v, w)
		}
		if o.From == "" {
			return errWhole
		}
		v, err := frozen(root, o.From)
		if err != nil {
			return err
		}
		if err := w.copy(v); err != nil {
			return err
		}
		return add(root, o.Path, v, w)
	}
	return errors.New("unknown operation")
}

func add(root *any, path string, v any, w *work) error {
	parent, key, err := locate(root, path, true)
	if err != nil {
		return err
	}
	switch c := parent.(type) {
	case editMap:
		c[key] = v
	case *editList:
		at := len(c.items)
		if key != "-" {
			if at, err = index(key, len(c.items), 1, path); err != nil {
				return err
			}
		}
		if err := w.move(len(c.items) - at); err != nil {
			return err
		}
		c.items = slices.Insert(c.items, at, v)
	}
	return nil
}

func remove(root *any, path string, w *work) (any, error) {
	parent, key, err := locate(root, path, true)
	if err != nil {
		return nil, err
	}
	switch c := parent.(type) {
	case editMap:
		v, ok := c[key]
		if !ok {
			return nil, missing(path)
		}
		delete(c, key)
		return v, nil
	case *editList:
		at, err := index(key, len(c.items), 0, path)
		if err != nil {
			return nil, err
		}
		v := c.items[at]
		if err := w.move(len(c.items) - at - 1); err != nil {
			return nil, err
		}
		c.items = slices.Delete(c.items, at, at+1)
		return v, nil
	}
	return nil, missing(path)
}

func replace(root *any, path string, v any) error {
	if path == "" {
		switch v.(type) {
		case map[string]any, []any:
			*root = v
			return nil
		}
		return errors.New("only an object or an array can replace the whole document")
	}
	parent, key, err := locate(root, path, true)
	if err != nil {
		return err
	}
	switch c := parent.(type) {
	case editMap:
		c[key] = v
	case *editList:
		at, err := index(key, len(c.items), 0, path)
		if err != nil {
			return err
		}
		c.items[at] = v
	}
	return nil
}

// get returns the value at path; nil for a missing member.
func get(root *any, path string) (any, error) {
	if path == "" {
		return *root, nil
	}
	parent, key, err := locate(root, path, false)
	if err != nil {
		return nil, err
	}
	v, _, err := child(parent, key, path)
	return v, err
}

// frozen is get for a value that will be shared with another place: a later change in one place
// copies the value first.
func frozen(root *any, path string) (any, error) {
	parent, key, err := locate(root, path, false)
	if err != nil {
		return nil, err
	}
	v, _, err := child(parent, key, path)
	switch v.(type) {
	case editMap, *editList:
		v = finish(v)
		setChild(parent, key, v)
	}
	return v, err
}

var errWhole = errors.New("the path is empty: this operation cannot take the whole document")

// locate returns the map or list with the last element of path, and the key of that element. With
// write set, it and all its ancestors are an editMap or *editList.
func locate(root *any, path string, write bool) (parent any, key string, err error) {
	start := strings.IndexByte(path, '/')
	if start < 0 {
		if path == "" {
			return nil, "", errWhole
		}
		return nil, "", fmt.Errorf("%q is not a JSON pointer", shorten(path))
	}
	if write {
		*root = editable(*root)
	}
	parent = *root
	at := start + 1
	for {
		length := strings.IndexByte(path[at:], '/')
		if length < 0 {
			key = unescape(path[at:])
			break
		}
		end := at + length
		v, ok, err := child(parent, unescape(path[at:end]), path[:end])
		if err != nil {
			return nil, "", err
		}
		if !ok || v == nil {
			return nil, "", missing(path[:end])
		}
		if write {
			switch v.(type) {
			case map[string]any, []any:
				v = editable(v)
				setChild(parent, unescape(path[at:end]), v)
			}
		}
		parent, at = v, end+1
	}
	switch parent.(type) {
	case map[string]any, editMap, []any, *editList:
		return parent, key, nil
	}
	return nil, "", fmt.Errorf("%s is neither an object nor an array", shorten(path[:at-1]))
}

// editable returns v, or a copy of v that may be changed.
func editable(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(editMap, len(v)+1)
		maps.Copy(m, v)
		return m
	case []any:
		items := make([]any, len(v), len(v)+1)
		copy(items, v)
		return &editList{items}
	}
	return v
}

// child returns an element of a map or list; ok is false for a missing member of a map. A missing
// index of a list is an error. where is the pointer to the element.
func child(parent any, key, where string) (v any, ok bool, err error) {
	var items []any
	switch c := parent.(type) {
	case map[string]any:
		v, ok = c[key]
		return v, ok, nil
	case editMap:
		v, ok = c[key]
		return v, ok, nil
	case []any:
		items = c
	case *editList:
		items = c.items
	default:
		return nil, false, missing(where)
	}
	at, err := index(key, len(items), 0, where)
	if err != nil {
		return nil, false, err
	}
	return items[at], true, nil
}

// setChild replaces the element that child returned.
func setChild(parent any, key string, v any) {
	switch c := parent.(type) {
	case editMap:
		c[key] = v
	case *editList:
		at, err := index(key, len(c.items), 0, "")
		if err != nil {
			panic("review: an element of a list is gone while it is edited")
		}
		c.items[at] = v
	}
}

// index parses a position in a list of length elements, or up to extra beyond its end; negative
// positions count from there. where is the pointer that ends with the position.
func index(key string, length, extra int, where string) (int, error) {
	at, err := strconv.Atoi(key)
	size := length + extra
	if err != nil || at >= size || at < -size {
		list := shorten(where[:max(strings.LastIndexByte(where, '/'), 0)])
		if list == "" {
			list = "the document"
		}
		switch {
		case err != nil:
			return 0, fmt.Errorf("%s is an array and %q is not an index", list, shorten(key))
		case length == 1:
			return 0, fmt.Errorf("%s has 1 element", list)
		}
		return 0, fmt.Errorf("%s has %d elements", list, length)
	}
	if at < 0 {
		at += size
	}
	return at, nil
}

func missing(where string) error { return fmt.Errorf("there is no %s", shorten(where)) }

func unescape(token string) string {
	if strings.IndexByte(token, '~') < 0 {
		return token
	}
	return jsonpointer.Unescape(token)
}
