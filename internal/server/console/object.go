package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/go-openapi/jsonpointer"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/readers/blame"
	"github.com/gatehouse-dev/gatehouse/internal/readers/view"
)

// maxTraces bounds the requests about an object that are read, the latest first.
const maxTraces = 1000

// viewObject draws an object with the author of each line.
func viewObject(v *viewer, asked []byte) (any, error) {
	ref := &reference{}
	if err := decode(asked, ref); err != nil {
		return nil, err
	}
	r, content, err := v.find(ref)
	if err != nil {
		return nil, err
	}
	selector := url.QueryEscape("resource=" + fields.EscapeValue(r.Resource) + ",name=" + fields.EscapeValue(ref.Name))
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	d := &drawing{}
	var records []trace.Record
	err = v.get(inside(group, version, ref.Namespace, "admissiontraces")+"?fieldSelector="+selector, &list)
	switch {
	case err == nil:
		latest := list.Items[max(0, len(list.Items)-maxTraces):]
		records = make([]trace.Record, len(latest))
		for i := range latest {
			if err := json.Unmarshal(latest[i], &records[i]); err != nil {
				return nil, fmt.Errorf("a trace cannot be read: %w", err)
			}
		}
	case codeOf(err) == http.StatusNotFound:
		d.Notes = []string{"Traces need Gatehouse. Without them, managedFields say which client set a field, and not what admission changed in its request."}
	default:
		d.Notes = []string{"Traces: " + why(err)}
	}
	d.view = view.OfObject(drawObject(content, records), links)
	return d, nil
}

// viewManifest returns an object as YAML in the form that users write.
func viewManifest(v *viewer, asked []byte) (any, error) {
	ref := &reference{}
	if err := decode(asked, ref); err != nil {
		return nil, err
	}
	_, content, err := v.find(ref)
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(content, "metadata", "managedFields")
	text, ok := manifest(content)
	if !ok {
		return nil, &refused{http.StatusRequestEntityTooLarge, "the object is too large for a form"}
	}
	return map[string]string{"text": text}, nil
}

// manifest formats an object as YAML; ok is false if it is too large.
func manifest(content map[string]any) (text string, ok bool) {
	w := &writer{}
	w.value("", content, "", nil)
	var b strings.Builder
	for _, l := range w.lines {
		b.WriteString(l.Text + "\n")
	}
	return b.String(), !w.full()
}

