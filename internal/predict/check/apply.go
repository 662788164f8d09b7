package check

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubectl/pkg/util"

	"github.com/gatehouse-dev/gatehouse/internal/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/predict/offline"
)

// task is one object that is applied.
type task struct {
	object *manifests.Object
	// sent is the object as kubectl would send it, in its namespace.
	sent            *unstructured.Unstructured
	stage           stage
	kind            *offline.Kind
	namespace, name string

	// answer is the server's answer; nil before the object is sent, and when a mistake keeps it
	// from being sent. stored reports whether the server had such an object.
	answer *answer
	stored bool
	// unchanged reports whether the stored object equals that of the file, so that nothing is
	// sent. current is the stored object; empty when it was not read.
	unchanged bool
	current   []byte
	// dryRun reports whether the object is judged and not stored: a later document has another
	// variant of it.
	dryRun bool
	// denials are the reasons why admission denied the object. lenient is the answer to an object
	// with unknown fields when these are ignored, and lenientDenials are the reasons then.
	denials, lenientDenials []denial
	lenient                 *answer
	// later are the paths of fields that the cluster's release does not have. sent is without them.
	later []string
	// ignoresFields reports whether unknown fields are ignored. skipped reports whether the
	// object is not judged.
	ignoresFields, skipped bool
	// result is the object in the report.
	result *Object

	// removed reports whether the object is of the version before. If the snapshot has the
	// object, restored is set. If not, the object is made, and leftOut says why that failed.
	// there reports whether the server has the object.
	removed, restored, there bool
	leftOut                  string
}

// The managers of fields, as kubectl names itself.
const (
	clientSideManager = "kubectl-client-side-apply"
	serverSideManager = "kubectl"
)

// apply applies an object as kubectl does. The error says that the server gave no answer, or
// that no request can be made of the object.
func (r *run) apply(ctx context.Context, c *client, t *task) (*answer, error) {
	if r.rehearse {
		return r.plainly(ctx, c, t)
	}
	if r.ServerSide {
		if r.Old != nil && !t.removed {
			// The answer does not say whether the object changed.
			current, err := r.admin.do(ctx, request{method: http.MethodGet, path: t.path()})
			if err != nil {
				return nil, err
			}
			if current.ok() {
				t.stored, t.current = true, current.body
			}
		}
		return r.unconverted(t, func(t *task) (*answer, error) {
			query := t.query(serverSideManager)
			query.Set("force", "false")
			return c.do(ctx, request{
				method: http.MethodPatch, path: t.path(), contentType: string(types.ApplyPatchType), body: bodyOf(t.sent.Object), query: query,
			})
		})
	}
	if r.As != "" || r.Old != nil && !t.removed {
		if a, err := r.change(ctx, c, t); a != nil || err != nil {
			return a, err
		}
		return r.create(ctx, c, t)
	}
	// kubectl looks for the object first. Few objects exist before, and the answer to a create is
	// the same for an object that does not exist.
	made, err := r.create(ctx, c, t)
	if err != nil || made.ok() || made.code == http.StatusNotFound {
		return made, err
	}
	a, err := r.change(ctx, c, t)
	if a != nil || err != nil {
		return a, err
	}
	return made, nil
}

// change changes a stored object. It returns nil if there is no such object.
func (r *run) change(ctx context.Context, c *client, t *task) (*answer, error) {
	if t.name == "" || len(content.IsPathSegmentName(t.name)) > 0 {
		return nil, nil
	}
	current, err := c.do(ctx, request{method: http.MethodGet, path: t.path()})
	if err != nil {
		return nil, err
	}
	if current.code == http.StatusNotFound || current.code == http.StatusMethodNotAllowed {
		// Reviews and the like are answered and never stored.
		return nil, nil
	}
	if !current.ok() {
		return current, nil
	}
	t.stored, t.current = true, current.body
	return r.unconverted(t, func(sent *task) (*answer, error) { return sent.patch(ctx, c, current.body) })
}

