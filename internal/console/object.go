package console

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/blame"
	"github.com/gatehouse-dev/gatehouse/internal/pages"
)

// drawObject draws an object, with who set which line of it.
func drawObject(_ context.Context, body []byte) (any, error) {
	var sent struct {
		Object map[string]any `json:"object"`
		// Traces are null when they cannot be read.
		Traces []*trace.Record `json:"traces"`
	}
	if err := decode(body, &sent); err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{Object: sent.Object}
	owners := blame.Owners(object)
	b := &blame.Blame{}
	b.Judge(slices.DeleteFunc(slices.Clone(sent.Traces), func(r *trace.Record) bool { return r.Request.DryRun }), object)
	o := pages.Object{Title: object.GetKind() + " " + strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/"), Traced: sent.Traces != nil}
	if o.Traced {
		o.Unknown = b.Unknown
	}
	for i := len(sent.Traces) - 1; i >= 0; i-- {
		o.Requests = append(o.Requests, pages.Summarize(sent.Traces[i]))
	}
	pending, _, _ := unstructured.NestedSlice(sent.Object, "metadata", "initializers", "pending")
	for _, p := range pending {
		if m, ok := p.(map[string]any); ok {
			o.Waits = append(o.Waits, fmt.Sprintf("The object waits for the initializer %v. Its creator waits, too, and other clients do not see it.", m["name"]))
		}
	}
	if at := object.GetDeletionTimestamp(); at != nil {
		o.Waits = append(o.Waits, fmt.Sprintf("The object was deleted at %s and waits for its finalizers: %s.", at.UTC(), strings.Join(object.GetFinalizers(), ", ")))
	}
	unstructured.RemoveNestedField(sent.Object, "metadata", "managedFields")
	w := &writer{by: map[string]*blame.Change{}, owners: map[string]*blame.Owner{}}
	for i := range owners {
		w.owners[owners[i].Path] = &owners[i]
	}
	for i := range b.Changes {
		if c := &b.Changes[i]; c.Now != "changed" && c.Op != "remove" {
			w.by[strings.TrimSuffix(c.Path, "/-")] = c
			if strings.HasSuffix(c.Path, "/-") {
				w.appended(sent.Object, c)
			}
		}
	}
	traced := len(w.by) > 0
	w.value("", sent.Object, "", nil)
	o.Lines = w.lines
	if o.Traced && !traced {
		o.Notes = append(o.Notes, "No trace shows a change of this object by admission.")
	}
	if len(owners) > 0 {
		o.Notes = append(o.Notes, "A manager is a client that set a field last, by managedFields; what admission set in its request counts as its own there, unless a trace says otherwise.")
	}
	return pages.OfObject(o, links), nil
}

// writer writes an object as YAML, a line for each field, and knows who set it.
type writer struct {
	// by are the changes that traces show, and owners who owns which fields, by path.
	by     map[string]*blame.Change
	owners map[string]*blame.Owner
	lines  []pages.Line
}

// author returns who set a field that is in one that c set: by traces, if they show it, and by
// managedFields otherwise. below is who set what is in the field.
func (w *writer) author(path string, c *blame.Change) (own, below *blame.Change) {
	if set := w.by[path]; set != nil {
		return set, set
	}
	owner := w.owners[path]
	if owner == nil || c != nil && c.ByKind != blame.ByManager {
		return c, c
	}
	own = &blame.Change{By: owner.By, ByKind: blame.ByManager}
	if owner.Whole {
		return own, own
	}
	return own, nil
}

// appended gives the element that was appended to a list to who appended it, and not the list.
func (w *writer) appended(object map[string]any, c *blame.Change) {
	path := strings.TrimSuffix(c.Path, "/-")
	delete(w.by, path)
	var list any = object
	for _, part := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
		switch v := list.(type) {
		case map[string]any:
			list = v[unescape.Replace(part)]
		case []any:
			if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(v) {
				list = v[i]
			}
		}
	}
	var set map[string]any
	elements, _ := list.([]any)
	if json.Unmarshal(c.Value, &set) != nil {
		return
	}
	for i, e := range elements {
		if m, ok := e.(map[string]any); ok && m["name"] == set["name"] && set["name"] != nil {
			w.by[fmt.Sprintf("%s/%d", path, i)] = c
		}
	}
}

var (
	unescape = strings.NewReplacer("~1", "/", "~0", "~")
	escape   = strings.NewReplacer("~", "~0", "/", "~1")
)

// value writes a value. prefix is what stands in front of its first line, of which indent is the
// width, and c who set what contains it.
func (w *writer) value(path string, v any, prefix string, c *blame.Change) {
	own, inside := w.author(path, c)
	// What stands in front of the first line stands there once; the other lines are as far inside.
	indent := strings.Repeat(" ", len(prefix))
	next := func() string {
		p := prefix
		prefix = indent
		return p
	}
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			w.line(prefix+"{}", own)
		}
		keys := sorted(v)
		sort.SliceStable(keys, func(i, j int) bool { return rank(path, keys[i]) < rank(path, keys[j]) })
		for _, key := range keys {
			at := path + "/" + escape.Replace(key)
			own, below := w.author(at, inside)
			head := next() + scalar(key) + ":"
			switch child := v[key].(type) {
			case map[string]any:
				if len(child) > 0 {
					w.line(head, own)
					w.value(at, child, indent+"  ", below)
					continue
				}
			case []any:
				if len(child) > 0 {
					w.line(head, own)
					w.value(at, child, indent, below)
					continue
				}
			}
			for i, text := range strings.Split(scalar(v[key]), "\n") {
				if i == 0 {
					w.line(head+" "+text, own)
				} else {
					w.line(indent+text, own)
				}
			}
		}
	case []any:
		for i, child := range v {
			w.value(fmt.Sprintf("%s/%d", path, i), child, next()+"- ", inside)
		}
	default:
		w.line(prefix+scalar(v), own)
	}
}

// rank has the first fields of an object stand first.
func rank(path, key string) int {
	if i := slices.Index([]string{"apiVersion", "kind", "metadata"}, key); path == "" && i >= 0 {
		return i
	}
	return 3
}

// scalar is a value that is written behind its key.
func scalar(v any) string {
	data, err := yaml.Marshal(v)
	if err != nil {
		return "?"
	}
	return strings.TrimRight(string(data), "\n")
}

func (w *writer) line(text string, c *blame.Change) {
	l := pages.Line{Text: text}
	if c != nil {
		l.By, l.Trace = c.By, c.Trace
		if c.ByKind != trace.ByWebhook {
			l.By = c.ByKind + " " + c.By
		}
	}
	w.lines = append(w.lines, l)
}
