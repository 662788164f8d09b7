package registrations

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// S29.1: objects that kube-apiserver stored, in protobuf, are read like objects that this server
// stores, in JSON.
func TestRegistrationsOfOtherServersAreRead(t *testing.T) {
	policy, timeout := admissionregistrationv1.Ignore, int32(3)
	want := &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: "hooks", UID: "u"},
		Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: "a.example.com", FailurePolicy: &policy, TimeoutSeconds: &timeout}},
	}
	codec := storageCodec(admissionregistrationv1.SchemeGroupVersion)
	for _, form := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), form)
		if !ok {
			t.Fatal(form)
		}
		stored, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, admissionregistrationv1.SchemeGroupVersion), want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := runtime.Decode(codec, stored)
		if err != nil {
			t.Errorf("%s: %v", form, err)
			continue
		}
		read := got.(*admissionregistrationv1.ValidatingWebhookConfiguration)
		if read.Name != want.Name || read.UID != want.UID || len(read.Webhooks) != 1 || cmp.Diff(want.Webhooks[0].TimeoutSeconds, read.Webhooks[0].TimeoutSeconds) != "" || *read.Webhooks[0].FailurePolicy != policy {
			t.Errorf("%s: got %+v", form, read)
		}
	}
}