// unconverted sends an object. Without webhooks, the versions of a custom resource differ in their
// name only: a definition that names a webhook for them is judged as it is, and stored without.
func (r *run) unconverted(t *task, send func(*task) (*answer, error)) (*answer, error) {
	if r.Call || !convertsByWebhook(t.sent) {
		return send(t)
	}
	try := *t
	try.dryRun = true
	judged, err := send(&try)
	if err != nil || !judged.ok() || t.dryRun {
		return judged, err
	}
	plain := *t
	plain.sent = t.sent.DeepCopy()
	plain.sent.Object["spec"].(map[string]any)["conversion"] = map[string]any{"strategy": "None"}
	if made, err := send(&plain); err != nil || !made.ok() {
		return made, err
	}
	return judged, nil
}

// create creates an object.
func (r *run) create(ctx context.Context, c *client, t *task) (*answer, error) {
	return r.unconverted(t, func(t *task) (*answer, error) {
		object := t.sent.DeepCopy()
		if err := util.CreateApplyAnnotation(object, unstructured.UnstructuredJSONScheme); err != nil {
			return nil, err
		}
		pruneNulls(object.Object)
		if object.GetResourceVersion() != "" {
			// The object was read from a cluster. kubectl leaves the resourceVersion out.
			object.SetResourceVersion("")
		}
		return c.do(ctx, request{
			method: http.MethodPost, path: collection(t.kind, t.namespace), contentType: jsonType, query: t.query(clientSideManager), body: bodyOf(object.Object),
		})
	})
}

// query has the parameters of a write of the object.
func (t *task) query(manager string) url.Values {
	q := url.Values{"fieldManager": {manager}, "fieldValidation": {metav1.FieldValidationStrict}}
	if t.ignoresFields {
		q.Set("fieldValidation", metav1.FieldValidationIgnore)
	}
	if t.dryRun {
		q.Set("dryRun", metav1.DryRunAll)
	}
	return q
}

// path returns the path of the object.
func (t *task) path() string { return collection(t.kind, t.namespace) + "/" + url.PathEscape(t.name) }

// patch changes a stored object as kubectl apply does, by the object that was applied before, the
// one that is applied now, and the stored one.
func (t *task) patch(ctx context.Context, c *client, current []byte) (*answer, error) {
	stored := &unstructured.Unstructured{}
	if err := stored.UnmarshalJSON(current); err != nil {
		return nil, err
	}
	original, err := util.GetOriginalConfiguration(stored)
	if err != nil {
		return nil, err
	}
	modified, err := util.GetModifiedConfiguration(t.sent.DeepCopy(), true, unstructured.UnstructuredJSONScheme)
	if err != nil {
		return nil, err
	}
	change := request{method: http.MethodPatch, path: t.path(), query: t.query(clientSideManager)}
	if typed, failure := scheme.Scheme.New(t.kind.Kind); failure == nil {
		meta, failure := strategicpatch.NewPatchMetaFromStruct(typed)
		if failure != nil {
			return nil, failure
		}
		change.contentType = string(types.StrategicMergePatchType)
		change.body, err = strategicpatch.CreateThreeWayMergePatch(original, modified, current, meta, true)
	} else {
		change.contentType = string(types.MergePatchType)
		change.body, err = jsonmergepatch.CreateThreeWayJSONMergePatch(original, modified, current)
	}
	if err != nil {
		return nil, fmt.Errorf("the change of the object that is there: %w", err)
	}
	if string(change.body) == "{}" {
		t.unchanged = true
		return &answer{code: http.StatusOK, body: current}, nil
	}
	return c.do(ctx, change)
}

// pruneNulls removes members without a value, which kubectl does not create.
func pruneNulls(value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if member == nil {
				delete(v, name)
			} else {
				pruneNulls(member)
			}
		}
	case []any:
		for _, element := range v {
			pruneNulls(element)
		}
	}
}

// convertsByWebhook reports whether an object is the definition of a custom resource whose
// versions a webhook converts.
func convertsByWebhook(u *unstructured.Unstructured) bool {
	if u.GetKind() != "CustomResourceDefinition" {
		return false
	}
	strategy, _, _ := unstructured.NestedString(u.Object, "spec", "conversion", "strategy")
	return strategy == "Webhook"
}
