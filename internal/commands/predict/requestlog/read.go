package requestlog

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/kit/aliases"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// notReadable is the reason for a line that is not a JSON object, or does not have the format that it declares.
const notReadable = "not readable as JSON"

// Reader reads requests.
type Reader struct {
	// Paths are files and directories.
	Paths []string
	// Known returns objects that were stored before the first request; nil for none.
	Known func(Key) json.RawMessage

	// events, if set, is called with the events of audit logs, and take is not called.
	events func(data []byte, place string) error
	// looks, if set, is called with each value, and take is not called.
	looks func(of metav1.TypeMeta, data []byte)
	// answers are read once.
	answers *answers

	state state
	count *Count
}

// Stdin is the path of standard input.
const Stdin = "-"

// Events calls take with each event of the audit logs in files and directories, unchanged, and with its position as
// FILE:LINE. Other lines are counted. If the only path is Stdin, the events are read from in. The error comes from
// take, or reports that a path does not exist.
func Events(ctx context.Context, paths []string, in io.Reader, take func(event []byte, place string) error) (*Count, error) {
	r := &Reader{Paths: paths, events: take, count: &Count{}}
	if slices.Equal(paths, []string{Stdin}) {
		return r.count, r.file(ctx, "standard input", in, nil)
	}
	return r.Read(ctx, nil)
}

// Count counts the lines of the input that were read or left out.
type Count struct {
	// Requests is the number of requests read.
	Requests int `json:"requests"`
	// LeftOut counts, by reason, the requests that cannot be evaluated. Other counts, by reason, reads and events of
	// other stages of a request.
	LeftOut []Reason `json:"leftOut,omitempty"`
	Other   []Reason `json:"other,omitempty"`
	// Backwards is the number of requests with an earlier time than the request before them.
	Backwards int `json:"backwards,omitempty"`
	// Problems lists files that could not be read to their end.
	Problems []string `json:"problems,omitempty"`
}

// Reason is a reason for leaving out lines, with their number.
type Reason struct {
	Reason string `json:"reason"`
	Count  int    `json:"count"`
	// First is the position of the first such line, as FILE:LINE.
	First string `json:"first"`
}

// Left returns the number of requests left out.
func (c *Count) Left() int {
	n := 0
	for i := range c.LeftOut {
		n += c.LeftOut[i].Count
	}
	return n
}

// LeaveOut counts a request that cannot be evaluated.
func (c *Count) LeaveOut(why, place string) { note(&c.LeftOut, why, place) }

// maxReasons bounds the number of distinct reasons, because some quote the input.
const maxReasons = 100

func note(list *[]Reason, why, place string) {
	i := slices.IndexFunc(*list, func(r Reason) bool { return r.Reason == why })
	if i < 0 && len(*list) >= maxReasons {
		i = len(*list) - 1
	}
	if i < 0 {
		*list = append(*list, Reason{why, 1, place})
		return
	}
	(*list)[i].Count++
}

// Read calls take with each request, in the order of the files, until take returns an error. The error comes from take,
// or reports that a path does not exist.
func (r *Reader) Read(ctx context.Context, take func(*Entry) error) (*Count, error) {
	r.count, r.state = &Count{}, state{known: r.Known}
	list, err := sourceFiles(r.Paths)
	if err != nil {
		return nil, err
	}
	if r.answers == nil && r.events == nil && r.looks == nil {
		if r.answers, err = r.join(ctx); err != nil {
			return nil, err
		}
	}
	var last time.Time
	for _, name := range list {
		f, err := os.Open(name)
		if err != nil {
			return nil, files.Plain(err)
		}
		err = r.file(ctx, name, f, func(q *Entry) error {
			r.count.Requests++
			if !q.Time.IsZero() {
				if q.Time.Before(last) {
					r.count.Backwards++
				}
				last = q.Time
			}
			return take(q)
		})
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	sorted(r.count.LeftOut)
	sorted(r.count.Other)
	return r.count, nil
}

func sorted(list []Reason) {
	slices.SortStableFunc(list, func(a, b Reason) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason)) })
}

// file reads one file. Problems of the file are counted; the error comes from take.
func (r *Reader) file(ctx context.Context, name string, f io.Reader, take func(*Entry) error) error {
	in, err := open(f)
	if err != nil {
		r.count.Problems = append(r.count.Problems, fmt.Sprintf("%s: %v", name, err))
		return nil
	}
	return r.lines(ctx, name, newLines(in), true, take)
}

