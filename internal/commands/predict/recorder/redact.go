package recorder

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
	"github.com/gatehouse-dev/gatehouse/internal/kit/credentials"
)

// Redaction names fields whose values are not recorded.
type Redaction struct {
	// text is the redaction as the user wrote it.
	text string
	// resource is RESOURCE or RESOURCE.GROUP; empty for all.
	resource string
	// path lists field names, with * for any field and ** for any number of fields.
	path []string
}

// The wildcard steps of a path.
const (
	anyField = "*"
	anyDepth = "**"
)

// ParseRedaction reads [RESOURCE[.GROUP]:]FIELD.FIELD... A field in ['...'] may contain dots. Lists need no step of
// their own.
func ParseRedaction(text string) (*Redaction, error) {
	r := &Redaction{text: text}
	rest := text
	if i := strings.IndexAny(text, ":['"); i >= 0 && text[i] == ':' {
		r.resource, rest = text[:i], text[i+1:]
		if r.resource == "" {
			return nil, fmt.Errorf("%q names no resource before the colon", text)
		}
	}
	for rest != "" {
		if quoted, ok := strings.CutPrefix(rest, "['"); ok {
			name, after, ok := strings.Cut(quoted, "']")
			if !ok || name == "" {
				return nil, fmt.Errorf("%q: a field that begins with [' must end with ']", text)
			}
			r.path, rest = append(r.path, name), strings.TrimPrefix(after, ".")
			continue
		}
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		name := rest[:end]
		if name == "" || strings.ContainsAny(name, "]' \t\n") {
			return nil, fmt.Errorf("%q is not FIELD.FIELD..., such as spec.containers.env.value", text)
		}
		r.path = append(r.path, name)
		if rest = rest[end:]; strings.HasPrefix(rest, ".") {
			if rest = rest[1:]; rest == "" {
				return nil, fmt.Errorf("%q ends with a dot", text)
			}
		}
	}
	switch {
	case len(r.path) == 0:
		return nil, fmt.Errorf("%q names no field", text)
	case r.path[len(r.path)-1] == anyDepth:
		return nil, fmt.Errorf("%q: a field must follow %s", text, anyDepth)
	}
	return r, nil
}

// of reports whether the redaction applies to the resource of a request.
func (r *Redaction) of(q *requestlog.Entry) bool {
	name := q.Resource.Resource
	if q.Resource.Group != "" && strings.Contains(r.resource, ".") {
		name += "." + q.Resource.Group
	}
	return r.resource == "" || r.resource == name
}

// redact removes credentials, and the fields named by the rules, from a request (S25.13).
func redact(q *requestlog.Entry, rules []*Redaction) error {
	for key := range q.User.Extra {
		if credentials.Extra(key) {
			q.User.Extra[key] = []string{credentials.Stored.Text}
			q.Removed = append(q.Removed, "the values of user.extra")
		}
	}
	for _, data := range []*json.RawMessage{&q.Object, &q.OldObject} {
		if len(*data) == 0 {
			continue
		}
		decoder := json.NewDecoder(bytes.NewReader(*data))
		decoder.UseNumber()
		var object map[string]any
		if err := decoder.Decode(&object); err != nil {
			return err
		}
		taken := credentials.Stored.Object(q.GVR().GroupResource(), q.Subresource, object)
		for _, r := range rules {
			if r.of(q) && blankAt(object, r.path) {
				taken = append(append(taken, r.text), credentials.Unrepeat(object)...)
			}
		}
		if len(taken) == 0 {
			continue
		}
		q.Removed = append(q.Removed, taken...)
		var err error
		if *data, err = json.Marshal(object); err != nil {
			return err
		}
	}
	slices.Sort(q.Removed)
	q.Removed = slices.Compact(q.Removed)
	return nil
}

// blankAt blanks the fields of a path, and reports whether there were any.
func blankAt(v any, path []string) (found bool) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			found = blankAt(item, path) || found
		}
	case map[string]any:
		if path[0] == anyDepth {
			found = blankAt(v, path[1:])
			for _, item := range v {
				found = blankAt(item, path) || found
			}
			return found
		}
		for key := range v {
			if path[0] != anyField && path[0] != key {
				continue
			}
			if len(path) > 1 {
				found = blankAt(v[key], path[1:]) || found
				continue
			}
			found = true
			if blank, ok := blanked(v[key]); ok {
				v[key] = blank
			} else {
				delete(v, key)
			}
		}
	}
	return found
}

// blanked replaces the strings in a value, and drops other scalars. It returns false if nothing is left.
func blanked(v any) (any, bool) {
	switch v := v.(type) {
	case string:
		return credentials.Stored.Text, true
	case map[string]any:
		for key := range v {
			if blank, ok := blanked(v[key]); ok {
				v[key] = blank
			} else {
				delete(v, key)
			}
		}
		return v, true
	case []any:
		kept := v[:0]
		for _, item := range v {
			if blank, ok := blanked(item); ok {
				kept = append(kept, blank)
			}
		}
		return kept, true
	}
	return nil, false
}
