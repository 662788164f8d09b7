package resources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/inflight"
)

// onePod is a storage with one pod. It returns the updated pod and keeps the old one.
type onePod struct{ rest.Patcher }

func (onePod) New() runtime.Object { return &corev1.Pod{} }

func (onePod) Destroy() {}

func (onePod) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, _ rest.ValidateObjectUpdateFunc, _ bool, _ *metav1.UpdateOptions) (runtime.Object, bool, error) {
	pod := &corev1.Pod{}
	if name == "pod" {
		pod = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "1", Labels: map[string]string{"a": "<b>", "c": "d"}},
			Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "one", Image: "i"}, {Name: "two", Command: []string{"x", "y"}}}},
		}
	}
	obj, err := info.UpdatedObject(ctx, pod)
	if err != nil {
		return nil, false, err
	}
	// Managed fields have a time.
	obj.(*corev1.Pod).ManagedFields = nil
	return obj, false, nil
}

// pods returns the endpoint of pods with the storage onePod.
func pods(t testing.TB) *Endpoint {
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	fields, err := managedfields.NewDefaultFieldManager(managedfields.NewDeducedTypeConverter(), scheme.Scheme, scheme.Scheme, scheme.Scheme, kind, kind.GroupVersion(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Endpoint{Kind: kind, Storage: onePod{}, PatchTypes: BuiltinPatchTypes, Scope: &handlers.RequestScope{
		Namer: handlers.ContextBasedNaming{Namer: meta.NewAccessor()}, Serializer: scheme.Codecs, Creater: scheme.Scheme, Convertor: scheme.Scheme,
		Defaulter: scheme.Scheme, Typer: scheme.Scheme, UnsafeConvertor: scheme.Scheme, FieldManager: fields,
		Resource: corev1.SchemeGroupVersion.WithResource("pods"), Kind: kind, HubGroupVersion: kind.GroupVersion(), MetaGroupVersion: metav1.SchemeGroupVersion,
		MaxRequestBodyBytes: 2000,
	}}
}

// events is a sink of the audit log that keeps the last patch.
type events struct{ patch string }

func (e *events) ProcessEvents(list ...*auditinternal.Event) bool {
	for _, event := range list {
		if event.RequestObject != nil {
			e.patch = string(event.RequestObject.Raw)
		}
	}
	return true
}

// patched is the response to a patch, with its warnings and audit event.
type patched struct {
	Code     int
	Header   http.Header
	Body     string
	Warnings []string
	Audited  string
}

// send sends a patch of a pod to a handler.
func send(t testing.TB, handler http.HandlerFunc, name, query, mediaType string, body io.Reader) patched {
	var told warnings
	var logged events
	ctx := warning.WithWarningRecorder(audit.WithAuditContext(t.Context()), &told)
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: "patch", APIVersion: "v1", Namespace: "default", Resource: "pods", Name: name})
	if err := audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditinternal.LevelRequestResponse}, &logged); err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(ctx, http.MethodPatch, "/api/v1/namespaces/default/pods/"+name+"?"+query, body)
	req.Header.Set("Content-Type", mediaType)
	w := httptest.NewRecorder()
	handler(w, req)
	audit.AuditContextFrom(ctx).ProcessEventStage(ctx, auditinternal.StageResponseComplete)
	return patched{w.Code, w.Header(), w.Body.String(), told.texts, logged.patch}
}

// comparePatch fails a test unless the response to a patch is the response of k8s.io/apiserver.
func comparePatch(t *testing.T, e *Endpoint, name, query, mediaType string, body func() io.Reader) {
	t.Helper()
	storage, chain := e.Storage.(rest.Patcher), admission.NewChainHandler()
	want := send(t, handlers.PatchResource(storage, e.Scope, chain, e.PatchTypes), name, query, mediaType, body())
	got := send(t, e.patch(storage, chain), name, query, mediaType, body())
	if diff := cmp.Diff(want, got); diff != "" {
		text, _ := io.ReadAll(body())
		t.Errorf("%s?%s, %s: %s\n(-kube-apiserver +here):\n%s", name, query, mediaType, text, diff)
	}
}

