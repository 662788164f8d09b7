package plan

import (
	"errors"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// sampleSuffix replaces the end of a generated name: five characters that are not known before the
// request.
const sampleSuffix = "b2c4d"

var ofNamespaces = schema.GroupResource{Resource: "namespaces"}

// generate gives a new object a name between the passes, as a server does. Mutating plugins see a
// request without a name, and validating plugins see the name (S3.15). A new namespace also gets
// its label.
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

// prepare prepares the object, and rejects it if the result is not valid.
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
	if errors.Is(err, ErrUnknown) {
		step.Hidden = strings.TrimPrefix(oneLine(err), ErrUnknown.Error()+": ")
		b.hidden(registration.ValidatingPass, &step)
		return
	}
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
