package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

const hintedObjects = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: alone, namespace: default}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: bound, namespace: default}
spec: {nodeName: one, containers: [{name: c, image: i}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: last, namespace: default}
spec:
  selector: {matchLabels: {app: last}}
  template: {metadata: {labels: {app: last}}, spec: {containers: [{name: c, image: i}]}}
`

// A workload whose controller does not run, and a pod without a node, get one event each, which names the
// missing program. With that program, and on servers for tests, there is no event.
func TestWhatNothingActsOnGetsAnEvent(t *testing.T) {
	for _, tc := range speed.Some(t, 2, []struct {
		what    string
		options server.Options
		want    []string
	}{
		{"by default", server.Options{HintsAtMissing: true}, []string{
			"Deployment/web NoController No controller of deployments runs in this server: start it with --controllers=+deployment,+replicaset,",
			"Pod/alone NoNode There is no node that could run the pod: start the server with --fake-nodes=1",
			"StatefulSet/last NoController No controller of statefulsets runs in this server: start it with --controllers=+statefulset,",
		}},
		{"with what is missing", server.Options{HintsAtMissing: true, Controllers: []string{"+deployment", "+replicaset"}, FakeNodes: 1}, []string{
			"StatefulSet/last NoController No controller of statefulsets",
		}},
		{"with controllers by name", server.Options{HintsAtMissing: true, Controllers: []string{"serviceaccount"}}, nil},
		{"on a server for tests", server.Options{}, nil},
	}) {
		t.Run(tc.what, func(t *testing.T) {
			tc.options.DataDir, tc.options.UnsafeNoFsync, tc.options.EndAtOnce, tc.options.MinFreeDisk = t.TempDir(), true, true, -1
			s, err := server.New(tc.options)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			ready, ended := make(chan server.Address, 1), make(chan error, 1)
			go func() { ended <- s.Run(ctx, func(a server.Address) { ready <- a }) }()
			defer func() {
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			var address server.Address
			select {
			case address = <-ready:
			case err := <-ended:
				ended <- nil
				t.Fatal(err)
			}
			client, err := kubernetes.NewForConfig(address.Admin)
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, func() error {
				_, err := client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
				return err
			})
			apply(t, address.Admin, hintedObjects)
			// Hints follow the order of the objects, so the last one shows that all were written.
			eventually(t, func() error {
				events, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
				if err != nil {
					return err
				}
				var got []string
				for i := range events.Items {
					if e := &events.Items[i]; strings.HasPrefix(e.Reason, "No") {
						got = append(got, fmt.Sprintf("%s/%s %s %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message))
					}
				}
				slices.Sort(got)
				if len(got) != len(tc.want) || !slices.EqualFunc(got, tc.want, strings.HasPrefix) {
					return fmt.Errorf("events %q, want %q", got, tc.want)
				}
				return nil
			})
		})
	}
}
