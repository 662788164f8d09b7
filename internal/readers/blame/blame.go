package blame

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-openapi/jsonpointer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
	"github.com/gatehouse-dev/gatehouse/internal/kit/credentials"
)

// Blame lists the authors of the fields of an object.
type Blame struct {
	// Object is the object in the form of the command line, Namespace its namespace.
	Object    string `json:"object"`
	Namespace string `json:"namespace,omitempty"`
	// Changes are in the order in which they were made.
	Changes []Change `json:"changes"`
	// KnownSince is the time of the oldest trace of the server. Created is set if the trace of the object's
	// creation is available.
	KnownSince *metav1.MicroTime `json:"knownSince,omitempty"`
	Created    bool              `json:"created"`
	// Unknown lists the gaps in the data, with reasons.
	Unknown []string `json:"unknown,omitempty"`
}

// Change is one change of a field.
type Change struct {
	// Path is a JSON pointer. Op is the operation of the patch: add, remove, replace, move or copy; or merge
	// for a field of an apply configuration.
	Path string `json:"path"`
	Op   string `json:"op"`
	// Value is the new value, if the traces have it.
	Value json.RawMessage `json:"value,omitempty"`
	// Field is the path in which list elements are named by their keys, as in spec.containers[name=web].image.
	// Was is the value that the change replaced or removed; WasBytes is set instead if that value is too large
	// for traces.
	Field    string          `json:"field,omitempty"`
	Was      json.RawMessage `json:"was,omitempty"`
	WasBytes int             `json:"wasBytes,omitempty"`
	// Differences are the fields whose value changed, as far as the traces have both values.
	Differences []Difference `json:"differences,omitempty"`
	// Plugin is the admission plugin, and By is the author of the change in the plugin: a webhook as
	// CONFIGURATION/NAME, a policy, an initializer, or the plugin itself. ByKind is webhook, policy,
	// initializer or plugin.
	Plugin string `json:"plugin"`
	By     string `json:"by"`
	ByKind string `json:"byKind"`
	// Now is same, changed or unknown.
	Now string `json:"now"`
	// Trace, Time, Operation and User describe the request of the change.
	Trace     string           `json:"trace"`
	Time      metav1.MicroTime `json:"time"`
	Operation string           `json:"operation"`
	User      string           `json:"user,omitempty"`
}

