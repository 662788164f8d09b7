package userpatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

const (
	// maxOperations is how many operations a JSON patch may have.
	maxOperations = 10_000
	// maxCopied bounds all copies of a patch together, in bytes of JSON.
	maxCopied = 3 << 20
)

// typeError is the error of encoding/json for a value of another type.
func typeError(v value, want string) error {
	got := "number"
	switch v.first() {
	case '{':
		got = "object"
	case '[':
		got = "array"
	case '"':
		got = "string"
	case 't', 'f':
		got = "bool"
	}
	return fmt.Errorf("json: cannot unmarshal %s into Go value of type jsonpatch.%s", got, want)
}

// operations checks that a JSON patch is a list of objects, and counts them.
func operations(patch value) (count int, err error) {
	switch patch.first() {
	case 'n':
		return 0, nil
	case '[':
		err = patch.elements(func(o value) error {
			count++
			if o.first() != '{' && !o.isNull() {
				return typeError(o, "Operation")
			}
			return nil
		})
		return count, err
	}
	return 0, typeError(patch, "Patch")
}

// operate returns an object with the operations of a JSON patch (RFC 6902) applied, as the Apply of upstream does.
func operate(ctx context.Context, object []byte, patch value) ([]byte, error) {
	root := node{value: newText(object).root()}
	if root.first() != '{' && root.first() != '[' {
		return nil, errBadObject
	}
	e := &edit{ctx: ctx, root: root.open()}
	if patch.first() == '[' {
		if err := patch.elements(e.operation); err != nil {
			return nil, err
		}
	}
	return e.root.encode(make([]byte, 0, len(object)), 0)
}

// edit is the application of a JSON patch.
type edit struct {
	ctx  context.Context
	root *container
	// copied has the bytes of JSON that were copied.
	copied int64
}

// operation is one operation of a JSON patch. Absent members are nil.
type operation struct{ op, path, from, value *value }

// operation carries out an operation.
func (e *edit) operation(v value) error {
	if err := e.ctx.Err(); err != nil {
		return err
	}
	var o operation
	if !v.isNull() {
		v.eachMember(func(m member) {
			switch m.key {
			case "op":
				o.op = &m.value
			case "path":
				o.path = &m.value
			case "from":
				o.from = &m.value
			case "value":
				o.value = &m.value
			}
		})
	}
	kind, err := word(o.op, errNoKind)
	if err != nil {
		kind = "unknown"
	}
	switch kind {
	case "add":
		return e.add(&o)
	case "remove":
		return e.remove(&o)
	case "replace":
		return e.replace(&o)
	case "move":
		return e.move(&o)
	case "copy":
		return e.copy(&o)
	case "test":
		return e.test(&o)
	}
	//lint:ignore ST1005 The text of upstream, capital letter included.
	return fmt.Errorf("Unexpected kind: %s", kind)
}

// word returns a string of an operation. missing is the error for an operation without it.
func word(v *value, missing error) (s string, err error) {
	switch {
	case v == nil || v.isNull():
		return "", missing
	case v.first() == '"':
		return decodeString(v.raw()), nil
	}
	return "", json.Unmarshal(v.raw(), &s)
}

var (
	errNoKind = errors.New("operation missing op field")
	errNoPath = fmt.Errorf("operation missing path field: %w", errMissing)
	errNoFrom = fmt.Errorf("operation, missing from field: %w", errMissing)
)

