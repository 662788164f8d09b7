package plan

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// WritesStatus reports whether a request writes the status of a stored object.
func (r *Request) WritesStatus() bool {
	return r.Operation == admission.Update && r.Subresource == "status"
}

// StatusOnly returns a copy of the stored object with the status of the sent one. It returns
// nil when either is nil, their types differ, or the type has no status. It changes neither.
func StatusOnly(sent, stored runtime.Object) runtime.Object {
	if sent == nil || stored == nil {
		return nil
	}
	out := stored.DeepCopyObject()
	from, isFrom := sent.(*unstructured.Unstructured)
	to, isTo := out.(*unstructured.Unstructured)
	if isFrom != isTo {
		return nil
	}
	if isTo {
		delete(to.Object, "status")
		if status, ok := from.Object["status"]; ok {
			to.Object["status"] = runtime.DeepCopyJSONValue(status)
		}
		return to
	}
	source, target := reflect.ValueOf(sent.DeepCopyObject()), reflect.ValueOf(out)
	if source.Type() != target.Type() || source.Kind() != reflect.Pointer || source.Elem().Kind() != reflect.Struct {
		return nil
	}
	status := target.Elem().FieldByName("Status")
	if !status.IsValid() || !status.CanSet() {
		return nil
	}
	status.Set(source.Elem().FieldByName("Status"))
	return out
}

// sampleSuffix stands for the end of a name that the server generates: five characters, which
// are not known before the request.
const sampleSuffix = "b2c4d"

var ofNamespaces = schema.GroupResource{Resource: "namespaces"}

// generate gives a new object a name, as a server does between the passes. Mutating plugins see
// a request without a name, and validating plugins see the name (S3.15). A new namespace also
// gets its label.
func (b *builder) generate() {
	object := b.input.Objects.Newest()
	if !b.input.Generates || b.request.Operation != admission.Create || b.request.Subresource != "" || b.request.Name != "" || object == nil {
		return
	}
	m, err := meta.Accessor(object)
	if err != nil || m.GetName() != "" || m.GetGenerateName() == "" {
		return
	}
	request := *b.request
	request.Name = m.GetGenerateName() + sampleSuffix
	b.input.Objects.Complete(func(m metav1.Object) {
		m.SetName(request.Name)
		if request.Resource.GroupResource() == ofNamespaces {
			labels := maps.Clone(m.GetLabels())
			if labels == nil {
				labels = map[string]string{}
			}
			labels[corev1.LabelMetadataName] = request.Name
			m.SetLabels(labels)
		}
	})
	b.request = &request
}

// prepare prepares the object, and rejects one that is not valid then.
func (b *builder) prepare() {
	if b.over || b.input.Prepare == nil || b.input.Objects.Newest() == nil || b.input.Objects.Settle() != nil {
		return
	}
	err := b.input.Prepare(b.ctx, b.input.Objects.Newest())
	b.input.Objects.Changed()
	if err == nil {
		return
	}
	step := Link{Plugin: ValidationName}
	if why := b.unsure(false); why != "" {
		step.Hidden = b.likely(oneLine(err) + why)
		b.hidden(registration.ValidatingPass, &step)
		return
	}
	b.plan.Steps = append(b.plan.Steps, Step{
		Pass: registration.ValidatingPass.String(), Plugin: ValidationName, Effect: Reject,
		Reason: &Explanation{Code: NotValid.String(), Message: oneLine(err)},
	})
	b.reject(err.Error())
}

// decide is Decide for a candidate of a pass. Between the passes, the server undoes what a
// status request must not change: the spec, and parts of the metadata that depend on the kind.
// In the validating pass, a decision that depends on these parts is unknown.
func (b *builder) decide(ctx context.Context, pass registration.Pass, c *Candidate) Decision {
	d := c.Decide(ctx, b.request, b.input)
	if pass == registration.MutatingPass || b.input.Status == nil || d.Unknown {
		return d
	}
	other := *b.input
	other.Objects = b.input.Status
	if o := c.Decide(ctx, b.request, &other); o.Applies != d.Applies || (o.Err == nil) != (d.Err == nil) || (o.Forgiven == nil) != (d.Forgiven == nil) {
		return failed(Reason{entry: c.Entry}, fmt.Errorf("%w: a request for the status may leave the rest of the object as it is stored", ErrUnknown))
	}
	return d
}