// lines reads the lines of a file. If whole is true, the file may be one document of several lines.
func (r *Reader) lines(ctx context.Context, name string, l *lines, whole bool, take func(*Entry) error) error {
	for {
		line, ok, err := l.next()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		trimmed := bytes.TrimSpace(line)
		place := fmt.Sprintf("%s:%d", name, l.at)
		switch {
		case !ok:
			note(&r.count.LeftOut, fmt.Sprintf("a line of more than %d MiB", MaxLine>>20), place)
		case len(trimmed) == 0:
		case whole && !json.Valid(trimmed):
			document, rest, broken := l.restOf(line, err)
			if broken != nil {
				r.count.Problems = append(r.count.Problems, fmt.Sprintf("%s:%d: the file ends here: %v", name, bytes.Count(document, []byte("\n")), broken))
			}
			if len(document) > MaxLine || !r.document(document, place, take, &err) {
				// The file is a log with a bad first line.
				return r.lines(ctx, name, newLines(io.MultiReader(bytes.NewReader(document), rest)), false, take)
			}
			return err
		default:
			whole = false
			if err := r.line(trimmed, place, take); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			r.count.Problems = append(r.count.Problems, fmt.Sprintf("%s:%d: the file ends here: %v", name, l.at, err))
			return nil
		}
	}
}

