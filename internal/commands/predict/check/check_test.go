package check_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/check"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// application is a team's typical repository of nine objects.
const application = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: app
  namespace: team
  labels: {app.kubernetes.io/name: app, app.kubernetes.io/part-of: shop}
spec:
  replicas: 3
  selector:
    matchLabels: {app.kubernetes.io/name: app}
  template:
    metadata:
      labels: {app.kubernetes.io/name: app}
    spec:
      serviceAccountName: app
      containers:
      - name: main
        image: registry.example.com/app:1.2.3
        ports: [{containerPort: 8080, name: http}]
        env:
        - {name: LOG_LEVEL, value: info}
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        resources:
          requests: {cpu: 100m, memory: 128Mi}
          limits: {memory: 256Mi}
        readinessProbe:
          httpGet: {path: /healthz, port: http}
        volumeMounts: [{name: config, mountPath: /etc/app}]
      volumes:
      - name: config
        configMap: {name: app}
---
apiVersion: v1
kind: Service
metadata: {name: app, namespace: team}
spec:
  selector: {app.kubernetes.io/name: app}
  ports: [{port: 80, targetPort: http, name: http}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: app, namespace: team}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: app, namespace: team}
data: {config.yaml: 'level: info'}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: app, namespace: team}
spec:
  rules:
  - host: app.example.com
    http:
      paths:
      - path: /
        pathType: Prefix
        backend: {service: {name: app, port: {name: http}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: app, namespace: team}
spec: {minAvailable: 1, selector: {matchLabels: {app.kubernetes.io/name: app}}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: app, namespace: team}
spec: {podSelector: {matchLabels: {app.kubernetes.io/name: app}}, policyTypes: [Ingress], ingress: [{ports: [{port: http}]}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: app, namespace: team}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: app}, maxReplicas: 5}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: app, namespace: team}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get]}]
`

// repository writes 1,000 manifests, each to a file.
func repository(tb testing.TB) string {
	dir := tb.TempDir()
	n := 0
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d.yaml", n)), []byte(text), 0o644); err != nil {
			tb.Fatal(err)
		}
		n++
	}
	for team := range 10 {
		write(fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: team-%d}\n", team))
		for app := range 11 {
			text := strings.NewReplacer("team", fmt.Sprintf("team-%d", team), ": app\n", fmt.Sprintf(": app-%d\n", app), "name: app,", fmt.Sprintf("name: app-%d,", app)).Replace(application)
			for object := range strings.SplitSeq(text, "---\n") {
				write(object)
			}
		}
	}
	if n != 1000 {
		tb.Fatalf("%d manifests", n)
	}
	return dir
}

// generated matches the random suffix of pod names.
var generated = regexp.MustCompile(`-[a-z0-9]{5}\b`)

// The deployable files of this repository pass unchanged.
func TestFilesOfThisRepositoryPass(t *testing.T) {
	set, err := manifests.Read([]string{"../../../../deploy"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := check.Run(t.Context(), check.Options{Set: set, Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Objects) == 0 {
		t.Error("no objects were read")
	}
	for _, o := range r.Objects {
		if o.Verdict != check.Accepted {
			t.Errorf("%s: %s: %s", o.Title(), o.Verdict, o.Message)
		}
	}
}

// Objects checked without storing them get the same result as through the server, which creates all objects if their
// changes are requested.
func TestObjectsJudgedAloneAreJudgedAsStored(t *testing.T) {
	const objects = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: plain}, data: {a: b}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: unknown}, dada: {a: b}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: Wrong_Name}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: lost, namespace: missing}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: twice}, data: {a: b}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: twice}, data: {a: 1}}
---
{apiVersion: v1, kind: Service, metadata: {name: kubernetes}, spec: {type: ExternalName, externalName: a.example.com, clusterIP: 10.96.0.9}}
---
{apiVersion: v1, kind: Service, metadata: {name: plain}, spec: {ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: balanced}, spec: {type: LoadBalancer, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: ComponentStatus, metadata: {name: none}}
---
{apiVersion: v1, kind: Endpoints, metadata: {name: old}}
---
{apiVersion: v1, kind: Pod, metadata: {name: privileged, namespace: baseline}, spec: {hostNetwork: true, containers: [{name: a, image: a}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: warned, namespace: warned}, spec: {hostNetwork: true, containers: [{name: a, image: a}]}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: baseline, labels: {pod-security.kubernetes.io/enforce: baseline}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: warned, labels: {pod-security.kubernetes.io/warn: baseline}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: limited}}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: one, namespace: limited}, spec: {hard: {count/configmaps: 1, count/secrets: 0}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: none, namespace: limited}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: first, namespace: limited}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: second, namespace: limited}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: baseline}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {hostNetwork: true, containers: [{name: a, image: a}]}}}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {hostNetwork: true, containers: [{name: a, image: a}]}}}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: job}, spec: {template: {spec: {restartPolicy: Always, containers: [{name: a, image: a}]}}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: as.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: as, kind: A}
  versions:
  - {name: v1, served: true, storage: true, schema: &schema {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer, maximum: 3}}}}}}}
  - {name: v0, served: true, storage: false, deprecated: true, schema: *schema}
---
{apiVersion: example.com/v1, kind: A, metadata: {name: good}, spec: {size: 3}}
---
{apiVersion: example.com/v1, kind: A, metadata: {name: large}, spec: {size: 4}}
---
{apiVersion: example.com/v1, kind: A, metadata: {name: unknown}, spec: {sice: 3}}
---
{apiVersion: example.com/v0, kind: A, metadata: {name: deprecated}, spec: {size: 3}}
`
	const policy = `
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: managed}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: ["*"], operations: [CREATE], resources: ["configmaps"]}]}
  validations: [{expression: "!has(object.metadata.managedFields)", message: somebody manages it}]
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: managed}, spec: {policyName: managed, validationActions: [Deny]}}
`
	// An object checked without storing it is not a dry run.
	dry := strings.NewReplacer("managed", "dry", "!has(object.metadata.managedFields)", "request.dryRun").Replace(policy)
	for _, text := range []string{objects, objects + policy, objects + dry} {
		file := filepath.Join(t.TempDir(), "objects.yaml")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		var judged [2][]check.Object
		var findings [2][]report.Finding
		for i := range judged {
			set, err := manifests.Read([]string{file}, nil)
			if err != nil {
				t.Fatal(err)
			}
			r, err := check.Run(t.Context(), check.Options{Set: set, Namespace: "default", Expand: true, Diff: i == 1})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range r.Objects {
				o.Diff, o.Changes = "", nil
				judged[i] = append(judged[i], *o)
			}
			for _, f := range r.Findings {
				f.Message = generated.ReplaceAllString(f.Message, "-GENERATED")
				findings[i] = append(findings[i], f)
			}
		}
		if diff := cmp.Diff(findings[1], findings[0]); diff != "" {
			t.Errorf("findings of what was stored (-), and judged alone (+):\n%s", diff)
		}
		if diff := cmp.Diff(judged[1], judged[0]); diff != "" || judged[0][0].Name != "plain" || (judged[0][0].Verdict == check.Accepted) != (text == objects) {
			t.Errorf("stored (-), and judged alone (+):\n%s", diff)
		}
	}
}