// node returns the value of an operation.
func (o *operation) node() node {
	switch {
	case o.value == nil:
		return node{}
	case o.value.isNull():
		return node{value: value{text: noText}}
	}
	return node{value: *o.value}
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// find returns the object or array with the last element of a pointer, and the name of this element; nil if there is
// none. Like upstream, it skips a text before the first slash.
func (e *edit) find(pointer string) (*container, string) {
	_, rest, ok := strings.Cut(pointer, "/")
	if !ok {
		return nil, ""
	}
	for in := e.root; in != nil; {
		key, deeper, more := strings.Cut(rest, "/")
		if strings.Contains(key, "~") {
			key = unescape.Replace(key)
		}
		if !more {
			return in, key
		}
		n, err := in.get(key)
		if err != nil {
			return nil, ""
		}
		in, rest = n.open(), deeper
	}
	return nil, ""
}

func (e *edit) add(o *operation) error {
	path, err := word(o.path, errNoPath)
	if err != nil {
		return fmt.Errorf("add operation failed to decode path: %w", errMissing)
	}
	in, key := e.find(path)
	if in == nil {
		return fmt.Errorf("add operation does not apply: doc is missing path: \"%s\": %w", path, errMissing)
	}
	if err := in.add(key, o.node()); err != nil {
		return fmt.Errorf("error in add for path: '%s': %w", path, err)
	}
	return nil
}

func (e *edit) remove(o *operation) error {
	path, err := word(o.path, errNoPath)
	if err != nil {
		return fmt.Errorf("remove operation failed to decode path: %w", errMissing)
	}
	in, key := e.find(path)
	if in == nil {
		return fmt.Errorf("remove operation does not apply: doc is missing path: \"%s\": %w", path, errMissing)
	}
	if err := in.remove(key); err != nil {
		return fmt.Errorf("error in remove for path: '%s': %w", path, err)
	}
	return nil
}

func (e *edit) replace(o *operation) error {
	path, err := word(o.path, errNoPath)
	if err != nil {
		return fmt.Errorf("replace operation failed to decode path: %w", err)
	}
	if path == "" {
		n := o.node()
		root := n.open()
		if root == nil {
			// This is upstream's text, which wraps an error that is nil.
			return errors.New("replace operation value must be object or array: %!w(<nil>)")
		}
		e.root = root
		return nil
	}
	in, key := e.find(path)
	if in == nil {
		return fmt.Errorf("replace operation does not apply: doc is missing path: %s: %w", path, errMissing)
	}
	if _, err := in.get(key); err != nil {
		return fmt.Errorf("replace operation does not apply: doc is missing key: %s: %w", path, errMissing)
	}
	if err := in.set(key, o.node()); err != nil {
		return fmt.Errorf("error in remove for path: '%s': %w", path, err)
	}
	return nil
}

func (e *edit) move(o *operation) error {
	from, err := word(o.from, errNoFrom)
	if err != nil {
		return fmt.Errorf("move operation failed to decode from: %w", err)
	}
	in, key := e.find(from)
	if in == nil {
		return fmt.Errorf("move operation does not apply: doc is missing from path: %s: %w", from, errMissing)
	}
	n, err := in.get(key)
	if err != nil {
		return fmt.Errorf("error in move for path: '%s': %w", key, err)
	}
	moved := *n
	if err := in.remove(key); err != nil {
		return fmt.Errorf("error in move for path: '%s': %w", key, err)
	}
	path, err := word(o.path, errNoPath)
	if err != nil {
		return fmt.Errorf("move operation failed to decode path: %w", err)
	}
	if in, key = e.find(path); in == nil {
		return fmt.Errorf("move operation does not apply: doc is missing destination path: %s: %w", path, errMissing)
	}
	if err := in.add(key, moved); err != nil {
		return fmt.Errorf("error in move for path: '%s': %w", path, err)
	}
	return nil
}

func (e *edit) copy(o *operation) error {
	from, err := word(o.from, errNoFrom)
	if err != nil {
		return fmt.Errorf("copy operation failed to decode from: %w", err)
	}
	in, key := e.find(from)
	if in == nil {
		return fmt.Errorf("copy operation does not apply: doc is missing from path: %s: %w", from, errMissing)
	}
	n, err := in.get(key)
	if err != nil {
		return fmt.Errorf("error in copy for from: '%s': %w", from, err)
	}
	path, err := word(o.path, errNoPath)
	if err != nil {
		return fmt.Errorf("copy operation failed to decode path: %w", errMissing)
	}
	if in, key = e.find(path); in == nil {
		return fmt.Errorf("copy operation does not apply: doc is missing destination path: %s: %w", path, errMissing)
	}
	copied := node{}
	if !n.isNull() {
		// The value may have been changed through path since, and is encoded in its current state.
		data, err := n.encode(nil, 0)
		if err != nil {
			return fmt.Errorf("error while performing deep copy: %w", err)
		}
		if e.copied += int64(len(data)); e.copied > maxCopied {
			//lint:ignore ST1005 The text of upstream, capital letter included.
			return fmt.Errorf("Unable to complete the copy, the accumulated size increase of copy is %d, exceeding the limit %d", e.copied, maxCopied)
		}
		copied.value = newText(data).root()
	}
	if err := in.add(key, copied); err != nil {
		return fmt.Errorf("error while adding value during copy: %w", err)
	}
	return nil
}

func (e *edit) test(o *operation) error {
	path, err := word(o.path, errNoPath)
	if err != nil {
		return fmt.Errorf("test operation failed to decode path: %w", err)
	}
	failed := func() error { return fmt.Errorf("testing value %s failed: %w", path, errTestFailed) }
	want := o.node()
	if path == "" {
		if whole := (node{in: e.root}); !whole.equal(&want) {
			return failed()
		}
		return nil
	}
	in, key := e.find(path)
	if in == nil {
		return fmt.Errorf("test operation does not apply: is missing path: %s: %w", path, errMissing)
	}
	n, err := in.get(key)
	switch {
	case err != nil:
		return fmt.Errorf("error in test for path: '%s': %w", path, err)
	case n.isNull() && want.text == noText:
		// Here a null of an operation is a null of the object.
		return nil
	case !n.equal(&want):
		return failed()
	}
	return nil
}
