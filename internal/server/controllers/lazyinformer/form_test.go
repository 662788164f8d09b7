package lazyinformer

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// podIn returns a pod with a value in each kind of field, and stores it in protobuf.
func podIn(t *testing.T, etcd *clientv3.Client, name string, annotations map[string]string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "ns", UID: "u-1", Labels: map[string]string{"a": "b"}, Annotations: annotations, Finalizers: []string{"f"},
			CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000, 0)),
			OwnerReferences:   []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u-2"}},
		},
		Spec:   corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	data, err := runtime.Encode(scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), corev1.SchemeGroupVersion), pod)
	if err != nil {
		t.Fatal(err)
	}
	response, err := etcd.Put(t.Context(), "/registry/pods/ns/"+name, string(data))
	if err != nil {
		t.Fatal(err)
	}
	pod.ResourceVersion = fmt.Sprint(response.Header.Revision)
	return pod
}

func isPods(gr schema.GroupResource) bool { return gr == schema.GroupResource{Resource: "pods"} }

func podsWhole(gr schema.GroupResource) string {
	if isPods(gr) {
		return "Pod"
	}
	return ""
}

// podClient returns a client for whole pods, in protobuf.
func podClient(t *testing.T, transport http.RoundTripper) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(&restclient.Config{Host: "https://server", Transport: transport, ContentConfig: restclient.ContentConfig{
		ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case event, ok := <-w.ResultChan():
		if !ok {
			t.Fatal("the watch ended")
		}
		return event
	case <-t.Context().Done():
		t.Fatal("there is no event")
	}
	return watch.Event{}
}

func TestWholeObjectsAreSentAsTheyAreStored(t *testing.T) {
	transport, etcd, server := newTransport(t)
	transport.Whole = podsWhole
	pods := podClient(t, transport).CoreV1().Pods("")
	want := []corev1.Pod{*podIn(t, etcd, "a", nil), *podIn(t, etcd, "b", map[string]string{"x": "y"})}
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, list.Items); diff != "" || list.ResourceVersion != want[1].ResourceVersion {
		t.Errorf("the list, at version %s (-want +got):\n%s", list.ResourceVersion, diff)
	}
	first, err := pods.List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	rest, err := pods.List(t.Context(), metav1.ListOptions{Limit: 1, Continue: first.Continue})
	if err != nil || len(first.Items) != 1 || len(rest.Items) != 1 || rest.Items[0].Name != "b" {
		t.Errorf("%v: page by page %v, %v", err, first, rest)
	}
	w, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	created := podIn(t, etcd, "c", nil)
	changed := podIn(t, etcd, "c", map[string]string{"x": "y"})
	response, err := etcd.Delete(t.Context(), "/registry/pods/ns/c")
	if err != nil {
		t.Fatal(err)
	}
	deleted := changed.DeepCopy()
	deleted.ResourceVersion = fmt.Sprint(response.Header.Revision)
	for _, want := range []watch.Event{{Type: watch.Added, Object: created}, {Type: watch.Modified, Object: changed}, {Type: watch.Deleted, Object: deleted}} {
		if diff := cmp.Diff(want, next(t, w)); diff != "" {
			t.Errorf("the event (-want +got):\n%s", diff)
		}
	}
	if server.count.Load() > 0 {
		t.Error("the server was asked")
	}
}

// Objects that are stored in another form, or are not initialized, must be read through a server.
func TestWholeObjectsThatOnlyAServerCanShow(t *testing.T) {
	for name, put := range map[string]func(t *testing.T, etcd *clientv3.Client){
		"stored as JSON": func(t *testing.T, etcd *clientv3.Client) {
			if _, err := etcd.Put(t.Context(), "/registry/pods/ns/c", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"c"}}`); err != nil {
				t.Fatal(err)
			}
		},
		"not initialized": func(t *testing.T, etcd *clientv3.Client) {
			podIn(t, etcd, "c", map[string]string{initializers.Annotation: "{}"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			transport, etcd, server := newTransport(t)
			transport.Whole = podsWhole
			pods := podClient(t, transport).CoreV1().Pods("")
			podIn(t, etcd, "a", nil)
			list, err := pods.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			w, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			put(t, etcd)
			event := next(t, w)
			if err := apierrors.FromObject(event.Object); event.Type != watch.Error || !apierrors.IsResourceExpired(err) {
				t.Errorf("the watch that was there: %v", event)
			}
			for range 2 {
				asked := server.count.Load()
				// The server of this test answers with an error.
				if _, err := pods.List(t.Context(), metav1.ListOptions{}); err == nil || server.count.Load() == asked {
					t.Errorf("the list did not reach the server: %v", err)
				}
			}
		})
	}
	t.Run("in another version", func(t *testing.T) {
		transport, etcd, server := newTransport(t)
		transport.Whole = func(schema.GroupResource) string { return "Other" }
		podIn(t, etcd, "a", nil)
		if _, err := podClient(t, transport).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err == nil || server.count.Load() == 0 {
			t.Errorf("the list did not reach the server: %v", err)
		}
	})
}

func TestMetadataOfObjectsInProtobufIsReadFromEtcd(t *testing.T) {
	transport, etcd, server := newTransport(t)
	transport.Custom = isPods
	client, err := metadata.NewForConfig(&restclient.Config{Host: "https://server", Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	pods := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
	pod := podIn(t, etcd, "a", nil)
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%v: %v", err, list)
	}
	want := pod.ObjectMeta
	want.Labels = nil
	if diff := cmp.Diff(want, list.Items[0].ObjectMeta); diff != "" {
		t.Errorf("the list (-want +got):\n%s", diff)
	}
	if server.count.Load() > 0 {
		t.Error("the server was asked")
	}
	podIn(t, etcd, "b", map[string]string{initializers.Annotation: "{}"})
	if _, err := pods.List(t.Context(), metav1.ListOptions{}); err == nil || server.count.Load() == 0 {
		t.Errorf("the list with an object that is not initialized did not reach the server: %v", err)
	}
}