// Difference is a field whose value a change has changed. Before or After is absent if the field was not there.
type Difference struct {
	Field  string          `json:"field"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	// Now is same, changed or unknown.
	Now string `json:"now"`
}

// Logged notes that the traces come from audit logs, and lists the facts that audit logs lack.
func (b *Blame) Logged() {
	const unlogged = "what built-in admission plugins and mutating policies changed: an audit log does not have it"
	if !slices.Contains(b.Unknown, unlogged) {
		b.Unknown = append(b.Unknown, unlogged)
	}
}

// Judge collects the changes from the traces. object is nil if it cannot be read.
func (b *Blame) Judge(traces []*trace.Record, object *unstructured.Unstructured) {
	redacted, created, logged := false, false, false
	for _, t := range traces {
		logged = logged || t.Audit != nil
		if t.Outcome != trace.OutcomeAllowed && t.Outcome != trace.OutcomeFailedOpen || t.Refused() {
			continue
		}
		if t.Request.Operation == "CONNECT" {
			continue
		}
		if object != nil && t.Request.UID != "" && t.Request.UID != string(object.GetUID()) {
			// An earlier object of the same name.
			continue
		}
		created = created || t.Request.Operation == "CREATE" && t.Request.Subresource == ""
		before := len(b.Changes)
		for s := range t.LastAttempt() {
			b.step(t, s, object)
		}
		for c := range t.Calls() {
			if t.Audit != nil && c.Mutated && len(c.Patch) == 0 {
				b.unpatched(&c.Webhook, t)
			}
		}
		redacted = redacted || t.Redacted && len(b.Changes) > before
	}
	if redacted {
		b.Unknown = append(b.Unknown, "values: the server leaves them out of traces")
	}
	if logged {
		b.Logged()
	}
	b.Created = created
	if object != nil && !created {
		b.Unknown = append(b.Unknown, fmt.Sprintf("fields that were set when the object was created at %s: no trace covers that time", object.GetCreationTimestamp().UTC().Format(time.RFC3339)))
	}
}

// maxUnpatched bounds the requests that Unknown lists for missing patches.
const maxUnpatched = 10

// unpatched notes that the audit log lacks the patch of a webhook that changed the object.
func (b *Blame) unpatched(webhook *trace.EntryRecord, t *trace.Record) {
	const begin = "what webhook "
	text := fmt.Sprintf("%s%s changed in the request of the trace %s: the audit event has no patch, which needs the level Request", begin, webhook, t.ID)
	n := 0
	for _, had := range b.Unknown {
		if had == text {
			return
		}
		if strings.HasPrefix(had, begin) {
			n++
		}
	}
	if n < maxUnpatched {
		b.Unknown = append(b.Unknown, text)
	}
}

// step collects the changes of one step: initializers that the object waits for, and changes by a built-in
// admission plugin, an initializer, a policy or a webhook.
func (b *Blame) step(t *trace.Record, step *trace.StepRecord, object *unstructured.Unstructured) {
	from := Change{Plugin: step.Plugin, Trace: t.ID, Time: t.Start, Operation: t.Request.Operation, User: t.Request.User, Now: "unknown"}
	for _, name := range step.Pending {
		c := from
		c.Path, c.Op, c.By, c.ByKind = "/metadata/initializers", "add", name, trace.ByInitializer
		b.Changes = append(b.Changes, c)
	}
	// version is set if the paths refer to another version than the request's.
	patched := func(patch []trace.PatchOperation, byKind, by, version string) {
		for i := range patch {
			p := &patch[i]
			if p.Op == "test" {
				continue
			}
			c := from
			c.Path, c.Op, c.Value, c.By, c.ByKind = p.Path, p.Op, p.Value, by, byKind
			c.Field, c.Was, c.WasBytes = p.Field, p.Was, p.WasBytes
			seen, other := object, ""
			switch {
			case version != "":
				other = version + " "
			case t.Request.Subresource == "" || t.Request.Subresource == "status":
				c.Now = now(object, p)
			default:
				other = t.Request.Subresource + " "
			}
			if other != "" {
				// The paths do not refer to the stored version of the object.
				seen, c.Path = nil, other+c.Path
				if c.Field != "" {
					c.Field = other + c.Field
				}
			}
			if c.Differences = differences(seen, p, c.Field); c.Field == "" {
				c.Field = other + named(seen, p, c.Now)
			}
			b.Changes = append(b.Changes, c)
		}
	}
	for act := range step.Acts() {
		if act.Deed == trace.Changes {
			patched(act.Patch, act.Kind, act.By, act.As)
		}
	}
}

// named returns the field of an operation whose trace does not name it. It uses the object if the object still
// has the value of the operation.
func named(object *unstructured.Unstructured, p *trace.PatchOperation, now string) string {
	var root any
	if object != nil && now == "same" {
		root = object.Object
	}
	return review.FieldOf(p.Path, root)
}

// differences returns the fields whose value an operation changed; nil if the trace lacks one of the values.
// object is nil if the current values are unknown.
func differences(object *unstructured.Unstructured, p *trace.PatchOperation, field string) []Difference {
	if field == "" || p.WasBytes > 0 {
		return nil
	}
	switch p.Op {
	case "add", "replace":
		if len(p.Value) == 0 {
			return nil
		}
	case "remove":
		if len(p.Was) == 0 {
			return nil
		}
	default:
		return nil
	}
	before, okBefore := decode(p.Was)
	after, okAfter := decode(p.Value)
	if !okBefore || !okAfter {
		return nil
	}
	var list []Difference
	for _, d := range review.Differences(before, after) {
		one := Difference{Field: d.Field(field), Before: encode(d.Before), After: encode(d.After), Now: "unknown"}
		if object != nil {
			part, there := partOf(object, p, d.Path)
			if there && d.After == nil && len(d.Path) > 0 && review.Has(part, d.Before) {
				// A default value that the trace omitted within a larger value and that was filled in again.
				continue
			}
			one.Now = nowAt(object, p, &d)
		}
		list = append(list, one)
	}
	return list
}

// nowAt reports whether the object still has the value of an operation at one of its differences.
func nowAt(object *unstructured.Unstructured, p *trace.PatchOperation, d *review.Difference) string {
	if len(d.Path) == 0 {
		return now(object, p)
	}
	if redacted(encode(d.After)) {
		return "unknown"
	}
	part, ok := partOf(object, p, d.Path)
	if ok == (d.After != nil) && (!ok || review.Has(part, d.After)) {
		return "same"
	}
	return "changed"
}

// partOf returns the part of the object at a path below the path of an operation.
func partOf(object *unstructured.Unstructured, p *trace.PatchOperation, path []review.Segment) (part any, ok bool) {
	part, ok = at(object.Object, p.Path)
	for i := 0; ok && i < len(path); i++ {
		part, ok = path[i].Of(part)
	}
	return part, ok
}

// decode decodes a value of a trace; an absent value is nil.
func decode(data json.RawMessage) (value any, ok bool) {
	if len(data) == 0 {
		return nil, true
	}
	err := kjson.UnmarshalCaseSensitivePreserveInts(data, &value)
	return value, err == nil
}

func encode(value any) json.RawMessage {
	if value == nil {
		return nil
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return data
}

// now reports whether the object still has the value of an operation.
func now(object *unstructured.Unstructured, p *trace.PatchOperation) string {
	if object == nil {
		return "unknown"
	}
	found, ok := at(object.Object, p.Path)
	switch {
	case p.Op == "remove":
		if ok {
			return "changed"
		}
		return "same"
	case !ok && strings.HasSuffix(p.Path, "/-"):
		return appended(object, p)
	case !ok:
		return "changed"
	case len(p.Value) == 0:
		return "unknown"
	}
	return sameAs(found, p.Value)
}

// appended reports whether a list still has the element that was appended.
func appended(object *unstructured.Unstructured, p *trace.PatchOperation) string {
	list, _ := at(object.Object, strings.TrimSuffix(p.Path, "/-"))
	elements, ok := list.([]any)
	if !ok {
		return "changed"
	}
	if len(p.Value) == 0 || redacted(p.Value) {
		return "unknown"
	}
	for _, element := range elements {
		if sameAs(element, p.Value) == "same" {
			return "same"
		}
	}
	return "changed"
}

// redacted reports whether the trace redacted a credential in a value.
func redacted(value json.RawMessage) bool { return bytes.Contains(value, []byte(credentials.Removed)) }

// sameAs compares a value of the object with the value of a change. Members that were defaulted later make no
// difference.
func sameAs(found any, set json.RawMessage) string {
	want, ok := decode(set)
	if !ok || redacted(set) {
		return "unknown"
	}
	if review.Has(found, want) {
		return "same"
	}
	return "changed"
}

// at returns the value at a JSON pointer.
func at(value any, pointer string) (any, bool) {
	p, err := jsonpointer.New(pointer)
	if err != nil {
		return nil, false
	}
	found, _, err := p.Get(value)
	return found, err == nil
}