// drawObject finds the author of each line of an object. records are nil if they cannot be read.
func drawObject(content map[string]any, records []trace.Record) view.Object {
	object := &unstructured.Unstructured{Object: content}
	owners := blame.Owners(object)
	b := &blame.Blame{}
	var stored []*trace.Record
	for i := range records {
		if !records[i].Request.DryRun {
			stored = append(stored, &records[i])
		}
	}
	b.Judge(stored, object)
	o := view.Object{Title: object.GetKind() + " " + strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/"), Traced: records != nil}
	if o.Traced {
		o.Unknown = b.Unknown
	}
	for i := len(records) - 1; i >= 0; i-- {
		o.Requests = append(o.Requests, &records[i])
	}
	pending, _, _ := unstructured.NestedSlice(content, "metadata", "initializers", "pending")
	for _, p := range pending {
		if m, ok := p.(map[string]any); ok {
			o.Waits = append(o.Waits, fmt.Sprintf("The object waits for the initializer %v. Its creator waits, too, and other clients do not see it.", m["name"]))
		}
	}
	if at := object.GetDeletionTimestamp(); at != nil {
		o.Waits = append(o.Waits, fmt.Sprintf("The object was deleted at %s and waits for its finalizers: %s.", at.UTC(), strings.Join(object.GetFinalizers(), ", ")))
	}
	unstructured.RemoveNestedField(content, "metadata", "managedFields")
	w := &writer{by: map[string]*blame.Change{}, owners: map[string]*blame.Owner{}}
	for i := range owners {
		w.owners[owners[i].Path] = &owners[i]
	}
	for i := range b.Changes {
		if c := &b.Changes[i]; c.Now != "changed" && c.Op != "remove" {
			w.by[strings.TrimSuffix(c.Path, "/-")] = c
			if strings.HasSuffix(c.Path, "/-") {
				w.appended(content, c)
			}
		}
	}
	traced := len(w.by) > 0
	w.value("", content, "", nil)
	o.Lines = w.lines
	if w.full() {
		o.Notes = append(o.Notes, "The object has more lines than are drawn.")
	}
	if o.Traced && !traced {
		o.Notes = append(o.Notes, "No trace shows a change of this object by admission.")
	}
	if len(owners) > 0 {
		o.Notes = append(o.Notes, "A manager is a client that set a field last, by managedFields; what admission set in its request counts as its own there, unless a trace says otherwise.")
	}
	return o
}

// writer writes an object as YAML, with one line and one author for each field.
type writer struct {
	// by are the changes in the traces, and owners the field managers, by path.
	by     map[string]*blame.Change
	owners map[string]*blame.Owner
	lines  []view.ObjectLine
	// size of the lines, in bytes.
	size int
}

const (
	// maxLines and maxText bound the lines and the bytes that are written of an object. Each level of
	// an object indents all lines below it.
	maxLines = 50_000
	maxText  = 2 << 20
)

// full reports whether the limits are reached.
func (w *writer) full() bool { return len(w.lines) >= maxLines || w.size >= maxText }

// author returns the author of a field below a field set by c: from traces if they have it, otherwise
// from managedFields. below is the author of the fields inside the field.
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

// appended attributes an element that was appended to a list to the author of the append, instead of
// the whole list.
func (w *writer) appended(object map[string]any, c *blame.Change) {
	path := strings.TrimSuffix(c.Path, "/-")
	delete(w.by, path)
	pointer, _ := jsonpointer.New(path)
	list, _, _ := pointer.Get(object)
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

// lineBreaks are the characters that end a line in YAML.
const lineBreaks = "\n\r\u0085\u2028\u2029"

// value writes a value. prefix precedes its first line and sets the indent of the others. c is the
// author of the parent field.
func (w *writer) value(path string, v any, prefix string, c *blame.Change) {
	if w.full() {
		return
	}
	own, inside := w.author(path, c)
	// The prefix is written once; the other lines are indented by its width.
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
			at := path + "/" + jsonpointer.Escape(key)
			own, below := w.author(at, inside)
			name := scalar(key)
			if strings.ContainsAny(key, lineBreaks) {
				name = strconv.QuoteToASCII(key)
			}
			head := next() + name + ":"
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
			w.scalar(head+" ", indent, v[key], own)
		}
	case []any:
		if len(v) == 0 {
			w.line(prefix+"[]", own)
		}
		for i, child := range v {
			w.value(fmt.Sprintf("%s/%d", path, i), child, next()+"- ", inside)
		}
	default:
		w.scalar(prefix, strings.TrimSuffix(indent, "  "), v, own)
	}
}

// scalar writes a value without fields after head. Its further lines are indented below indent.
func (w *writer) scalar(head, indent string, v any, own *blame.Change) {
	for text := range strings.SplitSeq(scalar(v), "\n") {
		if text != "" {
			text = head + text
		}
		w.line(text, own)
		head = indent
	}
}

// rank puts apiVersion, kind and metadata first in an object.
func rank(path, key string) int {
	if i := slices.Index([]string{"apiVersion", "kind", "metadata"}, key); path == "" && i >= 0 {
		return i
	}
	return 3
}

// scalar formats a value that is written after its key.
func scalar(v any) string {
	data, err := yaml.Marshal(v)
	if err != nil {
		return "?"
	}
	return strings.TrimSuffix(string(data), "\n")
}

func (w *writer) line(text string, c *blame.Change) {
	if w.full() {
		return
	}
	w.size += len(text)
	l := view.ObjectLine{Text: text}
	if c != nil {
		l.By, l.Trace = c.By, c.Trace
		if c.ByKind != trace.ByWebhook {
			l.By = c.ByKind + " " + c.By
		}
	}
	w.lines = append(w.lines, l)
}