// restOf returns the rest of a file after its first line, which was read with err, up to MaxLine bytes, and a reader for
// everything after. broken is the reason why the file could not be read to its end.
func (l *lines) restOf(first []byte, err error) (whole []byte, follows io.Reader, broken error) {
	whole, follows = append(bytes.Clone(first), '\n'), bytes.NewReader(nil)
	if err == nil {
		var more []byte
		more, err = io.ReadAll(io.LimitReader(l.in, MaxLine))
		if whole = append(whole, more...); err == nil {
			return whole, l.in, nil
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return whole, follows, err
}

// document reads a file that is one JSON document or several YAML documents. It returns false for other files, such as
// a log whose bad line precedes good ones.
func (r *Reader) document(data []byte, place string, take func(*Entry) error, failed *error) bool {
	*failed = nil
	trimmed := bytes.TrimSpace(data)
	if json.Valid(trimmed) {
		*failed = r.line(trimmed, place, take)
		return true
	}
	for line := range bytes.Lines(trimmed) {
		if line[0] == '{' && json.Valid(line) {
			return false
		}
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for found := false; ; {
		document, err := documents.Read()
		if err != nil {
			return found
		}
		var converted []byte
		if err = aliases.Check(document, MaxLine); err == nil {
			converted, err = yaml.YAMLToJSON(document)
		}
		switch {
		case string(converted) == "null":
		case err == nil && len(converted) > 0 && converted[0] == '{':
			found = true
			if *failed = r.line(converted, place, take); *failed != nil {
				return true
			}
		case !found:
			return false
		default:
			note(&r.count.LeftOut, notReadable, place)
		}
	}
}

// line reads one value. The error comes from take.
func (r *Reader) line(data []byte, place string, take func(*Entry) error) error {
	of, ok := headerOf(data)
	if !ok {
		note(&r.count.LeftOut, notReadable, place)
		return nil
	}
	if r.looks != nil && !strings.HasSuffix(of.Kind, "List") {
		r.looks(of, data)
		return nil
	}
	var q *Entry
	var why string
	var other bool
	switch {
	case of.Kind == "EventList" && isAudit(of.APIVersion):
		return r.readItems(data, place, take)
	case of.Kind == "Event" && isAudit(of.APIVersion):
		if of.APIVersion != "audit.k8s.io/v1" {
			note(&r.count.LeftOut, "audit events of version "+text(of.APIVersion)+" are not read; audit.k8s.io/v1 is", place)
			return nil
		}
		if r.events != nil {
			return r.events(data, place)
		}
		q, why, other = r.event(data)
	case r.events != nil:
		why = "not an event of an audit log"
	case of.Kind == Kind:
		q, why = r.readOwn(data, of)
	case of.Kind == "AdmissionReview":
		q, why = ofReview(data, of)
	case of.Kind == "AdmissionTrace" || of.Kind == "" && bytes.Contains(data, []byte(`"steps"`)):
		q, why = r.traced(data)
	case of.Kind == "AdmissionTraceList":
		return r.readItems(data, place, take)
	case of.Kind == "":
		why = "a line without a kind"
	default:
		why = "the kind " + text(of.Kind) + " is no recorded request"
	}
	if why != "" {
		if other {
			note(&r.count.Other, why, place)
		} else {
			note(&r.count.LeftOut, why, place)
		}
		return nil
	}
	q.Place = place
	return take(q)
}

// text quotes a part of the input for a message.
func text(s string) string { return fmt.Sprintf("%.60q", s) }

func isAudit(apiVersion string) bool { return strings.HasPrefix(apiVersion, auditv1.GroupName+"/") }

// readItems reads the items of a list.
func (r *Reader) readItems(data []byte, place string, take func(*Entry) error) error {
	var list struct {
		metav1.TypeMeta
		Items []json.RawMessage `json:"items"`
	}
	if json.Unmarshal(data, &list) != nil {
		note(&r.count.LeftOut, notReadable, place)
		return nil
	}
	for _, item := range list.Items {
		of, ok := headerOf(item)
		if !ok || strings.HasSuffix(of.Kind, "List") {
			note(&r.count.LeftOut, notReadable, place)
			continue
		}
		if of.Kind == "" {
			item = withKind(item, metav1.TypeMeta{APIVersion: list.APIVersion, Kind: strings.TrimSuffix(list.Kind, "List")})
		}
		if err := r.line(item, place, take); err != nil {
			return err
		}
	}
	return nil
}

// withKind adds the apiVersion and kind to an item of a list, because items may omit them.
func withKind(item json.RawMessage, of metav1.TypeMeta) json.RawMessage {
	kind, _ := json.Marshal(of)
	if rest := bytes.TrimSpace(item[1:]); !bytes.Equal(rest, []byte("}")) {
		return slices.Concat(kind[:len(kind)-1], []byte(","), rest)
	}
	return kind
}

// readOwn reads a line of Gatehouse's own format.
func (r *Reader) readOwn(data []byte, of metav1.TypeMeta) (*Entry, string) {
	if of.APIVersion != APIVersion {
		return nil, "recorded requests of version " + text(of.APIVersion) + " are not read; " + APIVersion + " is"
	}
	q := &Entry{}
	if !Decode(data, q, Lenient) {
		return nil, notReadable
	}
	if q.Response == nil {
		q.Response = r.answers.of(q.ID)
	}
	return q, q.wrong()
}

// ofReview reads the request of an AdmissionReview.
func ofReview(data []byte, of metav1.TypeMeta) (*Entry, string) {
	if of.APIVersion != "admission.k8s.io/v1" && of.APIVersion != "admission.k8s.io/v1beta1" {
		return nil, "reviews of version " + text(of.APIVersion) + " are not read; admission.k8s.io/v1 and v1beta1 are"
	}
	// Both versions have the same fields.
	var review struct {
		Request *admissionv1.AdmissionRequest `json:"request"`
	}
	if !Decode(data, &review, Lenient) {
		return nil, notReadable
	}
	a := review.Request
	if a == nil {
		return nil, "a review without a request"
	}
	q := &Entry{
		APIVersion: APIVersion, Kind: Kind, ID: string(a.UID), Operation: string(a.Operation), Resource: a.Resource, Subresource: a.SubResource,
		Namespace: a.Namespace, Name: a.Name, User: a.UserInfo, DryRun: a.DryRun != nil && *a.DryRun,
	}
	if isObject(a.Object.Raw) && q.Operation != Delete && q.Operation != Connect {
		q.Object = a.Object.Raw
	}
	if isObject(a.OldObject.Raw) && q.Operation != Create {
		q.OldObject = a.OldObject.Raw
	}
	q.outside()
	if q.Name == "" && q.Subresource == "" {
		q.Name = nameOf(q.Object)
	}
	if q.Name == "" && q.Operation == Delete {
		q.Name = nameOf(q.OldObject)
	}
	return q, q.wrong()
}

// FromReview reads the request of an AdmissionReview. The text is the reason why the request cannot be evaluated, or
// "".
func FromReview(data []byte) (*Entry, string) {
	of, ok := headerOf(data)
	if !ok {
		return nil, notReadable
	}
	return ofReview(data, of)
}

// traced reads a trace of Gatehouse, which contains no objects.
func (r *Reader) traced(data []byte) (*Entry, string) {
	var t struct {
		ID      string              `json:"id"`
		Start   time.Time           `json:"start"`
		Outcome trace.Outcome       `json:"outcome"`
		Request trace.RequestRecord `json:"request"`
	}
	if json.Unmarshal(data, &t) != nil {
		return nil, notReadable
	}
	if t.Request.Operation == "" {
		return nil, "a line without a kind"
	}
	q := &Entry{APIVersion: APIVersion, Kind: Kind, ID: t.ID, Time: t.Start, Operation: t.Request.Operation, Resource: metav1.GroupVersionResource(t.Request.Resource),
		Subresource: t.Request.Subresource, Namespace: t.Request.Namespace, Name: t.Request.Name, DryRun: t.Request.DryRun}
	q.User.Username = t.Request.User
	q.Response = &Response{Allowed: t.Outcome == trace.OutcomeAllowed || t.Outcome == trace.OutcomeFailedOpen}
	q.outside()
	switch q.Operation {
	case Create, Update:
		return nil, "a trace has no objects"
	case Delete:
		q.OldObject, _ = r.state.find(q.Key())
	}
	return q, q.wrong()
}