// Responses to JSON patches and JSON merge patches, warnings and audit events equal k8s.io/apiserver's (S27.11).
func TestResponsesToPatchesAreThoseOfUpstream(t *testing.T) {
	e := pods(t)
	bodies := map[types.PatchType][]string{
		types.MergePatchType: {
			`{}`, `{"metadata":{"labels":{"a":null,"e":"f"}}}`, `{"metadata":{"labels":{"a":"1","a":"2"}},"unknown":{"x":1}}`, `{"spec":{"containers":[{"name":"x","name":"y","image":null,"Image":1}]}}`,
			`{"spec":{"containers":[{"name":7}]}}`, `{"spec":[]}`, `null`, `[]`, `["a",null]`, `"x"`, `12`, `1`, `true`, `{"metadata":{"name":"other"}}`, `{"metadata":{"uid":"2"}}`, `{"kind":"Secret"}`, `{"apiVersion":"v9"}`,
			`{"metadata":{"namespace":"other"}}`, `{"spec":{"a":1,"a":1,"b":1e999}}`, `{"metadata":{"annotations":{"long":"` + strings.Repeat("x", 1900) + `"}}}`, `{"x":"` + strings.Repeat("x", 2000) + `"}`, `{`, ``, ` `, `{"a":1}}`,
		},
		types.JSONPatchType: {
			`[]`, `[{"op":"add","path":"/metadata/labels/e","value":"f"}]`, `[{"op":"add","path":"/spec/containers/-","value":{"name":"x","name":"y","z":1}}]`, `[{"op":"add","path":"/unknown","value":{"x":1},"other":2,"op":"add"}]`,
			`[{"op":"add","path":"/spec/containers/0/name","value":7}]`, `[{"op":"replace","path":"","value":[]}]`, `[{"op":"replace","path":"","value":{}}]`, `[{"op":"test","path":"/spec/nodeName","value":"m"}]`, `[{"op":"remove","path":"/spec/none"}]`,
			`{}`, `null`, `[1]`, `[null]`, `["x"]`, `"x"`, `1`, `22`, `[{"op":1}]`, `[{"path":{}}]`, `[{"op":"add","path":"/a","value":1e999}]`, `[{"op":"merge","path":"/a"}]`, `[`, ``, `[{"Op":"remove","path":"/spec"}]`,
		},
	}
	for mediaType, list := range bodies {
		for _, body := range list {
			for _, query := range []string{"", "fieldValidation=Warn", "fieldValidation=Strict", "fieldValidation=Ignore"} {
				comparePatch(t, e, "pod", query, string(mediaType), func() io.Reader { return strings.NewReader(body) })
			}
		}
	}
	for _, mediaType := range []string{string(types.MergePatchType), string(types.JSONPatchType), string(types.MergePatchType) + "; charset=utf-8"} {
		body := `{"metadata":{"labels":{"x":"y"}}}`
		if strings.HasPrefix(mediaType, string(types.JSONPatchType)) {
			body = `[{"op":"add","path":"/metadata/labels/x","value":"y"}]`
		}
		for _, query := range []string{"fieldValidation=Other", "force=true", "dryRun=All", "dryRun=Some", "fieldManager=%00", "fieldManager=me", "pretty=true", "timeout=x"} {
			comparePatch(t, e, "pod", query, mediaType, func() io.Reader { return strings.NewReader(body) })
		}
		comparePatch(t, e, "none", "", mediaType, func() io.Reader { return strings.NewReader(body) })
		comparePatch(t, e, "", "", mediaType, func() io.Reader { return strings.NewReader(body) })
		comparePatch(t, e, "pod", "", mediaType, func() io.Reader {
			return io.MultiReader(strings.NewReader(body), iotest.ErrReader(errors.New("gone")))
		})
	}
	e.PatchTypes = []string{string(types.MergePatchType)}
	comparePatch(t, e, "pod", "", string(types.JSONPatchType), func() io.Reader { return strings.NewReader(`[]`) })
}

func FuzzResponsesToPatches(f *testing.F) {
	e := pods(f)
	e.Scope.MaxRequestBodyBytes = 1 << 20
	f.Add(`{"metadata":{"labels":{"a":"1","a":"2"}},"unknown":{"x":1}}`, false)
	f.Add(`[{"op":"add","path":"/spec/containers/-","value":{"name":"x","name":"y","z":1}}]`, true)
	f.Fuzz(func(t *testing.T, body string, operations bool) {
		mediaType := types.MergePatchType
		if operations {
			mediaType = types.JSONPatchType
		}
		for _, query := range []string{"", "fieldValidation=Strict", "fieldValidation=Ignore"} {
			comparePatch(t, e, "pod", query, string(mediaType), func() io.Reader { return strings.NewReader(body) })
		}
	})
}