// A kube-apiserver does not know the field for initializers (S28.11).
func TestPendingInitializersAreForGatehouse(t *testing.T) {
	text := "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, initializers: {pending: [{name: a.example.com}]}}}\n"
	for gatehouse, want := range map[bool][]string{false: {"1 unknown-field: metadata.initializers"}, true: nil} {
		found, err := check.Run(t.Context(), check.Options{Set: written(t, "new.yaml", text), Namespace: "default", Gatehouse: gatehouse})
		if err != nil {
			t.Fatal(err)
		}
		compare(t, errorsOf(found), want)
	}
}

// BenchmarkAThousandManifests measures a check of 1,000 manifests after the start of the server, including reading
// them: the time and the CPU time, in seconds.
func BenchmarkAThousandManifests(b *testing.B) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	dir := repository(b)
	var start, checked, cpu float64
	for b.Loop() {
		before := used(b)
		set, err := manifests.Read([]string{dir}, nil)
		if err != nil {
			b.Fatal(err)
		}
		r, err := check.Run(b.Context(), check.Options{Set: set, Namespace: "default"})
		if err != nil || r.Summary.Accepted != 1000 {
			b.Fatalf("%+v, %v: %v", r.Summary, err, r.Findings)
		}
		start += r.Summary.StartSeconds
		checked += r.Summary.CheckSeconds
		cpu += used(b) - before
	}
	n := float64(b.N)
	b.ReportMetric(start/n, "start-s/op")
	b.ReportMetric(checked/n, "check-s/op")
	b.ReportMetric(cpu/n, "cpu-s/op")
}

