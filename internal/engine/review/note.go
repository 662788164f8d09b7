package review

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
)

// Edit is the field that an operation of a patch changed, and its value before the operation.
type Edit struct {
	// Field is the path of the operation, with the elements of lists by name, as in
	// spec.containers[name=web].image; empty if the path is too long for people.
	Field string
	// Was is the JSON of the value that the operation replaced or removed; nil if there was none. A
	// value of more than MaxWas bytes is left out, and WasBytes is its size, at most MaxWas+1.
	Was      []byte
	WasBytes int
}

const (
	// MaxWas bounds, in bytes, a replaced or removed value that is kept. maxWasAll bounds the
	// values of all operations of a patch together.
	MaxWas    = 16 << 10
	maxWasAll = 64 << 10
	// maxEdits bounds the number of operations of a patch with an Edit, and maxField the length of
	// a field. Elements of lists with more than maxNamed elements have no names.
	maxEdits = 64
	maxField = 1 << 10
	maxNamed = 256
)

// Edits returns the Edits of the first operations of a patch that can be applied to obj, until ctx
// ends. It does not change obj, and the result shares no memory with obj.
func (p Patch) Edits(ctx context.Context, obj map[string]any) []Edit {
	p = p[:min(len(p), maxEdits)]
	edits := make([]Edit, 0, len(p))
	root, w, all := any(obj), &work{ctx: ctx}, maxWasAll
	for i := range p {
		if ctx.Err() != nil {
			return edits
		}
		o := &p[i]
		e := Edit{Field: o.field(root)}
		if was, there := o.replaces(&root); there {
			e.keep(was, &all)
		}
		edits = append(edits, e)
		if err := o.apply(&root, w); err != nil {
			return edits
		}
	}
	return edits
}

// Size estimates the memory of edits, in bytes.
func Size(edits []Edit) int {
	const header = 64
	size := 0
	for i := range edits {
		size += header + len(edits[i].Field) + len(edits[i].Was)
	}
	return size
}

// keep stores the earlier value, if the limits allow it.
func (e *Edit) keep(was any, all *int) {
	room := min(MaxWas, *all)
	var s size
	s.add(was, MaxWas)
	if s.text <= room {
		if data, err := json.Marshal(plain(was)); err == nil && len(data) <= room {
			e.Was = data
			*all -= len(data)
			return
		}
	}
	e.WasBytes = min(s.text, MaxWas+1)
}

// replaces returns the value that the operation replaces or removes. An addition to a list replaces
// nothing.
func (o *Operation) replaces(root *any) (was any, there bool) {
	if o.Op == "test" || o.Path == "" {
		return nil, false
	}
	parent, key, err := locate(root, o.Path, false)
	if err != nil {
		return nil, false
	}
	if _, list := asList(parent); list && o.Op != "remove" && o.Op != "replace" {
		return nil, false
	}
	was, there, err = child(parent, key, o.Path)
	return was, there && err == nil
}

// field returns the operation's path as a field.
func (o *Operation) field(root any) string {
	if len(o.Path) > maxField || !strings.HasPrefix(o.Path, "/") {
		return ""
	}
	var b strings.Builder
	tokens := strings.Split(o.Path[1:], "/")
	for i, token := range tokens {
		token = unescape(token)
		items, list := asList(root)
		if !list {
			b.WriteString(member(token, i == 0))
			if m, ok := asMap(root); ok {
				root = m[token]
			} else {
				root = nil
			}
			continue
		}
		at, added := len(items), i == len(tokens)-1 && (o.Op == "add" || o.Op == "copy" || o.Op == "move")
		if token != "-" {
			var err error
			extra := 0
			if added {
				extra = 1
			}
			if at, err = index(token, len(items), extra, ""); err != nil {
				return ""
			}
		}
		switch {
		case added && o.Op == "add" && len(items) < maxNamed:
			b.WriteString(element(keyOf(append(items[:len(items):len(items)], o.Value)), at, o.Value))
			root = o.Value
		case at < len(items) && !added:
			b.WriteString(element(keyOf(items), at, items[at]))
			root = items[at]
		default:
			b.WriteString(element("", at, nil))
			root = nil
		}
	}
	if b.Len() > maxField {
		return ""
	}
	return b.String()
}

// FieldOf returns the field at a JSON pointer in an object, in the form of an Edit. Without the
// object, elements of lists have numbers. It is empty if the pointer is too long for people.
func FieldOf(pointer string, object any) string {
	if len(pointer) > maxField || !strings.HasPrefix(pointer, "/") {
		return ""
	}
	if object != nil {
		return (&Operation{Op: "replace", Path: pointer}).field(object)
	}
	field := ""
	for _, token := range strings.Split(pointer[1:], "/") {
		if _, err := strconv.ParseUint(token, 10, 31); (err == nil || token == "-") && field != "" {
			field += "[" + token + "]"
			continue
		}
		field += member(unescape(token), field == "")
	}
	return field
}

// Field returns the field at a JSON pointer without elements of lists; empty if it is too long for
// people.
func Field(pointer string) string {
	if len(pointer) > maxField || !strings.HasPrefix(pointer, "/") {
		return ""
	}
	field := ""
	for _, token := range strings.Split(pointer[1:], "/") {
		field += member(unescape(token), field == "")
	}
	return field
}

// member returns the part of a field for a member of an object.
func member(name string, first bool) string {
	plain := name != ""
	for _, c := range []byte(name) {
		plain = plain && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '$')
	}
	switch {
	case !plain:
		return "[" + name + "]"
	case first:
		return name
	}
	return "." + name
}

// element returns the part of a field for an element of a list.
func element(key string, at int, item any) string {
	if m, ok := asMap(item); ok && key != "" {
		return "[" + key + "=" + scalar(m[key]) + "]"
	}
	return "[" + strconv.Itoa(at) + "]"
}

// keys are members that name the elements of lists in the Kubernetes API, the most frequent first.
var keys = []string{"name", "type", "mountPath", "devicePath", "containerPort", "port", "topologyKey", "key", "ip", "uid"}

// keyOf returns the member that names the elements of a list: all elements have it, with distinct
// values. It is empty if there is none.
func keyOf(items []any) string {
	if len(items) == 0 || len(items) > maxNamed {
		return ""
	}
next:
	for _, key := range keys {
		seen := make(map[string]bool, len(items))
		for _, item := range items {
			m, ok := asMap(item)
			if !ok {
				return ""
			}
			name := scalar(m[key])
			if name == "" || seen[name] {
				continue next
			}
			seen[name] = true
		}
		return key
	}
	return ""
}

// scalar formats a value that can be a name; empty for other values.
func scalar(v any) string {
	const most = 253
	switch v := v.(type) {
	case string:
		if len(v) <= most {
			return v
		}
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}
