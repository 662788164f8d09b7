package replay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/rejection"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/server"
)

// verdict is the decision of one stage on a request.
type verdict struct {
	allowed  bool
	code     int
	message  string
	by       []rejection.Decider
	warnings []string
	cost     uint64
	// calls lists the webhooks that are called, and worst is the longest time that they can take together.
	calls []string
	worst time.Duration

	answer *stage.Answer
	trace  *trace.Trace
	// at is the time when the evaluation began.
	at time.Time
	// made is the name that the server generated for a new object.
	made string
}

// unjudged is the reason why a request cannot be evaluated.
type unjudged string

func (u unjudged) Error() string { return string(u) }

// judge evaluates requests in a stage.
type judge struct {
	world *stage.Stage
	// call waits for a turn before each call of a webhook; nil means that no webhook is called.
	call func(context.Context) error
	// plain sends each request through the whole API server.
	plain bool
}

func userOf(q *requestlog.Entry) *user.DefaultInfo {
	u := &user.DefaultInfo{Name: q.User.Username, UID: q.User.UID, Groups: q.User.Groups}
	if len(q.User.Extra) > 0 {
		u.Extra = map[string][]string{}
		for key, values := range q.User.Extra {
			u.Extra[key] = values
		}
	}
	if u.Name == "" {
		u.Name, u.Groups = user.Anonymous, []string{user.AllUnauthenticated}
	}
	return u
}

// prepared is a request that can be evaluated any number of times.
type prepared struct {
	*requestlog.Entry
	user   user.DefaultInfo
	object []byte
	stored []byte
	// generated is the generateName of a new object; empty if the request names the object.
	generated string
}

// noUID is the uid given to a stored object without one.
const noUID = "00000000-0000-4000-8000-000000000000"

