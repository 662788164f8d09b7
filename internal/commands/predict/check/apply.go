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

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/dependents"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/order"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// task is one object to apply.
type task struct {
	object *manifests.Object
	// sent is the object as kubectl would send it, in its namespace.
	sent            *unstructured.Unstructured
	phase           order.Phase
	kind            *offline.Kind
	namespace, name string
	// given reports whether the object names no namespace, so that it gets the default one.
	given bool

	// answer is the server's response; nil before the object is sent, and if a mistake prevents sending. stored reports
	// whether the server already had the object.
	answer *answer
	stored bool
	// unchanged reports whether the stored object equals the object of the file, so that nothing is sent. current is
	// the stored object; empty if it was not read.
	unchanged bool
	current   []byte
	// dryRun reports whether the object is sent as a dry run, because a later document has another variant of it.
	dryRun bool
	// lenient is the response with unknown fields ignored, if the object has any.
	lenient *answer
	// dependents are the accepted objects that controllers create for the object; only if webhooks are predicted.
	dependents []dependent
	// addresses maps the cluster IPs of sent that replace others to the cluster IPs of the file.
	addresses map[string]string
	// later are the paths of fields that the cluster's release does not have, and of Gatehouse's field for initializers
	// if the cluster's server is a kube-apiserver (S28.11). They are removed from sent.
	later []string
	// serverSide reports whether server-side apply is used because kubectl apply cannot store the object.
	serverSide bool
	// ignoresFields reports whether unknown fields are ignored. skipped reports whether the object is exempt from the
	// check.
	ignoresFields, skipped bool
	// result is the object in the report.
	result *Object

	// removed reports whether the object belongs to the version before. restored reports whether the snapshot already
	// has the object. Otherwise the object is created, and leftOut is the reason if that failed. there reports whether
	// the server has the object.
	removed, restored, there bool
	leftOut                  string
}

// The field managers of kubectl.
const (
	clientSideManager = "kubectl-client-side-apply"
	serverSideManager = "kubectl"
)

// apply applies an object as kubectl does. The error reports that the server gave no response, or that the object
// cannot be sent.
func (r *run) apply(ctx context.Context, c *stage.Client, t *task) (*stage.Answer, error) {
	a, err := r.send(ctx, c, t)
	if a != nil {
		t.restoreAddresses(a)
	}
	return a, err
}

func (r *run) send(ctx context.Context, c *stage.Client, t *task) (*stage.Answer, error) {
	if r.ServerSide || t.serverSide {
		if r.Old != nil && !t.removed {
			// The response does not show whether the object changed.
			current, err := r.admin.Do(ctx, stage.HTTPRequest{Method: http.MethodGet, Path: t.path()})
			if err != nil {
				return nil, err
			}
			if current.OK() {
				t.stored, t.current = true, current.Body
			}
		}
		return r.unconverted(t, func(t *task) (*stage.Answer, error) {
			query := t.query(serverSideManager)
			query.Set("force", "false")
			return c.Do(ctx, stage.HTTPRequest{
				Method: http.MethodPatch, Path: t.path(), ContentType: string(types.ApplyPatchType), Body: stage.Encode(t.sent.Object), Query: query,
			})
		})
	}
	if r.As != "" || r.Old != nil && !t.removed {
		if a, err := r.change(ctx, c, t); a != nil || err != nil {
			return a, err
		}
		return r.create(ctx, c, t)
	}
	// kubectl gets the object first. Here the create comes first, because few objects exist already, and the response
	// to a create of a new object is the same.
	made, err := r.create(ctx, c, t)
	if err != nil || made.OK() || made.Code == http.StatusNotFound {
		return made, err
	}
	a, err := r.change(ctx, c, t)
	if a != nil || err != nil {
		return a, err
	}
	return made, nil
}

// change changes a stored object. It returns nil if there is no such object.
func (r *run) change(ctx context.Context, c *stage.Client, t *task) (*stage.Answer, error) {
	if t.name == "" || len(content.IsPathSegmentName(t.name)) > 0 {
		return nil, nil
	}
	current, err := c.Do(ctx, stage.HTTPRequest{Method: http.MethodGet, Path: t.path()})
	if err != nil {
		return nil, err
	}
	if current.Code == http.StatusNotFound || current.Code == http.StatusMethodNotAllowed {
		// Reviews and similar objects are answered and never stored.
		return nil, nil
	}
	if !current.OK() {
		return current, nil
	}
	t.stored, t.current = true, current.Body
	return r.unconverted(t, func(sent *task) (*stage.Answer, error) { return sent.patch(ctx, c, current.Body) })
}