// used is the CPU time of this process, in seconds.
func used(tb testing.TB) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}

// A thousand manifests are checked, each with its own response, and progress counts them.
func TestAThousandManifests(t *testing.T) {
	set, err := manifests.Read([]string{repository(t)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]int{}
	r, err := check.Run(t.Context(), check.Options{Set: set, Namespace: "default", Diff: true, Progress: func(what string, done, of int) {
		if done < last[what] || done > of || of != 1000 {
			t.Errorf("%s %d of %d after %d", what, done, of, last[what])
		}
		last[what] = done
	}})
	if err != nil {
		t.Fatal(err)
	}
	if last["Applied"] != 1000 || last["Compared"] != 1000 {
		t.Errorf("progress ended at %v", last)
	}
	if r.Summary.Accepted != 1000 || len(r.Findings) > 0 {
		t.Errorf("%+v: %v", r.Summary, r.Findings)
	}
}

// Sent objects share content with the objects of the files, and a check changes nothing in the files' objects.
func TestObjectsOfFilesStay(t *testing.T) {
	const more = `---
apiVersion: v1
kind: Service
metadata: {name: fixed, creationTimestamp: null}
spec: {clusterIP: 10.43.0.10, clusterIPs: [10.43.0.10], ports: [{port: 80, nodePort: null}], selector: {app: a}}
---
apiVersion: v1
kind: Namespace
metadata: {name: team, namespace: wrong}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {kind: Widget, plural: widgets}
  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {namespace: team, name: app}}}}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: example.com/v2
kind: Widget
metadata: {name: w, labels: {a: null}}
spec: {list: [{a: null, b: 1}]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hook}
webhooks:
- name: hook.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {service: {namespace: team, name: app}}
  matchConditions: [{name: any, expression: "has(object.metadata)"}]
  rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}]
`
	file := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(file, []byte(application+more), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := manifests.Read([]string{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var before []map[string]any
	for _, o := range set.Objects {
		before = append(before, runtime.DeepCopyJSON(o.Content))
	}
	for _, old := range []*manifests.Set{nil, set} {
		for _, serverSide := range []bool{false, true} {
			if _, err := check.Run(t.Context(), check.Options{Set: set, Old: old, Namespace: "team", Expand: true, Diff: true, ServerSide: serverSide}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, o := range set.Objects {
		if diff := cmp.Diff(before[i], o.Content); diff != "" {
			t.Errorf("%s:%d changed:\n%s", o.File, o.Line, diff)
		}
	}
}

// Objects that controllers create for a workload are checked as requests of the controllers' users, and reported at the
// line of the template.
func TestWhatControllersCreateIsChecked(t *testing.T) {
	const objects = `apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: baseline}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: limits, namespace: shop}
spec: {limits: [{type: Container, default: {cpu: 100m}}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: fine, namespace: shop}
spec:
  selector: {matchLabels: {app: fine}}
  template: {metadata: {labels: {app: fine}}, spec: {containers: [{name: c, image: i}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: host, namespace: shop}
spec:
  selector: {matchLabels: {app: host}}
  template:
    metadata: {labels: {app: host}}
    spec: {hostNetwork: true, containers: [{name: c, image: i}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: cron, namespace: shop}
spec:
  schedule: "0 0 * * *"
  jobTemplate:
    spec:
      template:
        spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {cpu: 200m}}}]}
`
	file := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(file, []byte(objects), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, expand := range []bool{true, false} {
		set, err := manifests.Read([]string{file}, nil)
		if err != nil {
			t.Fatal(err)
		}
		found, err := check.Run(t.Context(), check.Options{Set: set, Namespace: "default", Expand: expand})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range found.Findings {
			if f.Level == report.Error {
				got = append(got, fmt.Sprintf("%d %s %s: %s", f.Line, f.Rule, f.Object, f.Text()))
			}
		}
		if !expand {
			if len(got) > 0 {
				t.Errorf("without Expand: %q", got)
			}
			continue
		}
		want := []string{"22 rejected-pods/PodSecurity Deployment shop/host: ", "violates PodSecurity", "33 rejected-pods CronJob shop/cron: ", "must be less than or equal to cpu limit of 100m"}
		text := strings.Join(got, "\n")
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("no %q in %q", w, got)
			}
		}
		if len(got) != 2 || found.Summary.Accepted != 5 {
			t.Errorf("%d accepted, %q", found.Summary.Accepted, got)
		}
	}
}
