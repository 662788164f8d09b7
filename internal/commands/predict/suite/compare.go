package suite

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-openapi/jsonpointer"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/rejection"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// Failure is one expectation that was not met.
type Failure struct {
	Line int `json:"line"`
	// Field is the path of the expectation, such as message or object.spec.replicas.
	Field string `json:"field"`
	Want  string `json:"want"`
	Got   string `json:"got"`
}

// compare returns the expectations that an outcome does not meet.
func (t *Test) compare(o *Outcome) []Failure {
	e := &t.expect
	var list []Failure
	fail := func(field, want, got string) {
		name, _, _ := strings.Cut(field, ".")
		name, _, _ = strings.Cut(name, "[")
		list = append(list, Failure{e.at(name), field, want, got})
	}
	for _, name := range o.Unanswered {
		if !slices.ContainsFunc(e.notCalled, func(n string) bool { return rejection.IsCalled(n, name) }) {
			fail("webhooks", "an answer for the webhook "+name+", a program, or --call", "no answer")
		}
	}
	if e.allowed != nil && *e.allowed != o.Allowed {
		got := "true"
		if !o.Allowed {
			got = "false: " + o.Message
		}
		fail("allowed", strconv.FormatBool(*e.allowed), got)
	}
	if e.code != nil && int(*e.code) != o.Code {
		fail("code", strconv.FormatInt(*e.code, 10), strconv.Itoa(o.Code))
	}
	text := func(name string, want *match, got string) {
		switch {
		case want == nil || want.ok(got):
		case o.Allowed:
			fail(name, want.String(), "none: the request is allowed")
		default:
			fail(name, want.String(), quote(got))
		}
	}
	text("reason", e.reason, o.Reason)
	text("message", e.message, o.Message)
	if e.by != nil && !slices.ContainsFunc(o.By, e.by.Means) {
		got := "none: the request is allowed"
		if !o.Allowed {
			var names []string
			for _, b := range o.By {
				names = append(names, b.String())
			}
			got = strings.Join(names, "; ")
		}
		fail("by", e.by.String(), got)
	}
	for i, want := range e.causes {
		if !slices.ContainsFunc(o.Causes, func(c OutcomeCause) bool {
			return (want.field == nil || want.field.ok(c.Field)) && (want.message == nil || want.message.ok(c.Message)) && (want.reason == nil || want.reason.ok(c.Reason))
		}) {
			fail(fmt.Sprintf("causes[%d]", i), want.String(), compact(o.Causes))
		}
	}
	if e.has("warnings") {
		list = append(list, t.warnings(o)...)
	}
	for _, want := range e.annotations {
		got, ok := o.Annotations[want.key]
		switch {
		case want.value == nil && ok:
			fail("auditAnnotations."+want.key, "no such annotation", quote(got))
		case want.value != nil && !ok:
			fail("auditAnnotations."+want.key, want.value.String(), "none: there are "+compact(slices.Sorted(maps.Keys(o.Annotations))))
		case want.value != nil && !want.value.ok(got):
			fail("auditAnnotations."+want.key, want.value.String(), quote(got))
		}
	}
	for _, want := range e.called {
		if !slices.ContainsFunc(o.Called, func(n string) bool { return rejection.IsCalled(want, n) }) {
			fail("called", want, "called were "+compact(o.Called))
		}
	}
	for _, want := range e.notCalled {
		if slices.ContainsFunc(o.Called, func(n string) bool { return rejection.IsCalled(want, n) }) {
			fail("notCalled", want, "it was called")
		}
	}
	if e.costBelow != nil && o.Cost >= uint64(max(*e.costBelow, 0)) {
		fail("costBelow", strconv.FormatInt(*e.costBelow, 10), strconv.FormatUint(o.Cost, 10))
	}
	if e.has("object") || e.has("patch") {
		list = append(list, t.object(o)...)
	}
	return list
}

// warnings compares the warnings: all must be expected, in any order.
func (t *Test) warnings(o *Outcome) []Failure {
	e := &t.expect
	left := slices.Clone(o.Warnings)
	var list []Failure
	for i := range e.warnings {
		want := &e.warnings[i]
		k := slices.IndexFunc(left, want.ok)
		if k < 0 {
			list = append(list, Failure{e.at("warnings"), fmt.Sprintf("warnings[%d]", i), want.String(), "there are " + compact(o.Warnings)})
			continue
		}
		left = slices.Delete(left, k, k+1)
	}
	for _, w := range left {
		list = append(list, Failure{e.at("warnings"), "warnings", "no other warning", quote(w)})
	}
	return list
}