// A body whose fields have very long paths is refused before it is decoded strictly (S27.13).
func TestPathsInBodies(t *testing.T) {
	deep := func(levels, name, fields int) string {
		return strings.Repeat(`{"`+strings.Repeat("x", name)+`":`, levels) + "{" + strings.TrimSuffix(strings.Repeat(`"a":1,`, fields), ",") + "}" + strings.Repeat("}", levels)
	}
	for _, c := range []struct {
		name, query, mediaType, body string
		refused                      bool
	}{
		{"duplicates below a long name", "", "application/json", deep(1, 1_000_000, 1000), true},
		{"duplicates below many names", "fieldValidation=Strict", "application/merge-patch+json", deep(5000, 300, 1000), true},
		{"in a list", "", "application/json-patch+json", "[" + deep(1, 1_000_000, 1000) + "]", true},
		{"in a strategic merge patch", "", "application/strategic-merge-patch+json", deep(1, 1_000_000, 1000), true},
		{"that nobody looks for", "fieldValidation=Ignore", "application/json", deep(1, 1_000_000, 1000), false},
		{"another form", "", "application/vnd.kubernetes.protobuf", deep(1, 1_000_000, 1000), false},
		{"many fields", "", "application/json", deep(20, 10, 300_000), false},
		{"many levels", "", "application/merge-patch+json", deep(9000, 320, 1), false},
		{"duplicates in many levels", "", "application/json", strings.Repeat(`{"a":1,"`+strings.Repeat("x", 300)+`":`, 5000) + "1" + strings.Repeat("}", 5000), true},
		{"no JSON", "", "application/json", strings.Repeat(`]}:"\`, 10_000), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &Endpoint{Storage: listing{}, Scope: &handlers.RequestScope{MaxRequestBodyBytes: 3 << 20}}
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/?"+c.query, strings.NewReader(c.body))
			req.Header.Set("Content-Type", c.mediaType)
			err := e.refuses(&request.RequestInfo{Verb: "create"}, req)
			if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), fmt.Sprint(maxPaths)) {
				t.Fatalf("%v", err)
			}
			if body, err := io.ReadAll(req.Body); !c.refused && (err != nil || string(body) != c.body) {
				t.Errorf("the handler reads %d bytes, %v", len(body), err)
			}
		})
	}
}

// S27.12: while one user's patches use all the memory that a user may have, patches of other users are
// applied.
func TestPatchesOfAUserLeaveMemoryForOthers(t *testing.T) {
	e := pods(t)
	as := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			e.patch(onePod{}, admission.NewChainHandler())(w, req.WithContext(request.WithUser(req.Context(), &user.DefaultInfo{Name: name})))
		}
	}
	patch := func(name string) int {
		return send(t, as(name), "pod", "", string(types.MergePatchType), strings.NewReader(`{"metadata":{"labels":{"e":"f"}}}`)).Code
	}
	ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "mallory"})
	var gives []func()
	for bytes := int64(64 << 20); bytes > 0; {
		give, err := inflight.TakePatch(ctx, bytes)
		if err != nil {
			bytes /= 2
			continue
		}
		gives = append(gives, give)
	}
	for name, want := range map[string]int{"mallory": http.StatusTooManyRequests, "bob": http.StatusOK} {
		if code := patch(name); code != want {
			t.Errorf("%s: %d, want %d", name, code, want)
		}
	}
	for _, give := range gives {
		give()
	}
	if code := patch("mallory"); code != http.StatusOK {
		t.Errorf("after that: %d", code)
	}
	// No patch keeps memory, whether it succeeds or fails.
	send(t, as("mallory"), "pod", "", string(types.JSONPatchType), strings.NewReader(`[{"op":"remove","path":"/none"}]`))
	give, err := inflight.TakePatch(ctx, 256<<20)
	if err != nil {
		t.Fatal(err)
	}
	give()
}