// unconverted sends an object. If webhooks are not called, versions of a custom resource are treated as differing only
// in name: a CRD with a conversion webhook is checked unchanged, and stored without the webhook.
func (r *run) unconverted(t *task, send func(*task) (*stage.Answer, error)) (*stage.Answer, error) {
	if r.Call || !stage.Converts(t.sent) {
		return send(t)
	}
	try := *t
	try.dryRun = true
	judged, err := send(&try)
	if err != nil || !judged.OK() || t.dryRun {
		return judged, err
	}
	plain := *t
	plain.sent = t.sent.DeepCopy()
	stage.WithoutConversion(plain.sent)
	if made, err := send(&plain); err != nil || !made.OK() {
		return made, err
	}
	return judged, nil
}

// create creates an object.
func (r *run) create(ctx context.Context, c *stage.Client, t *task) (*stage.Answer, error) {
	return r.unconverted(t, func(t *task) (*stage.Answer, error) {
		body, err := t.body()
		if err != nil {
			return nil, err
		}
		return c.Do(ctx, stage.HTTPRequest{
			Method: http.MethodPost, Path: stage.Collection(t.kind, t.namespace), ContentType: stage.JSON, Query: t.query(clientSideManager), Body: body,
		})
	})
}

// body returns the body of kubectl's create request.
func (t *task) body() ([]byte, error) {
	object := t.sent.DeepCopy()
	if err := util.CreateApplyAnnotation(object, unstructured.UnstructuredJSONScheme); err != nil {
		return nil, err
	}
	stage.PruneNulls(object.Object)
	if object.GetResourceVersion() != "" {
		// The object was read from a cluster. kubectl omits the resourceVersion.
		object.SetResourceVersion("")
	}
	return stage.Encode(object.Object), nil
}

// mostJudged is the maximum size, in bytes, of an object checked without storing it: etcd accepts at most 1.5 MiB.
const mostJudged = 1 << 20

// alone checks an object without storing it, if no other object depends on it. It returns nil unless the object is
// accepted without a warning. All other objects are created, so that the response comes from the server's handlers.
func (r *run) alone(ctx context.Context, t *task, variants []*task) *stage.Answer {
	if t.phase != order.Others || len(variants) != 1 || r.user != r.admin || r.Call || r.Old != nil || r.Diff || r.ServerSide || t.serverSide ||
		r.seesManagers || len(t.later) > 0 || !r.stage.Alone(t.kind, t.namespace, t.sent) {
		return nil
	}
	body, err := t.body()
	if err != nil || len(body) > mostJudged {
		return nil
	}
	a, err := r.admin.Judge(ctx, &stage.Question{Kind: t.kind, Namespace: t.namespace, Query: t.query(clientSideManager), Body: body})
	if err != nil || !a.OK() || len(a.Warnings) > 0 {
		return nil
	}
	accepted := &stage.Answer{Code: a.Code, Body: a.Body}
	if a.Tried != nil && (r.predicting || dependents.IsWorkload(t.kind.Kind.GroupKind())) {
		if accepted.Body, err = a.Tried.Encode(a.Tried.Object); err != nil {
			return nil
		}
	}
	return accepted
}

// query returns the query parameters of a write of the object.
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

// key identifies the object independently of its version.
func (t *task) key() string { return order.Key(t.kind, t.namespace, t.name) }

// path returns the API path of the object.
func (t *task) path() string { return stage.Path(t.kind, t.namespace, t.name) }

// patch changes a stored object as kubectl apply does, with a three-way merge of the last applied, the new and the
// stored object.
func (t *task) patch(ctx context.Context, c *stage.Client, current []byte) (*stage.Answer, error) {
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
	change := stage.HTTPRequest{Method: http.MethodPatch, Path: t.path(), Query: t.query(clientSideManager)}
	if typed, failure := scheme.Scheme.New(t.kind.Kind); failure == nil {
		meta, failure := strategicpatch.NewPatchMetaFromStruct(typed)
		if failure != nil {
			return nil, failure
		}
		change.ContentType = string(types.StrategicMergePatchType)
		change.Body, err = strategicpatch.CreateThreeWayMergePatch(original, modified, current, meta, true)
	} else {
		change.ContentType = string(types.MergePatchType)
		change.Body, err = jsonmergepatch.CreateThreeWayJSONMergePatch(original, modified, current)
	}
	if err != nil {
		return nil, fmt.Errorf("the change of the object that is there: %w", err)
	}
	if string(change.Body) == "{}" {
		t.unchanged = true
		return &stage.Answer{Code: http.StatusOK, Body: current}, nil
	}
	return c.Do(ctx, change)
}