// object compares the resulting object with the expected parts.
func (t *Test) object(o *Outcome) []Failure {
	e := &t.expect
	if o.Object == nil {
		name := "object"
		if !e.has(name) {
			name = "patch"
		}
		return []Failure{{e.at(name), name, "an object", "none: the request is " + map[bool]string{true: "allowed and has none", false: "rejected"}[o.Allowed]}}
	}
	var list []Failure
	if e.has("object") {
		list = unequal(e.at("object"), "object", e.object, o.Object)
	}
	if e.has("patch") {
		list = append(list, t.patched(o)...)
	}
	return list
}

// patched compares the resulting object with the result of the expected JSON patch. The object may have more fields
// than the result, but no field that the patch removes.
func (t *Test) patched(o *Outcome) []Failure {
	at := t.expect.at("patch")
	wrong := func(err error) []Failure {
		return []Failure{{at, "patch", "a JSON patch of the sent object", err.Error()}}
	}
	sent := t.request.object
	if sent == nil {
		sent = t.request.old
	}
	data, err := json.Marshal(sent)
	if err != nil {
		return wrong(err)
	}
	operations, err := json.Marshal(t.expect.patch)
	if err != nil {
		return wrong(err)
	}
	decoded, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		return wrong(err)
	}
	if data, err = decoded.Apply(data); err != nil {
		return wrong(err)
	}
	var want any
	if err := json.Unmarshal(data, &want); err != nil {
		return wrong(err)
	}
	list := unequal(at, "patch", want, o.Object)
	for _, op := range decoded {
		path, _ := op.Path()
		pointer, err := jsonpointer.New(path)
		if op.Kind() != "remove" || err != nil {
			continue
		}
		if v, _, err := pointer.Get(o.Object); err == nil {
			list = append(list, Failure{at, "patch " + path, "nothing", compact(v)})
		}
	}
	return list
}

// unequal returns a failure for each of the differences, in a line of a file.
func unequal(line int, path string, want, got any) (list []Failure) {
	differences(path, want, got, func(path, want, got string) { list = append(list, Failure{line, path, want, got}) })
	return list
}

// differences calls differ for each part of an object that differs from the expected value. A mapping may have
// additional fields, and a field expected as null must be absent. The elements of a list are compared in order, unless
// all expected elements have a name: then elements of the same name are compared, and there may be others.
func differences(path string, want, got any, differ func(path, want, got string)) {
	switch want := want.(type) {
	case map[string]any:
		in, ok := got.(map[string]any)
		if !ok {
			differ(path, compact(want), compact(got))
			return
		}
		for _, key := range slices.Sorted(maps.Keys(want)) {
			member := path + "." + key
			if strings.ContainsAny(key, "./[") {
				member = fmt.Sprintf("%s[%q]", path, key)
			}
			value, ok := in[key]
			switch {
			case want[key] == nil && ok:
				differ(member, "nothing", compact(value))
			case want[key] == nil:
			case !ok:
				differ(member, compact(want[key]), "nothing")
			default:
				differences(member, want[key], value, differ)
			}
		}
	case []any:
		in, ok := got.([]any)
		if !ok {
			differ(path, compact(want), compact(got))
			return
		}
		if byName, ok := named(want); ok {
			have, _ := named(in)
			for i, name := range byName {
				at := fmt.Sprintf("%s[name=%s]", path, name)
				k := slices.Index(have, name)
				switch {
				case k >= 0:
				case len(have) > 0:
					differ(at, compact(want[i]), "nothing: the names are "+compact(have))
					continue
				default:
					differ(at, compact(want[i]), "nothing: the list is "+compact(in))
					continue
				}
				differences(at, want[i], in[k], differ)
			}
			return
		}
		if len(want) != len(in) {
			differ(path, compact(want), compact(got))
			return
		}
		for i := range want {
			differences(fmt.Sprintf("%s[%d]", path, i), want[i], in[i], differ)
		}
	default:
		if !review.Equal(want, got) {
			differ(path, compact(want), compact(got))
		}
	}
}

// named returns the names of the elements of a list, if each has a unique name.
func named(list []any) ([]string, bool) {
	names := make([]string, 0, len(list))
	for _, e := range list {
		m, _ := e.(map[string]any)
		name, ok := m["name"].(string)
		if !ok || slices.Contains(names, name) {
			return nil, false
		}
		names = append(names, name)
	}
	return names, len(names) > 0
}

func (c *cause) String() string {
	var parts []string
	add := func(name string, m *match) {
		if m != nil {
			parts = append(parts, name+" "+m.String())
		}
	}
	add("field", c.field)
	add("message", c.message)
	add("reason", c.reason)
	return strings.Join(parts, ", ")
}

// maxShown bounds the length of a value in a message, in bytes.
const maxShown = 2000

// compact formats a value in one line.
func compact(v any) string {
	if v == nil {
		return "nothing"
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if string(data) == "null" || string(data) == "[]" {
		return "none"
	}
	return shorten(string(data))
}

func quote(s string) string { return shorten(strconv.Quote(s)) }

func shorten(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + " ..."
}
