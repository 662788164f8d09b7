package replay

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/rejection"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
	"github.com/gatehouse-dev/gatehouse/internal/kit/credentials"
)

// Change classifies the difference between two verdicts.
type Change string

// The changes, most severe first.
const (
	NewlyRejected Change = "rejected"
	NewlyAllowed  Change = "allowed"
	// OtherRejection: rejected before and after, but by another policy, webhook or plugin, or with another message.
	OtherRejection Change = "rejection"
	OtherObject    Change = "object"
	OtherWarnings  Change = "warnings"
	// OtherCalls: other webhooks are called, or with other timeouts.
	OtherCalls Change = "webhooks"
	// OtherCost: the CEL cost more than doubled, or fell below half.
	OtherCost Change = "cost"
)

// Changes lists all changes, most severe first.
var Changes = []Change{NewlyRejected, NewlyAllowed, OtherRejection, OtherObject, OtherWarnings, OtherCalls, OtherCost}

// Text returns the name of the change in a report.
func (c Change) Text() string {
	return map[Change]string{
		NewlyRejected: "newly rejected", NewlyAllowed: "newly allowed", OtherRejection: "rejected for another reason", OtherObject: "another object",
		OtherWarnings: "other warnings", OtherCalls: "other webhooks", OtherCost: "another cost of expressions",
	}[c]
}

// noteworthy is the CEL cost below which cost changes are ignored: a thousandth of the budget that a server grants all
// policies of a request.
const noteworthy = 10_000

// difference describes how two verdicts on a request differ.
type difference struct {
	change Change
	// by names the policies, webhooks, plugins or fields that cause the difference.
	by []string
	// before and after are the messages, or the differing values.
	before, after []string
}

// differ compares two verdicts. It returns nil if they are the same.
func differ(p *prepared, a, b *verdict) (*difference, error) {
	switch {
	case a.allowed && !b.allowed:
		return &difference{NewlyRejected, names(b.by), nil, []string{b.message}}, nil
	case !a.allowed && b.allowed:
		return &difference{NewlyAllowed, names(a.by), []string{a.message}, nil}, nil
	case !a.allowed:
		if sameWords(a.message, b.message) && reflect.DeepEqual(texts(a.by), texts(b.by)) {
			return nil, nil
		}
		return &difference{OtherRejection, names(b.by), []string{a.message}, []string{b.message}}, nil
	}
	if !sameObject(p, a, b) {
		d, err := objects(p, a, b)
		if err != nil || d != nil {
			return d, err
		}
	}
	if !sameTexts(a.warnings, b.warnings) {
		return &difference{OtherWarnings, []string{"warnings"}, without(a.warnings, b.warnings), without(b.warnings, a.warnings)}, nil
	}
	if !slices.Equal(a.calls, b.calls) || a.worst != b.worst {
		by := slices.Concat(without(a.calls, b.calls), without(b.calls, a.calls))
		if len(by) == 0 {
			by = b.calls
		}
		return &difference{OtherCalls, by, called(a), called(b)}, nil
	}
	if high, low := max(a.cost, b.cost), min(a.cost, b.cost); high >= noteworthy && high > 2*low {
		return &difference{OtherCost, []string{"expressions"}, []string{fmt.Sprintf("cost %d", a.cost)}, []string{fmt.Sprintf("cost %d", b.cost)}}, nil
	}
	return nil, nil
}

func called(v *verdict) []string {
	if len(v.calls) == 0 {
		return []string{"no webhook"}
	}
	return []string{fmt.Sprintf("%s, %v at most", strings.Join(v.calls, ", "), v.worst)}
}

// names returns the names of the deciders that rejected a request, without duplicates. The first one determined the
// response.
func names(by []rejection.Decider) []string {
	var list []string
	for i := range by {
		if name := by[i].Name(); !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// sameWords reports whether two messages contain the same words. The order of several errors in a message, or of the
// entries of a map in an expression's message, can differ each time.
func sameWords(a, b string) bool {
	if a == b {
		return true
	}
	words := func(s string) []string {
		list := strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" ,;[]", r) })
		slices.Sort(list)
		return list
	}
	return slices.Equal(words(a), words(b))
}

func sameTexts(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

func without(list, others []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(others, s) })
}

// maxPaths bounds the number of differing fields listed for an object.
const maxPaths = 20

// objects compares the objects that result from a request on both sides.
func objects(p *prepared, a, b *verdict) (*difference, error) {
	x, err := a.object(p)
	if err != nil {
		return nil, err
	}
	y, err := b.object(p)
	if err != nil {
		return nil, err
	}
	d := &difference{change: OtherObject}
	paths := map[string]bool{}
	quoting := quotingOf(p.Entry, x, y)
	began := a.at
	if b.at.Before(began) {
		began = b.at
	}
	fields("", x, y, func(path string, was, is any) {
		if len(d.after) >= maxPaths || clock(was, began) && clock(is, began) {
			return
		}
		paths[position.ReplaceAllString(path, "[]")] = true
		d.before = append(d.before, path+": "+display(path, was, quoting))
		d.after = append(d.after, path+": "+display(path, is, quoting))
	})
	if len(paths) == 0 {
		return nil, nil
	}
	d.by = slices.Sorted(maps.Keys(paths))
	return d, nil
}

// clock reports whether a value is a time that the server took from its clock while it handled the request.
func clock(v any, began time.Time) bool {
	text, ok := v.(string)
	if !ok {
		return false
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	return err == nil && !at.Before(began.Truncate(time.Second))
}

// position matches the index of a list element in a path.
var position = regexp.MustCompile(`\[\d+\]`)

// quotingOf returns a function that redacts the credentials of a request's objects, and of others, from a text.
func quotingOf(q *requestlog.Entry, others ...map[string]any) func(string) string {
	objects := [][]byte{q.Object, q.OldObject}
	if q.Apply != nil {
		objects = append(objects, q.Apply.Configuration)
	}
	for _, o := range others {
		if data, err := json.Marshal(o); err == nil {
			objects = append(objects, data)
		}
	}
	return credentials.Quoting(q.GVR().GroupResource(), q.Subresource, objects...)
}

// maxValue bounds the length of a displayed value, in bytes.
const maxValue = 200

// display formats a value for display, without credentials.
func display(path string, v any, quoting func(string) string) string {
	if v == nil {
		return "(none)"
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	left, _ := credentials.Shown.Value(path, data)
	data = []byte(quoting(string(left)))
	if len(data) > maxValue {
		return strings.ToValidUTF8(string(data[:maxValue]), "") + " ..."
	}
	return string(data)
}

// fields calls report for each field that differs, in the order of names.
func fields(path string, a, b any, report func(path string, was, is any)) {
	x, isMap := a.(map[string]any)
	y, also := b.(map[string]any)
	if isMap && also {
		keys := map[string]bool{}
		for key := range x {
			keys[key] = true
		}
		for key := range y {
			keys[key] = true
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			fields(strings.TrimPrefix(path+"."+key, "."), x[key], y[key], report)
		}
		return
	}
	v, isList := a.([]any)
	w, also := b.([]any)
	if isList && also && len(v) == len(w) {
		for i := range v {
			fields(fmt.Sprintf("%s[%d]", path, i), v[i], w[i], report)
		}
		return
	}
	if !reflect.DeepEqual(a, b) {
		report(path, a, b)
	}
}
