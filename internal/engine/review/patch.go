package review

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-openapi/jsonpointer"
	kjson "sigs.k8s.io/json"
)

// Patch is a JSON patch (RFC 6902): operations that are applied one after the other. It is
// immutable and may be applied any number of times.
type Patch []Operation

// Operation is one step of a Patch. Members that are missing or have a wrong type are empty; a
// missing value is the same as null.
type Operation struct {
	// Op is add, remove, replace, move, copy or test.
	Op string
	// Path and From are JSON pointers (RFC 6901). HasPath and HasFrom report whether they were
	// present: an empty pointer is the whole document.
	Path, From       string
	HasPath, HasFrom bool
	// Value is decoded JSON, with integers as int64 if they fit.
	Value any
}

// MarshalJSON encodes the operation with the members that its Op uses. An Op unknown to RFC 6902
// has a value.
func (o Operation) MarshalJSON() ([]byte, error) {
	wire := struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		From  string `json:"from,omitempty"`
		Value *any   `json:"value,omitempty"`
	}{Op: o.Op, Path: o.Path}
	switch o.Op {
	case "remove":
	case "move", "copy":
		wire.From = o.From
	default:
		wire.Value = &o.Value
	}
	return json.Marshal(wire)
}

// Below returns the JSON pointer to a member of the value at another pointer.
func Below(pointer, member string) string { return pointer + "/" + jsonpointer.Escape(member) }

// PatchError is the failure of one operation of a patch.
type PatchError struct {
	// Index counts the patch's operations from 0; the text counts from 1.
	Index int
	// Op, Path and From are copied from the operation; From is empty except for copy and move.
	Op, Path, From string
	// Cause is the reason. It contains no values of the object.
	Cause error
}

// Unwrap returns the cause.
func (e *PatchError) Unwrap() error { return e.Cause }

func (e *PatchError) Error() string {
	switch {
	case e.From != "":
		return fmt.Sprintf("operation %d, %s %s to %s: %v", e.Index+1, shorten(e.Op), shorten(e.From), shorten(e.Path), e.Cause)
	case e.Path == "":
		return fmt.Sprintf("operation %d, %s: %v", e.Index+1, shorten(e.Op), e.Cause)
	}
	return fmt.Sprintf("operation %d, %s %s: %v", e.Index+1, shorten(e.Op), shorten(e.Path), e.Cause)
}

// shorten keeps errors readable if a webhook sends very long pointers.
func shorten(s string) string {
	const most = 256
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}

// DecodePatch decodes a JSON patch: an array of objects, possibly empty (S4.10). DecodePatch checks
// nothing else. An invalid operation is an error when the patch is applied, as for every other JSON
// patch in Kubernetes.
func DecodePatch(data []byte) (Patch, error) {
	var wire []struct {
		Op    any `json:"op"`
		Path  any `json:"path"`
		From  any `json:"from"`
		Value any `json:"value"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &wire); err != nil {
		return nil, err
	}
	p := make(Patch, len(wire))
	for i, w := range wire {
		o := Operation{Value: w.Value}
		o.Op, _ = w.Op.(string)
		o.Path, o.HasPath = w.Path.(string)
		o.From, o.HasFrom = w.From.(string)
		p[i] = o
	}
	return p, nil
}

// Apply applies the patch to doc, a JSON object or array. A failed operation returns a
// *[PatchError]. The members of objects are sorted and numbers have their shortest form, as
// Kubernetes encodes unstructured objects.
func (p Patch) Apply(doc []byte) ([]byte, error) {
	if len(p) == 0 {
		return doc, nil
	}
	var root any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(doc, &root); err != nil {
		return nil, fmt.Errorf("reading the object to patch: %w", err)
	}
	w := &work{ctx: context.Background()}
	patched, err := p.edit(root, w)
	if err != nil {
		return nil, err
	}
	if tooDeep(patched, maxDepth) {
		return nil, errDeep
	}
	return json.Marshal(finish(p.apart(patched, w)))
}

var errNotObject = errors.New("the patch replaces the object with a value that is not an object")

// ApplyToMap applies the patch to the content of an unstructured object, and reports whether the
// result differs from obj (S5.5). obj is not changed. The result shares with obj all parts that the
// patch does not change, and is obj itself if nothing changed; a caller that changes the result in
// place must copy it first. A failed operation returns a *[PatchError]. Its cause is a
// *[LimitError] if the operation exceeds a limit, the error of ctx if ctx has ended, and the error
// of room if room has no memory for copies (S5.33). A nil room has no bound of its own.
//
// The cost depends on the patch and on the width of the maps and lists on its paths, not on the
// size of the object.
func (p Patch) ApplyToMap(ctx context.Context, room Room, obj map[string]any) (patched map[string]any, changed bool, err error) {
	if len(p) == 0 {
		return obj, false, nil
	}
	w := &work{ctx: ctx, room: room}
	root, err := p.edit(obj, w)
	if err != nil {
		return nil, false, err
	}
	if Equal(obj, root) {
		return obj, false, nil
	}
	if tooDeep(root, maxDepth) {
		return nil, false, errDeep
	}
	patched, ok := finish(p.apart(root, w)).(map[string]any)
	if !ok {
		return nil, false, errNotObject
	}
	return patched, true, nil
}

// Members returns the distinct names of the top-level members that the patch reads or writes. ok is
// false if it may access the whole document, or has a path that is not a JSON pointer.
func (p Patch) Members() (names []string, ok bool) {
	for i := range p {
		o := &p[i]
		pointers := []string{o.Path}
		if o.Op == "move" || o.Op == "copy" {
			pointers = append(pointers, o.From)
		}
		for _, pointer := range pointers {
			rest, ok := strings.CutPrefix(pointer, "/")
			if !ok {
				return nil, false
			}
			name, _, _ := strings.Cut(rest, "/")
			if name = unescape(name); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names, true
}
