package controllers

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/replies"
)

// S11.66: the creates of a controller for an owner whose last object an initializer rejected fail
// with the error of the rejection, until the controller's pace allows another create.
func TestRejectedOwnersWait(t *testing.T) {
	const ms = time.Millisecond
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-x7k2p", errors.New("no"))
	pods := schema.GroupResource{Resource: "pods"}
	made := func(uid, owner string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: types.UID(uid)}}
		if owner != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "o", UID: types.UID(owner), Controller: new(true)}}
		}
		return pod
	}
	// A step is a rejection of an object, an initialized object, a pause, or a create that the
	// server answers with a code, unless the create is refused.
	type step struct {
		rejected, initialized string
		pause                 time.Duration
		create                int
		owner                 string
		refused               bool
	}
	const o = "o"
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"no rejection, no wait", []step{{create: 202, owner: o}, {create: 202, owner: o}}},
		{"twice as long after each rejection", []step{
			{rejected: "1", owner: o}, {create: 202, owner: o, refused: true}, {pause: 10 * ms}, {create: 202, owner: o},
			{rejected: "2", owner: o}, {pause: 19 * ms}, {create: 202, owner: o, refused: true}, {pause: ms}, {create: 202, owner: o},
			{rejected: "3", owner: o}, {pause: 40 * ms}, {create: 202, owner: o},
			{rejected: "4", owner: o}, {pause: 49 * ms}, {create: 202, owner: o, refused: true}, {pause: ms}, {create: 202, owner: o},
		}},
		{"another owner does not wait", []step{{rejected: "1", owner: o}, {create: 202, owner: "other"}, {create: 202, owner: o, refused: true}}},
		{"an object without an owner waits by its name", []step{{rejected: "1"}, {create: 202, refused: true}, {create: 202, owner: o}}},
		{"a rejection is seen twice", []step{
			{rejected: "1", owner: o}, {pause: 10 * ms}, {create: 202, owner: o}, {rejected: "1", owner: o}, {rejected: "2", owner: o}, {pause: 20 * ms}, {create: 202, owner: o},
		}},
		{"objects that were made together are rejected one after the other", []step{
			{rejected: "1", owner: o}, {rejected: "2", owner: o}, {rejected: "3", owner: o}, {pause: 10 * ms}, {create: 202, owner: o},
		}},
		{"one object shows whether the next ones pass", []step{
			{rejected: "1", owner: o}, {pause: 10 * ms}, {create: 202, owner: o}, {create: 202, owner: o, refused: true}, {pause: verdict - ms},
			{create: 202, owner: o, refused: true}, {pause: ms}, {create: 202, owner: o},
		}},
		{"the object is initialized", []step{
			{rejected: "1", owner: o}, {pause: 10 * ms}, {create: 202, owner: o}, {initialized: "2", owner: o}, {create: 202, owner: o}, {create: 202, owner: o},
		}},
		{"no initializer applies any more", []step{{rejected: "1", owner: o}, {pause: 10 * ms}, {create: 201, owner: o}, {create: 202, owner: o}}},
		{"the create fails", []step{{rejected: "1", owner: o}, {pause: 10 * ms}, {create: 403, owner: o}, {create: 403, owner: o}, {create: 202, owner: o}, {create: 202, owner: o, refused: true}}},
		{"it was long ago", []step{{rejected: "1", owner: o}, {pause: knownFor + ms}, {create: 202, owner: o}, {create: 202, owner: o}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				known := NewRejections()
				for i, s := range c.steps {
					switch {
					case s.rejected != "":
						known.Seen(pods, made(s.rejected, s.owner), denied)
					case s.initialized != "":
						known.Initialized(pods, made(s.initialized, s.owner))
					case s.pause > 0:
						time.Sleep(s.pause)
					default:
						served := false
						transport := paced{transport(func(*http.Request) (*http.Response, error) {
							served = true
							return &http.Response{StatusCode: s.create, Body: http.NoBody}, nil
						}), known, pace{10 * ms, 50 * ms}}
						response, err := transport.RoundTrip(post(t, made("", s.owner)))
						if err != nil {
							t.Fatal(err)
						}
						if served == s.refused {
							t.Fatalf("S11.66 step %d: the server gets the create: %v", i, served)
						}
						if body, err := replies.Peek(response); s.refused && (response.StatusCode != http.StatusForbidden || err != nil || !strings.Contains(string(body), "is forbidden: no")) {
							t.Errorf("S11.66 step %d: %d %s, %v", i, response.StatusCode, body, err)
						}
					}
				}
			})
		})
	}
}

// S11.66: a create gets the error of the rejection before it, whatever is rejected meanwhile.
func TestAnswersOfRejectionsStay(t *testing.T) {
	pods, known := schema.GroupResource{Resource: "pods"}, NewRejections()
	reject := func(uid types.UID, why string) {
		known.Seen(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: uid}}, apierrors.NewForbidden(pods, "web", errors.New(why)))
	}
	reject("1", "first")
	status := known.refuses(maker{resource: "pods", name: "web"}, pace{time.Hour, time.Hour})
	reject("2", "second")
	if status == nil || !strings.Contains(status.Message, "first") {
		t.Errorf("the answer has become %v", status)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) { return t(req) }

// post returns the request that creates an object, as the client of a controller sends it.
func post(t *testing.T, pod *corev1.Pod) *http.Request {
	t.Helper()
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	body, err := runtime.Encode(scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion), pod)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://server/api/v1/namespaces/shop/pods?includeUninitialized=true", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return req
}
