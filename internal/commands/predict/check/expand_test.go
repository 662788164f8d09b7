package check_test

import (
	"encoding/json"
	"net/url"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/dependents"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
)

// random matches UIDs, times and the random ends of names.
var random = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|"creationTimestamp":"[^"]*"|(kube-api-access|deployment-[0-9a-f]+|privileged|stateful-set|cron-job-29000000-0)-[a-z0-9]{5}\b`)

// The objects that controllers create are judged without encoding. Their JSON gets the same verdict and the same object.
func TestObjectsOfControllersAreJudgedAsTheirJSON(t *testing.T) {
	workloads := map[string]string{
		"deployment":   `{apiVersion: apps/v1, kind: Deployment, spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}}}`,
		"privileged":   `{apiVersion: apps/v1, kind: DaemonSet, spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {hostNetwork: true, containers: [{name: c, image: i}]}}}}`,
		"stateful-set": `{apiVersion: apps/v1, kind: StatefulSet, spec: {serviceName: s, selector: {matchLabels: {app: a}}, volumeClaimTemplates: [{metadata: {name: v}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}], template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}}}`,
		"cron-job":     `{apiVersion: batch/v1, kind: CronJob, spec: {schedule: "* * * * *", jobTemplate: {metadata: {labels: {of: job}}, spec: {completionMode: Indexed, completions: 1, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}}`,
	}
	s, err := stage.Open(t.Context(), stage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Label(t.Context(), "guarded", map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}); err != nil {
		t.Fatal(err)
	}
	rejected := 0
	for name, text := range workloads {
		workload := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &workload.Object); err != nil {
			t.Fatal(err)
		}
		workload.SetName(name)
		workload.SetNamespace("guarded")
		made, err := dependents.Of(workload)
		if err != nil || len(made) < 1 {
			t.Fatalf("%s: %d objects, %v", name, len(made), err)
		}
		for i := range made {
			d := &made[i]
			before := d.Object.DeepCopyObject()
			plain, err := d.Unstructured()
			if err != nil {
				t.Fatal(err)
			}
			var answers [2]string
			for i, q := range []*stage.Question{{Object: d.Object}, {Body: stage.Encode(plain.Object)}} {
				q.Kind, q.Namespace = s.Kinds().Of(plain.GroupVersionKind()), "guarded"
				q.Query = url.Values{"dryRun": {metav1.DryRunAll}}
				a, err := s.Client(d.By.GetName(), d.By.GetGroups()).Judge(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				var data []byte
				if a.Status != nil {
					rejected++
					data, err = json.Marshal(a.Status)
				} else {
					data, err = a.Tried.Encode(a.Tried.Object)
				}
				if err != nil {
					t.Fatal(err)
				}
				answers[i] = random.ReplaceAllString(string(data), "RANDOM")
			}
			if diff := cmp.Diff(answers[1], answers[0]); diff != "" {
				t.Errorf("%s of %s: JSON (-), object (+):\n%s", plain.GetKind(), name, diff)
			}
			if diff := cmp.Diff(before, d.Object.DeepCopyObject()); diff != "" {
				t.Errorf("%s of %s was changed:\n%s", plain.GetKind(), name, diff)
			}
		}
	}
	if rejected != 2 {
		t.Errorf("%d answers reject, want the pod on the host's network, twice", rejected)
	}
}
