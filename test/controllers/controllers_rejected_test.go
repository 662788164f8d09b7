package controllers

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/initializer"
	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// S11.66: an initializer that rejects a controller's object has the same effect as a webhook that rejects it.
// The owner gets the event FailedCreate with the message, and the controller backs off before each further
// object.
func TestControllersWaitWhenInitializersReject(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	s := harness.Start(t, "--controllers", "+deployment,+replicaset,+replicationcontroller,+statefulset,+daemonset,+job", "--fake-nodes", "1")
	h, ns := s.HTTP(t, nil), s.Namespace(t)
	h.Must(http.StatusCreated, "POST", "/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations", podInitializer)
	client := harness.Client(t, s.Admin)

	// The initializer rejects all pods, and records the time, by the app label.
	var mu sync.Mutex
	times, seen := map[string][]time.Time{}, map[types.UID]bool{}
	controller, err := initializer.New(initializer.Options{
		Name: "nobody.example.com", Config: s.Admin, Resources: []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}},
		Initialize: func(_ context.Context, pod *unstructured.Unstructured) error {
			mu.Lock()
			defer mu.Unlock()
			if app := pod.GetLabels()["app"]; !seen[pod.GetUID()] {
				times[app] = append(times[app], time.Now())
			}
			seen[pod.GetUID()] = true
			return initializer.Fail(http.StatusForbidden, metav1.StatusReasonForbidden, "no pods today")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- controller.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	rejected := func(app string) []time.Time {
		mu.Lock()
		defer mu.Unlock()
		return times[app]
	}

	const usual, jobs = 5 * time.Millisecond, time.Second
	for _, tc := range []struct {
		resource, kind, spec string
		// pace is the controller's first delay, and count the number of pods to wait for.
		pace  time.Duration
		count int
		// told is the kind of the object with the event, if different from the owner.
		told string
	}{
		// The controllers of sets with several replicas double the delay after each try, even if the try was
		// not allowed: a few pods take as long as many of the other controllers.
		{"apps/v1/replicasets", "ReplicaSet", `"replicas":3,SELECTOR,`, usual, 5, ""},
		{"v1/replicationcontrollers", "ReplicationController", `"replicas":1,"selector":{"app":"NAME"},`, usual, 9, ""},
		{"apps/v1/statefulsets", "StatefulSet", `"serviceName":"none",SELECTOR,`, usual, 9, ""},
		{"apps/v1/daemonsets", "DaemonSet", `SELECTOR,`, usual, 9, ""},
		{"apps/v1/deployments", "Deployment", `"replicas":1,SELECTOR,`, usual, 9, "ReplicaSet"},
		{"batch/v1/jobs", "Job", ``, jobs, 3, ""},
	} {
		t.Run(tc.kind, func(t *testing.T) {
			t.Parallel()
			gv, resource := tc.resource[:strings.LastIndex(tc.resource, "/")], tc.resource[strings.LastIndex(tc.resource, "/")+1:]
			restart := ""
			if tc.kind == "Job" {
				restart = `"restartPolicy":"Never",`
			}
			name := strings.ToLower(tc.kind)
			body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"NAME"},"spec":{%s
				"template":{"metadata":{"labels":{"app":"NAME"}},"spec":{%s"containers":[{"name":"c","image":"i"}]}}}}`, gv, tc.kind, tc.spec, restart)
			body = strings.ReplaceAll(strings.ReplaceAll(body, "SELECTOR", `"selector":{"matchLabels":{"app":"NAME"}}`), "NAME", name)
			prefix := "/apis/"
			if gv == "v1" {
				prefix = "/api/"
			}
			h.Must(http.StatusCreated, "POST", prefix+gv+"/namespaces/"+ns+"/"+resource, body)
			harness.Eventually(t, "its pods are rejected", func() error {
				if n := len(rejected(name)); n < tc.count {
					return fmt.Errorf("%d of %d", n, tc.count)
				}
				return nil
			})
			// A slow machine can only increase the delays.
			least, seen := time.Duration(0), rejected(name)
			for i := range tc.count - 1 - burst(tc.kind) {
				least += tc.pace << i
			}
			if took := seen[tc.count-1].Sub(seen[0]); took < least {
				t.Errorf("S11.66 %d pods within %s, which takes %s at least", tc.count, took, least)
			}
			harness.Eventually(t, "its event", func() error {
				events, err := client.CoreV1().Events(ns).List(harness.Context(t), metav1.ListOptions{})
				if err != nil {
					return err
				}
				kind := tc.kind
				if tc.told != "" {
					kind = tc.told
				}
				var all []string
				for _, e := range events.Items {
					if e.InvolvedObject.Kind == kind && strings.HasPrefix(e.InvolvedObject.Name, name) {
						all = append(all, e.Reason+": "+e.Message)
						if e.Type == corev1.EventTypeWarning && e.Reason == "FailedCreate" && strings.Contains(e.Message, "no pods today") {
							return nil
						}
					}
				}
				return fmt.Errorf("the events are %q", all)
			})
			if tc.kind == "Deployment" {
				harness.Eventually(t, "S11.66 the Deployment says why it makes no progress", func() error {
					if got := h.Get("/apis/apps/v1/namespaces/" + ns + "/deployments/" + name); !strings.Contains(string(got.Raw), `"type":"ReplicaFailure"`) {
						return fmt.Errorf("%s", got.Raw)
					}
					return nil
				})
			}
		})
	}
}

// burst returns the number of pods that a controller creates at once, in addition to the first, before the
// first rejection.
func burst(kind string) int {
	if kind == "ReplicaSet" {
		return 2
	}
	return 0
}