// prepare completes a request.
func prepare(q *requestlog.Entry) (*prepared, error) {
	p := &prepared{Entry: q, user: *userOf(q), object: q.Object}
	stored, err := storedObject(q)
	if err != nil {
		return nil, err
	}
	var old requestlog.Meta
	if stored != nil {
		if p.stored, old, err = completed(q, stored); err != nil {
			return nil, err
		}
	}
	if q.Object == nil {
		return p, nil
	}
	sent, ok := requestlog.MetaOf(q.Object)
	if !ok || !json.Valid(q.Object) {
		return nil, unjudged("the object is not readable")
	}
	if sent.APIVersion == "" || sent.Kind == "" {
		return nil, unjudged("the object has no apiVersion and kind")
	}
	if q.Operation == requestlog.Create && sent.Name == "" {
		p.generated = sent.GenerateName
	}
	sameRevision := q.Operation != requestlog.Update || stored == nil || sent.ResourceVersion == old.ResourceVersion
	if !sameRevision || q.Operation == requestlog.Update && sent.Name == "" {
		u := decoded(q.Object)
		u.SetName(cmp.Or(sent.Name, q.Name))
		if !sameRevision {
			// An update must match the stored object's resourceVersion.
			u.SetResourceVersion(old.ResourceVersion)
		}
		if p.object, err = json.Marshal(u.Object); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// completed returns a stored object with the metadata that every stored object has.
func completed(q *requestlog.Entry, object json.RawMessage) (json.RawMessage, requestlog.Meta, error) {
	m, ok := requestlog.MetaOf(object)
	if !ok || !json.Valid(object) {
		return nil, m, unjudged("the object before the request is not readable")
	}
	if m.UID != "" && m.ResourceVersion != "" && m.Name != "" {
		return object, m, nil
	}
	u := decoded(object)
	if u == nil {
		return nil, m, unjudged("the object before the request is not readable")
	}
	m.ResourceVersion = cmp.Or(m.ResourceVersion, "1")
	u.SetUID(types.UID(cmp.Or(m.UID, noUID)))
	u.SetResourceVersion(m.ResourceVersion)
	u.SetName(cmp.Or(m.Name, q.Name))
	u.SetNamespace(cmp.Or(m.Namespace, q.Namespace))
	if m.CreationTimestamp == nil {
		_ = unstructured.SetNestedField(u.Object, "2026-01-01T00:00:00Z", "metadata", "creationTimestamp")
	}
	data, err := json.Marshal(u.Object)
	return data, m, err
}

// of evaluates a request.
func (j *judge) of(ctx context.Context, p *prepared) (*verdict, error) {
	kind := j.world.Kinds().At(p.GVR())
	if kind == nil {
		return nil, unjudged(fmt.Sprintf("nothing defines the resource %s", p.GVR().GroupResource()))
	}
	if kind.Namespaced && p.Namespace == "" {
		return nil, unjudged("the request names no namespace")
	}
	v := &verdict{at: time.Now()}
	q := j.request(p, kind)
	var mu sync.Mutex
	q.Answer = func(hook *registration.Entry, req *http.Request) (*http.Response, error) {
		mu.Lock()
		name := hook.Configuration + "/" + hook.Name
		if !slices.Contains(v.calls, name) {
			v.calls = append(v.calls, name)
			if hook.Source.Descriptor().Pass == registration.MutatingPass {
				v.worst += hook.Timeout
			} else {
				v.worst = max(v.worst, hook.Timeout)
			}
		}
		mu.Unlock()
		if j.call != nil {
			return nil, j.call(req.Context())
		}
		return passed(req)
	}
	ask := j.world.Judge
	if j.plain {
		ask = j.world.Ask
	}
	a, err := ask(ctx, q)
	if err != nil {
		return nil, err
	}
	course := q.Course(a)
	v.answer, v.code, v.by, v.cost, v.trace = a, a.Code, course.By, course.Cost, q.Trace()
	// Failures after admission are not caused by a policy: the pod of a binding is gone, or a budget allows no
	// eviction.
	v.allowed = a.Status == nil || q.Passed()
	if v.allowed {
		v.by = nil
	} else {
		v.message = ordered(a.Status)
		if len(v.by) == 1 && v.by[0].Plugin == rejection.API && (v.code == http.StatusNotFound || v.code == http.StatusConflict || v.code == http.StatusMethodNotAllowed) {
			return nil, unjudged(fmt.Sprintf("the server answers %d: the object of the request is not there", v.code))
		}
	}
	v.warnings = slices.Clone(a.Warnings)
	slices.Sort(v.calls)
	v.steady(p)
	return v, nil
}

// request converts a prepared request to a question for the stage.
func (j *judge) request(p *prepared, kind *offline.Kind) *stage.Question {
	q := &stage.Question{Kind: kind, Namespace: p.Namespace, Name: p.Name, Subresource: p.Subresource, User: p.user, ContentType: "application/json", Body: p.object,
		Query: url.Values{"fieldManager": {"gatehouse-replay"}, "fieldValidation": {"Ignore"}}}
	if !kind.Namespaced {
		q.Namespace = ""
	}
	q.DryRun = p.DryRun
	if p.stored != nil {
		q.Stored = []server.Stored{{Resource: kind.Resource.GroupResource(), Namespace: q.Namespace, Name: p.Name, JSON: p.stored}}
	}
	switch p.Operation {
	case requestlog.Create:
		q.Method = http.MethodPost
	case requestlog.Update:
		q.Method = http.MethodPut
	case requestlog.Delete:
		q.Method, q.ContentType, q.Body = http.MethodDelete, "", nil
	case requestlog.Connect:
		q.Method, q.ContentType, q.Body, q.Connect = http.MethodPost, "", nil, true
	}
	if p.Patch != nil {
		q.Method, q.ContentType, q.Body = http.MethodPatch, string(types.MergePatchType), p.Patch
	}
	if p.Apply != nil {
		q.Method, q.ContentType, q.Body = http.MethodPatch, string(types.ApplyYAMLPatchType), p.Apply.Configuration
		q.Query.Set("fieldManager", p.Apply.FieldManager)
		if p.Apply.Force {
			q.Query.Set("force", "true")
		}
	}
	return q
}

// passed returns a webhook response that allows the request.
func passed(req *http.Request) (*http.Response, error) {
	sent, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	body, err := stage.Reviewed(sent, map[string]any{"allowed": true})
	if err != nil {
		return nil, err
	}
	return stage.Response(req, http.StatusOK, body), nil
}

// generatedName replaces names, uids and tokens generated by the server, and now replaces times from its clock.
const (
	generatedName = "<generated>"
	now           = "<now>"
)

var (
	// suffix matches the name of a token volume with its random suffix.
	suffix = regexp.MustCompile(`kube-api-access-[bcdfghjklmnpqrstvwxz2456789]{5}\b`)
	// random matches uids and tokens, and moment matches times: the server writes them into objects and messages.
	random = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\beyJ[\w-]+\.[\w-]+\.[\w-]+`)
	moment = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
)

// maxBase is the length to which a server truncates generateName.
const maxBase = 58

// steady replaces random values, and times from the server's clock, in the messages of a verdict.
func (v *verdict) steady(p *prepared) {
	made := []func(string) string{
		func(s string) string { return suffix.ReplaceAllString(s, "kube-api-access-"+generatedName) },
		func(s string) string { return replacedOthers(random, s, p, generatedName) },
		func(s string) string {
			return moment.ReplaceAllStringFunc(s, func(text string) string {
				if clock(text, v.at) && !p.has(text) {
					return now
				}
				return text
			})
		},
	}
	if p.generated != "" {
		base := p.generated[:min(len(p.generated), maxBase)]
		name := regexp.MustCompile(regexp.QuoteMeta(base) + `[bcdfghjklmnpqrstvwxz2456789]{5}\b`)
		made = append(made, func(s string) string { return name.ReplaceAllString(s, base+generatedName) })
	}
	for _, change := range made {
		v.message = change(v.message)
		for i := range v.warnings {
			v.warnings[i] = change(v.warnings[i])
		}
	}
}

// replacedOthers replaces the matches of an expression, except texts that occur in the request.
func replacedOthers(what *regexp.Regexp, in string, p *prepared, by string) string {
	return what.ReplaceAllStringFunc(in, func(text string) string {
		if p.has(text) {
			return text
		}
		return by
	})
}

// has reports whether a text occurs in the request, or in the object before it.
func (p *prepared) has(text string) bool {
	if p.User.UID == text || p.Apply != nil && bytes.Contains(p.Apply.Configuration, []byte(text)) {
		return true
	}
	return slices.ContainsFunc([][]byte{p.object, p.stored, p.Patch}, func(data []byte) bool { return bytes.Contains(data, []byte(text)) })
}

// ordered returns the message of a rejection with its errors sorted. Validation finds the errors of a map in random
// order.
func ordered(s *metav1.Status) string {
	if s.Reason != metav1.StatusReasonInvalid || s.Details == nil || len(s.Details.Causes) < 2 {
		return s.Message
	}
	var list []string
	for i := range s.Details.Causes {
		c := &s.Details.Causes[i]
		if text := c.Field + ": " + c.Message; !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	head, ok := strings.CutSuffix(s.Message, "["+strings.Join(list, ", ")+"]")
	if !ok {
		return s.Message
	}
	slices.Sort(list)
	return head + "[" + strings.Join(list, ", ") + "]"
}

// object returns the resulting object as JSON values, without random values; nil if there is none.
func (v *verdict) object(p *prepared) (map[string]any, error) {
	data := v.answer.Body
	if t := v.answer.Tried; t != nil {
		if t.Object == nil {
			return nil, nil
		}
		var err error
		if data, err = t.Encode(t.Object); err != nil {
			return nil, err
		}
	}
	u := &unstructured.Unstructured{}
	data = suffix.ReplaceAll(data, []byte("kube-api-access-00000"))
	if err := json.Unmarshal([]byte(replacedOthers(random, string(data), p, generatedName)), &u.Object); err != nil || u.Object == nil {
		return nil, errors.New("the answer is not an object")
	}
	if u.GetKind() == "Status" || p.Operation == requestlog.Delete {
		return nil, nil
	}
	v.note(p, u)
	if v.made != "" {
		// Labels of a job contain the name, too.
		replaced(u.Object, v.made, generatedName)
	}
	for _, field := range []string{"uid", "creationTimestamp", "managedFields", "resourceVersion", "generation"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	if p.generated != "" {
		u.SetName(p.generated)
	}
	return u.Object, nil
}

// note records the name that the server generated for a new object.
func (v *verdict) note(p *prepared, m metav1.Object) {
	if name := m.GetName(); p.generated != "" && name != p.generated {
		v.made = name
	}
}

// replaced replaces a text in all strings of a value.
func replaced(v any, text, by string) any {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, text, by)
	case map[string]any:
		for key := range v {
			v[key] = replaced(v[key], text, by)
		}
	case []any:
		for i := range v {
			v[i] = replaced(v[i], text, by)
		}
	}
	return v
}

// sameObject reports whether two verdicts have the same resulting object, compared without encoding. False can also
// mean that encoding is needed to decide.
func sameObject(p *prepared, a, b *verdict) bool {
	x, y := a.answer.Tried, b.answer.Tried
	if x == nil || y == nil || x.Object == nil || y.Object == nil {
		return false
	}
	for _, v := range []*verdict{a, b} {
		m, err := meta.Accessor(v.answer.Tried.Object)
		if err != nil {
			return false
		}
		v.note(p, m)
		m.SetManagedFields(nil)
		if p.Operation == requestlog.Create {
			m.SetUID("")
			m.SetCreationTimestamp(metav1.Time{})
			if p.generated != "" {
				m.SetName(p.generated)
			}
		}
	}
	return equality.Semantic.DeepEqual(x.Object, y.Object)
}

func texts(by []rejection.Decider) []string {
	list := make([]string, len(by))
	for i := range by {
		list[i] = by[i].String()
	}
	return list
}
