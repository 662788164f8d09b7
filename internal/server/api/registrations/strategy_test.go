package registrations

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
)

// TestNamesOfStaticManifestsAreReserved proves S13.13: no create may use such a name;
// an object that has such a name already can be updated, with a warning. Objects of the alpha
// kinds, which have no static manifests, may have such names.
func TestNamesOfStaticManifestsAreReserved(t *testing.T) {
	metadata := metav1.ObjectMeta{Name: "a.static.k8s.io", ResourceVersion: "1"}
	for _, c := range []struct {
		obj      runtime.Object
		reserved bool
	}{
		{&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metadata}, true},
		{&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metadata}, true},
		{&v1alpha1.InitializerConfiguration{ObjectMeta: metadata}, false},
		{&v1alpha1.ExternalAdmissionHookConfiguration{ObjectMeta: metadata}, false},
	} {
		const text = `names ending with ".static.k8s.io" are reserved`
		errs := strategy{}.Validate(t.Context(), c.obj)
		if refused := len(errs) == 1 && errs[0].Field == "metadata.name" && strings.Contains(errs[0].Detail, text); refused != c.reserved || (!c.reserved && len(errs) > 0) {
			t.Errorf("%T: create: %v", c.obj, errs)
		}
		if errs := (strategy{}).ValidateUpdate(t.Context(), c.obj, c.obj); len(errs) > 0 {
			t.Errorf("%T: update: %v", c.obj, errs)
		}
		warnings := strategy{}.WarningsOnUpdate(t.Context(), c.obj, c.obj)
		if warned := len(warnings) == 1 && strings.HasPrefix(warnings[0], "metadata.name: "+text); warned != c.reserved {
			t.Errorf("%T: update: warnings %q", c.obj, warnings)
		}
	}
}
