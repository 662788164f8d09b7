package objects

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// TestKubectl runs common kubectl commands on one deployment.
func TestKubectl(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	k := s.Kubectl(t, s.Namespace(t))
	dir := t.TempDir()
	manifest := filepath.Join(dir, "d.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const d = "deployments.apps/d"
	image := func() string {
		t.Helper()
		return k.Must("get", d, "-o", "jsonpath={.spec.template.spec.containers[*].image}")
	}

	// Later steps build on earlier ones, except on these. The ordinary run tries some of them.
	alone := []string{"describe", "apply at the server", "apply with an unknown field", "label and annotate", "rollout", "explain", "may I", "what is there", "what needs a node", "prune"}
	chosen := speed.Some(t, 2, alone)
	for _, step := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"diff before there is anything", func(t *testing.T) {
			write(deployment("apps/v1", "d"))
			r := k.Run("", "diff", "-f", manifest)
			want(t, "exit code", r.Code, 1)
			in(t, "diff", r.Out, "+kind: Deployment")
		}},
		{"apply", func(t *testing.T) {
			want(t, "output", k.Must("apply", "-f", manifest), "deployment.apps/d created\n")
			want(t, "again", k.Must("apply", "-f", manifest), "deployment.apps/d unchanged\n")
		}},
		{"get", func(t *testing.T) {
			in(t, "get", k.Must("get", "deployments.apps"), "NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "d ", "0/3")
			in(t, "wide", k.Must("get", d, "-o", "wide"), "CONTAINERS", "IMAGES", "SELECTOR", "example/main:1", "app=d")
			in(t, "YAML", k.Must("get", d, "-o", "yaml"), "apiVersion: apps/v1", "kind: Deployment", "replicas: 3")
			in(t, "JSON", k.Must("get", d, "-o", "json"), `"replicas": 3`)
			want(t, "name", k.Must("get", "deploy", "-o", "name"), "deployment.apps/d\n")
			want(t, "jsonpath", image(), "example/main:1")
			in(t, "custom columns", k.Must("get", d, "-o", "custom-columns=N:.metadata.name,R:.spec.replicas"), "N", "R", "d", "3")
			in(t, "labels", k.Must("get", d, "--show-labels"), "app=d")
			// kubectl fails when custom kinds of other tests appear and disappear meanwhile.
			harness.Eventually(t, "all", func() error {
				if r := k.Run("", "get", "all"); r.Code != 0 || !strings.Contains(r.Out, "deployment.apps/d") {
					return fmt.Errorf("exit code %d: %s%s", r.Code, r.Out, r.Err)
				}
				return nil
			})
			in(t, "everywhere", k.Must("get", "deployments.apps", "-A", "-l", "app=d"), "NAMESPACE")
			want(t, "not found", k.Run("", "get", "deployments.apps", "none").Err, "Error from server (NotFound): deployments.apps \"none\" not found\n")
		}},
		{"describe", func(t *testing.T) {
			in(t, "describe", k.Must("describe", d), "Name:", "Replicas:", "3 desired", "Image:", "StrategyType:")
		}},
		{"apply a change", func(t *testing.T) {
			write(strings.Replace(deployment("apps/v1", "d"), "example/main:1", "example/main:2", 1))
			r := k.Run("", "diff", "-f", manifest)
			want(t, "exit code of diff", r.Code, 1)
			in(t, "diff", r.Out, "-      - image: example/main:1", "+      - image: example/main:2")
			want(t, "output", k.Must("apply", "-f", manifest), "deployment.apps/d configured\n")
			want(t, "image", image(), "example/main:2")
			want(t, "dry run", k.Must("apply", "-f", manifest, "--dry-run=server"), "deployment.apps/d unchanged (server dry run)\n")
		}},
		{"apply at the server", func(t *testing.T) {
			apply := func(args ...string) harness.Result {
				return k.Run("", append([]string{"apply", "--server-side", "-f", manifest, "--field-manager"}, args...)...)
			}
			write(deployment("apps/v1", "e"))
			want(t, "first", apply("one").Out, "deployment.apps/e serverside-applied\n")
			write(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"e"},"spec":{"replicas":5}}`)
			r := apply("two")
			want(t, "exit code", r.Code, 1)
			in(t, "conflict", r.Err, "conflict", "\"one\"", ".spec.replicas")
			want(t, "forced", apply("two", "--force-conflicts").Out, "deployment.apps/e serverside-applied\n")
			in(t, "managers", k.Must("get", "deployments.apps/e", "-o", "yaml", "--show-managed-fields"), "manager: one", "manager: two")
			k.Must("delete", "deployments.apps/e")
		}},
		{"apply with an unknown field", func(t *testing.T) {
			write(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replica":5}}`)
			r := k.Run("", "apply", "-f", manifest)
			want(t, "exit code", r.Code, 1)
			in(t, "error", r.Err, `unknown field "spec.replica"`)
		}},
		{"patch", func(t *testing.T) {
			k.Must("patch", d, "-p", `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"m:3"}]}}}}`)
			want(t, "image", image(), "m:3")
			k.Must("patch", d, "--type", "json", "-p", `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"m:4"}]`)
			k.Must("patch", d, "--type", "merge", "-p", `{"metadata":{"labels":{"by":"patch"}}}`)
			want(t, "image", image(), "m:4")
		}},
		{"label and annotate", func(t *testing.T) {
			want(t, "label", k.Must("label", d, "tier=front"), "deployment.apps/d labeled\n")
			want(t, "refusal", k.Run("", "label", d, "tier=back").Code, 1)
			k.Must("label", d, "tier=back", "--overwrite")
			k.Must("label", d, "tier-")
			want(t, "annotate", k.Must("annotate", d, "note=hello"), "deployment.apps/d annotated\n")
			want(t, "note", k.Must("get", d, "-o", "jsonpath={.metadata.annotations.note}{.metadata.labels.tier}"), "hello")
		}},
		{"scale", func(t *testing.T) {
			want(t, "scale", k.Must("scale", d, "--replicas", "7"), "deployment.apps/d scaled\n")
			want(t, "replicas", k.Must("get", d, "-o", "jsonpath={.spec.replicas}"), "7")
			want(t, "precondition", k.Run("", "scale", d, "--replicas", "8", "--current-replicas", "3").Code, 1)
		}},
		{"set image", func(t *testing.T) {
			k.Must("set", "image", d, "main=m:5")
			want(t, "image", image(), "m:5")
		}},
		{"edit", func(t *testing.T) {
			editor := filepath.Join(dir, "editor")
			if err := os.WriteFile(editor, []byte("#!/bin/sh\nsed -i 's/image: m:5/image: m:6/' \"$1\"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			k.Env = append(k.Env, "EDITOR="+editor)
			in(t, "edit", k.Must("edit", d), "deployment.apps/d edited")
			want(t, "image", image(), "m:6")
		}},
		{"replace", func(t *testing.T) {
			text := k.Must("get", d, "-o", "json")
			want(t, "replace", k.MustWith(strings.Replace(text, `"m:6"`, `"m:7"`, 1), "replace", "-f", "-"), "deployment.apps/d replaced\n")
			want(t, "stale", k.Run(strings.Replace(text, `"m:6"`, `"m:8"`, 1), "replace", "-f", "-").Code, 1)
			want(t, "image", image(), "m:7")
		}},
		{"wait", func(t *testing.T) {
			k.Must("patch", d, "--subresource", "status", "--type", "merge", "-p", `{"status":{"conditions":[{"type":"Available","status":"True"}]}}`)
			in(t, "wait", k.Must("wait", d, "--for", "condition=Available", "--timeout", "10s"), "condition met")
			in(t, "wait", k.Must("wait", d, "--for", "jsonpath={.spec.replicas}=7", "--timeout", "10s"), "condition met")
			want(t, "a wait that times out", k.Run("", "wait", d, "--for", "condition=Progressing", "--timeout", "1s").Code, 1)
		}},
		{"rollout", func(t *testing.T) {
			in(t, "history", k.Must("rollout", "history", d), "deployment.apps/d")
			k.Must("rollout", "restart", d)
			in(t, "restarted", k.Must("get", d, "-o", "yaml"), "kubectl.kubernetes.io/restartedAt")
			r := k.Run("", "rollout", "status", d, "--watch=false")
			in(t, "status", r.Out+r.Err, "Waiting for deployment")
		}},
		{"explain", func(t *testing.T) {
			in(t, "explain", k.Must("explain", "deployment.spec.strategy"), "GROUP:", "apps", "VERSION:", "v1", "rollingUpdate", "<RollingUpdateDeployment>")
			in(t, "recursive", k.Must("explain", "pod.spec.containers", "--recursive"), "imagePullPolicy")
		}},
		{"may I", func(t *testing.T) {
			want(t, "admin", k.Must("auth", "can-i", "delete", "pods"), "yes\n")
			r := k.Run("", "auth", "can-i", "delete", "pods", "--as", "somebody")
			want(t, "somebody", strings.TrimSpace(r.Out), "no")
			want(t, "exit code", r.Code, 1)
			in(t, "list", k.Must("auth", "can-i", "--list", "--as", "somebody"), "selfsubjectaccessreviews")
			in(t, "who am I", k.Must("auth", "whoami"), "gatehouse-admin")
		}},
		{"what is there", func(t *testing.T) {
			resources := k.Must("api-resources")
			in(t, "api-resources", resources, "deployments", "deploy", "apps/v1", "customresourcedefinitions")
			in(t, "api-versions", k.Must("api-versions"), "apps/v1\n", "extensions/v1beta1\n", "admissionregistration.k8s.io/v1\n")
			in(t, "version", k.Must("version"), "Server Version: v1.37.2")
			in(t, "cluster-info", k.Must("cluster-info"), "Kubernetes control plane")
		}},
		{"create", func(t *testing.T) {
			// Later commands use these three.
			needed := [][]string{{"configmap", "c", "--from-literal=a=b"}, {"serviceaccount", "robot"}, {"job", "j", "--image=i"}}
			for _, args := range append(needed, speed.Some(t, 2, [][]string{
				{"secret", "generic", "s", "--from-literal=a=b"},
				{"role", "reader", "--verb=get", "--resource=pods"}, {"rolebinding", "reading", "--role=reader", "--serviceaccount=default:robot"},
				{"service", "clusterip", "web", "--tcp=80"}, {"cronjob", "cj", "--image=i", "--schedule=* * * * *"},
				{"quota", "q", "--hard=pods=3"}, {"pdb", "p", "--selector=app=d", "--min-available=1"}, {"ingress", "in", "--rule=example.com/=web:80"},
			})...) {
				in(t, strings.Join(args, " "), k.Must(append([]string{"create"}, args...)...), "created")
			}
			if token := k.Must("create", "token", "robot"); strings.Count(token, ".") != 2 {
				t.Errorf("token %q", token)
			}
			want(t, "again", k.Run("", "create", "configmap", "c").Err, "error: failed to create configmap: configmaps \"c\" already exists\n")
			in(t, "run", k.Must("run", "p", "--image=i"), "pod/p created")
			in(t, "expose", k.Must("expose", d, "--port=80", "--name=exposed"), "service/exposed exposed")
			k.Must("events")
		}},
		{"what needs a node", func(t *testing.T) {
			r := k.Run("", "logs", "p")
			want(t, "exit code", r.Code, 1)
			in(t, "logs", r.Err, "agent")
			r = k.Run("", "exec", "p", "--", "ls")
			want(t, "exit code", r.Code, 1)
		}},
		{"delete", func(t *testing.T) {
			in(t, "delete", k.Must("delete", d, "--timeout", "20s"), "deleted")
			in(t, "all", k.Must("delete", "pods,services,jobs", "--all", "--timeout", "20s"), `pod "p" deleted`, `job.batch "j" deleted`)
			want(t, "nothing", k.Must("delete", d, "--ignore-not-found"), "")
		}},
		{"prune", func(t *testing.T) {
			set := filepath.Join(dir, "set.yaml")
			apply := func(text string) string {
				t.Helper()
				if err := os.WriteFile(set, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				return k.Must("apply", "-f", set, "--prune", "-l", "set=x", "--prune-allowlist=core/v1/ConfigMap")
			}
			one, two := configMap("one", "set", "x"), configMap("two", "set", "x")
			apply(one + "\n---\n" + two)
			in(t, "prune", apply(one), "configmap/two pruned")
		}},
	} {
		if slices.Contains(alone, step.name) && !slices.Contains(chosen, step.name) {
			continue
		}
		t.Run(step.name, func(t *testing.T) {
			defer k.For(t)()
			step.run(t)
		})
	}
}

// TestKubectlCustomResources defines a kind and uses it.
func TestKubectlCustomResources(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	k := s.Kubectl(t, s.Namespace(t))
	in(t, "define", k.MustWith(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.shop.example.com}
spec:
  group: shop.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}
    additionalPrinterColumns: [{name: Colour, type: string, jsonPath: .spec.colour}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              colour: {type: string, enum: [red, green], description: The colour of the widget.}
              size: {type: integer, default: 1}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, n: {type: integer}}}
          status: {type: object, properties: {size: {type: integer}}}
`, "apply", "-f", "-"), "created")
	in(t, "wait", k.Must("wait", "crd/widgets.shop.example.com", "--for", "condition=Established", "--timeout", "20s"), "condition met")
	widget := func(colour string) string {
		return "apiVersion: shop.example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {colour: " + colour + ", parts: [{name: a, n: 1}]}\n"
	}
	want(t, "apply", k.MustWith(widget("red"), "apply", "-f", "-"), "widget.shop.example.com/w created\n")
	in(t, "get", k.Must("get", "wd"), "NAME", "COLOUR", "w", "red")
	in(t, "get all", k.Must("get", "all"), "widget.shop.example.com/w")
	want(t, "default", k.Must("get", "widget", "w", "-o", "jsonpath={.spec.size}"), "1")
	r := k.Run(widget("blue"), "apply", "-f", "-")
	want(t, "exit code", r.Code, 1)
	in(t, "refusal", r.Err, "spec.colour", "Unsupported value")
	r = k.Run(strings.Replace(widget("red"), "colour", "color", 1), "apply", "-f", "-")
	want(t, "exit code", r.Code, 1)
	in(t, "refusal", r.Err, `unknown field "spec.color"`)
	if speed.IsLong() {
		changeWidgets(t, k, widget("green"))
	}
	in(t, "delete the kind", k.Must("delete", "crd", "widgets.shop.example.com", "--timeout", "20s"), "deleted")
	harness.Eventually(t, "the kind is gone", func() error {
		if r := s.HTTP(t, nil).Do("GET", "/apis/shop.example.com/v1/widgets", ""); r.Code != http.StatusNotFound {
			return fmt.Errorf("%d %s", r.Code, r.Raw)
		}
		return nil
	})
}

// changeWidgets changes, shows and deletes a widget whose parts have the name a.
func changeWidgets(t *testing.T, k *harness.Kubectl, green string) {
	t.Helper()
	want(t, "apply", k.MustWith(green, "apply", "-f", "-"), "widget.shop.example.com/w configured\n")
	in(t, "scale", k.Must("scale", "widget/w", "--replicas", "4"), "scaled")
	k.Must("patch", "widget", "w", "--type", "merge", "-p", `{"spec":{"colour":"red"}}`)
	k.Must("patch", "widget", "w", "--subresource", "status", "--type", "merge", "-p", `{"status":{"size":4}}`)
	want(t, "stored", k.Must("get", "widget", "w", "-o", "jsonpath={.spec.colour} {.spec.size} {.status.size}"), "red 4 4")
	k.Must("annotate", "widget", "w", "kubectl.kubernetes.io/last-applied-configuration-")
	want(t, "server side", k.MustWith("apiVersion: shop.example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {parts: [{name: b, n: 2}]}\n",
		"apply", "--server-side", "--field-manager", "other", "-f", "-"), "widget.shop.example.com/w serverside-applied\n")
	want(t, "parts", k.Must("get", "widget", "w", "-o", "jsonpath={.spec.parts[*].name}"), "a b")
	in(t, "explain", k.Must("explain", "widget.spec.colour"), "The colour of the widget.", "ENUM:", "green")
	in(t, "describe", k.Must("describe", "widget", "w"), "Colour:", "red")
	in(t, "delete", k.Must("delete", "widget", "w", "--timeout", "20s"), "deleted")
}

// TestKubectlOnWhatControllersAndPluginsDo runs commands that need controllers and plugins: quotas, accounts
// and their tokens, cascading deletions, and the Pod Security Standards.
func TestKubectlOnWhatControllersAndPluginsDo(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, "--controllers", "*")
	chosen := speed.Some(t, 1, []string{"the first pod of a namespace, at once", "create quota", "create sa and create token", "Pod Security Standards"})
	fresh := func(t *testing.T, name, labels string) *harness.Kubectl {
		t.Helper()
		s.HTTP(t, nil).Must(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"`+name+`","labels":{`+labels+`}}}`)
		return s.Kubectl(t, name)
	}
	// eventually repeats a command until its output contains a text.
	eventually := func(t *testing.T, k *harness.Kubectl, text string, args ...string) {
		t.Helper()
		harness.Eventually(t, strings.Join(args, " "), func() error {
			if r := k.Run("", args...); !strings.Contains(r.Out+r.Err, text) {
				return fmt.Errorf("%q is not in %s%s", text, r.Out, r.Err)
			}
			return nil
		})
	}
	run := func(name string, test func(*testing.T)) {
		if slices.Contains(chosen, name) {
			t.Run(name, test)
		}
	}
	run("the first pod of a namespace, at once", func(t *testing.T) {
		k := fresh(t, "first", "")
		in(t, "run", k.Must("run", "p", "--image=i"), "pod/p created")
		want(t, "account", k.Must("get", "pod", "p", "-o", "jsonpath={.spec.serviceAccountName}"), "default")
		in(t, "volumes", k.Must("get", "pod", "p", "-o", "jsonpath={.spec.volumes[*].name}"), "kube-api-access-")
		in(t, "accounts", k.Must("get", "serviceaccounts"), "default")
	})
	run("create quota", func(t *testing.T) {
		k := fresh(t, "counted", "")
		in(t, "create", k.Must("create", "quota", "q", "--hard=pods=1,count/secrets=0"), "resourcequota/q created")
		eventually(t, k, "0", "get", "quota", "q", "-o", "jsonpath={.status.used.pods}")
		k.Must("run", "one", "--image=i")
		r := k.Run("", "run", "two", "--image=i")
		want(t, "exit code", r.Code, 1)
		in(t, "refusal", r.Err, `pods "two" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1`)
		in(t, "refusal", k.Run("", "create", "secret", "generic", "s").Err, "exceeded quota: q, requested: count/secrets=1")
		k.Must("delete", "pod", "one", "--now")
		eventually(t, k, "0", "get", "quota", "q", "-o", "jsonpath={.status.used.pods}")
		eventually(t, k, "pod/two created", "run", "two", "--image=i")
		in(t, "describe", k.Must("describe", "quota", "q"), "count/secrets", "pods", "1     1")
	})
	run("create sa and create token", func(t *testing.T) {
		k := fresh(t, "accounts", "")
		in(t, "create", k.Must("create", "sa", "robot"), "serviceaccount/robot created")
		token := strings.TrimSpace(k.Must("create", "token", "robot", "--duration", "1h"))
		want(t, "whose token it is", whoIs(t, s, token), "system:serviceaccount:accounts:robot")
		in(t, "run", k.Must("run", "p", "--image=i", `--overrides={"spec":{"serviceAccountName":"robot"}}`), "pod/p created")
		refused := k.Run("", "run", "q", "--image=i", `--overrides={"spec":{"serviceAccountName":"nobody"}}`)
		in(t, "refusal", refused.Err, `error looking up service account accounts/nobody: serviceaccount "nobody" not found`)
		k.Must("delete", "sa", "default")
		eventually(t, k, "default", "get", "sa", "default", "-o", "name")
	})
	for _, tt := range speed.Some(t, 1, []struct {
		cascade string
		// stays reports whether dependents outlive their owner.
		stays bool
	}{{"foreground", false}, {"background", false}, {"orphan", true}}) {
		t.Run("delete --cascade="+tt.cascade, func(t *testing.T) {
			k := fresh(t, "cascade-"+tt.cascade, "")
			k.Must("create", "configmap", "owner")
			uid := k.Must("get", "configmap", "owner", "-o", "jsonpath={.metadata.uid}")
			k.MustWith(fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"owned","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q,"blockOwnerDeletion":true}]}}`, uid), "create", "-f", "-")
			in(t, "delete", k.Must("delete", "configmap", "owner", "--cascade="+tt.cascade), "deleted")
			want(t, "owner", k.Must("get", "configmap", "owner", "--ignore-not-found"), "")
			if tt.stays {
				want(t, "references", k.Must("get", "configmap", "owned", "-o", "jsonpath={.metadata.ownerReferences}"), "")
				return
			}
			if tt.cascade == "foreground" {
				want(t, "owned", k.Must("get", "configmap", "owned", "--ignore-not-found"), "")
			}
			eventually(t, k, "NotFound", "get", "configmap", "owned")
		})
	}
	run("Pod Security Standards", func(t *testing.T) {
		k := fresh(t, "secured", `"pod-security.kubernetes.io/enforce":"baseline","pod-security.kubernetes.io/warn":"restricted"`)
		eventually(t, k, "Warning: would violate PodSecurity \"restricted:latest\"", "run", "warned", "--image=i", "--dry-run=server")
		refused := k.Run("", "run", "host", "--image=i", `--overrides={"spec":{"hostNetwork":true}}`)
		want(t, "exit code", refused.Code, 1)
		in(t, "refusal", refused.Err, `violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`)
		k.Must("run", "plain", "--image=i")
		labelled := k.Run("", "label", "namespace", "secured", "pod-security.kubernetes.io/enforce=restricted", "--overwrite", "--dry-run=server")
		in(t, "warning of pods that are there", labelled.Err, `existing pods in namespace "secured" violate the new PodSecurity enforce level "restricted:latest"`)
	})
}
