package review

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
)

const testUID = types.UID("705ab4f5-6393-11e8-b7cc-42010a800002")

func scaleRequest() *Header {
	return &Header{
		Kind:               schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"},
		Resource:           schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		Subresource:        "scale",
		RequestKind:        schema.GroupVersionKind{Group: "apps", Version: "v1beta1", Kind: "Scale"},
		RequestResource:    schema.GroupVersionResource{Group: "apps", Version: "v1beta1", Resource: "deployments"},
		RequestSubresource: "scale",
		Name:               "web",
		Namespace:          "shop",
		Operation:          "UPDATE",
		User: &user.DefaultInfo{
			Name: "jane", UID: "42", Groups: []string{"devs", "system:authenticated"},
			Extra: map[string][]string{"example.com/scope <&>": {"a", "b"}},
		},
		DryRun: true,
	}
}

func TestBodyIsWhatTypedReviewsEncode(t *testing.T) {
	object := []byte(`{"apiVersion":"autoscaling/v1","kind":"Scale","spec":{"replicas":3}}`)
	options := []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"UpdateOptions"}`)
	cases := map[string]struct {
		request Header
		payload *Payload
	}{
		"S3.7 every member set": {
			request: *scaleRequest(),
			payload: &Payload{Object: object, OldObject: object, Options: options},
		},
		"S3.7 empty members omitted, objects null": {
			request: Header{
				Kind:            schema.GroupVersionKind{Version: "v1", Kind: "PodExecOptions"},
				Resource:        schema.GroupVersionResource{Version: "v1", Resource: "pods"},
				RequestKind:     schema.GroupVersionKind{Version: "v1", Kind: "PodExecOptions"},
				RequestResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
				Operation:       "CONNECT",
			},
		},
		"S3.8 delete has only oldObject": {
			request: Header{Operation: "DELETE", Name: "quoted \"name\"\n", User: &user.DefaultInfo{Name: "ünï"}},
			payload: &Payload{OldObject: object, Options: options},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for _, v := range []Version{V1, V1beta1} {
				want, err := json.Marshal(typedReview(v, &c.request, c.payload))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tree(t, want), tree(t, NewBody(v, &c.request, c.payload).Bytes(testUID))); diff != "" {
					t.Errorf("%s (-want +got):\n%s", v, diff)
				}
			}
		})
	}
}

// typedReview builds the review from the types of k8s.io/api, independently of Body.
func typedReview(v Version, r *Header, p *Payload) any {
	if p == nil {
		p = &Payload{}
	}
	raw := func(b []byte) runtime.RawExtension { return runtime.RawExtension{Raw: b} }
	who := authenticationv1.UserInfo{}
	if r.User != nil {
		who.Username, who.UID, who.Groups = r.User.GetName(), r.User.GetUID(), r.User.GetGroups()
		for k, l := range r.User.GetExtra() {
			if who.Extra == nil {
				who.Extra = map[string]authenticationv1.ExtraValue{}
			}
			who.Extra[k] = l
		}
	}
	request := &admissionv1.AdmissionRequest{
		UID:                testUID,
		Kind:               metav1.GroupVersionKind{Group: r.Kind.Group, Version: r.Kind.Version, Kind: r.Kind.Kind},
		Resource:           metav1.GroupVersionResource{Group: r.Resource.Group, Version: r.Resource.Version, Resource: r.Resource.Resource},
		SubResource:        r.Subresource,
		RequestKind:        &metav1.GroupVersionKind{Group: r.RequestKind.Group, Version: r.RequestKind.Version, Kind: r.RequestKind.Kind},
		RequestResource:    &metav1.GroupVersionResource{Group: r.RequestResource.Group, Version: r.RequestResource.Version, Resource: r.RequestResource.Resource},
		RequestSubResource: r.RequestSubresource,
		Name:               r.Name,
		Namespace:          r.Namespace,
		Operation:          admissionv1.Operation(r.Operation),
		UserInfo:           who,
		Object:             raw(p.Object),
		OldObject:          raw(p.OldObject),
		Options:            raw(p.Options),
		DryRun:             &r.DryRun,
	}
	if v == V1 {
		return &admissionv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
			Request:  request,
		}
	}
	return &admissionv1beta1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1beta1", Kind: "AdmissionReview"},
		Request: &admissionv1beta1.AdmissionRequest{
			UID: request.UID, Kind: request.Kind, Resource: request.Resource, SubResource: request.SubResource,
			RequestKind: request.RequestKind, RequestResource: request.RequestResource, RequestSubResource: request.RequestSubResource,
			Name: request.Name, Namespace: request.Namespace, Operation: admissionv1beta1.Operation(request.Operation),
			UserInfo: who, Object: request.Object, OldObject: request.OldObject, Options: request.Options, DryRun: request.DryRun,
		},
	}
}

func TestAlphaBody(t *testing.T) {
	cases := map[string]struct {
		request Header
		payload Payload
		want    string
	}{
		"S12.2 the members of spec, S12.4 oldObject on delete": {
			request: *scaleRequest(),
			payload: Payload{OldObject: []byte(`{"a":1}`), Options: []byte(`{"kind":"DeleteOptions"}`)},
			want: `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1alpha1","spec":{
				"kind":{"group":"autoscaling","version":"v1","kind":"Scale"},
				"resource":{"group":"apps","version":"v1","resource":"deployments"},
				"subResource":"scale","name":"web","namespace":"shop","operation":"UPDATE",
				"userInfo":{"username":"jane","uid":"42","groups":["devs","system:authenticated"],"extra":{"example.com/scope <&>":["a","b"]}},
				"object":null,"oldObject":{"a":1}},"status":{"allowed":false}}`,
		},
		"S12.1 status is always there, S12.2 empty members omitted": {
			request: Header{Operation: "CREATE"},
			payload: Payload{Object: []byte(`{}`)},
			want: `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1alpha1","spec":{
				"kind":{"group":"","version":"","kind":""},"resource":{"group":"","version":"","resource":""},
				"operation":"CREATE","userInfo":{},"object":{},"oldObject":null},"status":{"allowed":false}}`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := NewBody(V1alpha1, &c.request, &c.payload).Bytes(testUID)
			if diff := cmp.Diff(tree(t, []byte(c.want)), tree(t, got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func tree(t *testing.T, data []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return v
}

func TestReaderKeepsReaderRules(t *testing.T) {
	for _, v := range []Version{V1, V1beta1, V1alpha1} {
		b := NewBody(v, scaleRequest(), &Payload{Object: bytes.Repeat([]byte(`[0]`), 1)})
		want := b.Bytes(testUID)
		r, length := b.Reader(testUID)
		if err := iotest.TestReader(r, want); err != nil {
			t.Errorf("%s: %v", v, err)
		}
		if length != int64(len(want)) {
			t.Errorf("%s: the length is %d, want %d", v, length, len(want))
		}
	}
}

func TestBodySharesTheObject(t *testing.T) {
	object := []byte(`{"shared":true}`)
	b := NewBody(V1, scaleRequest(), &Payload{Object: object})
	var seen bool
	r, _ := b.Reader(testUID)
	_, err := io.Copy(writerFunc(func(p []byte) (int, error) {
		seen = seen || &p[0] == &object[0]
		return len(p), nil
	}), r)
	if err != nil || !seen {
		t.Errorf("the writer was not handed the object's own bytes (error %v)", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestChoose(t *testing.T) {
	cases := map[string]struct {
		versions []string
		want     Version
		ok       bool
	}{
		"S3.6 first supported wins":           {[]string{"x", "v1beta1", "v1"}, V1beta1, true},
		"S3.6 order is the hook's":            {[]string{"v1", "v1beta1"}, V1, true},
		"S3.6 none supported":                 {[]string{"v2", "v3"}, "", false},
		"S3.6 empty":                          {nil, "", false},
		"S3.6 v1alpha1 is not supported here": {[]string{"v1alpha1"}, "", false},
		"S3.6 v1alpha1 is left out":           {[]string{"v1alpha1", "v1"}, V1, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got, ok := Choose(c.versions); got != c.want || ok != c.ok {
				t.Errorf("got %q, %v; want %q, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

// FuzzBody: with any strings, the review decodes to the type of k8s.io/api, which then has the same
// strings.
func FuzzBody(f *testing.F) {
	f.Add("705ab4f5", "web", "shop", "jane", "extra", []byte(`{"a":[1,null]}`))
	f.Add("\"\\\x00", "é\u2028", "<&>", "", "k\"", []byte(`null`))
	f.Fuzz(func(t *testing.T, uid, name, namespace, who, extra string, object []byte) {
		if !json.Valid(object) {
			object = nil
		}
		r := &Header{
			Name: name, Namespace: namespace, Operation: "CREATE", Subresource: extra,
			User: &user.DefaultInfo{Name: who, Extra: map[string][]string{extra: {who}}},
		}
		for _, v := range []Version{V1, V1beta1} {
			got := NewBody(v, r, &Payload{Object: object}).Bytes(types.UID(uid))
			want, err := json.Marshal(typedReview(v, r, &Payload{Object: object}))
			if err != nil {
				t.Fatal(err)
			}
			w := tree(t, want).(map[string]any)
			w["request"].(map[string]any)["uid"] = tree(t, quote(uid))
			if diff := cmp.Diff(any(w), tree(t, got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", v, diff)
			}
		}
	})
}

func BenchmarkNewBody(b *testing.B) {
	r, p := scaleRequest(), &Payload{Object: make([]byte, 100_000)}
	b.ReportAllocs()
	for b.Loop() {
		if NewBody(V1, r, p).Version() != V1 {
			b.Fatal("wrong version")
		}
	}
}

func BenchmarkReader(b *testing.B) {
	object := bytes.Repeat([]byte{' '}, 100_000)
	body := NewBody(V1, scaleRequest(), &Payload{Object: object})
	b.ReportAllocs()
	for b.Loop() {
		r, length := body.Reader(testUID)
		if n, err := io.Copy(io.Discard, r); err != nil || n != length {
			b.Fatal(n, err)
		}
	}
}
