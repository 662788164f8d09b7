package plugins_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/compatibility"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/gatehouse-dev/gatehouse/admission"
	_ "github.com/gatehouse-dev/gatehouse/internal/server/api/catalog" // installs all kinds
	"github.com/gatehouse-dev/gatehouse/plugins"
)

// configured are valid configurations for the plugins that need one.
func configured(t *testing.T, plugin string) string {
	switch plugin {
	case "EventRateLimit":
		return `{"apiVersion":"eventratelimit.admission.k8s.io/v1alpha1","kind":"Configuration","limits":[{"type":"Server","qps":5,"burst":5}]}`
	case "ImagePolicyWebhook":
		kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(kubeconfig, []byte(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"current-context":"c","users":[{"name":"u"}]}`), 0o600); err != nil {
			t.Fatal(err)
		}
		return `{"imagePolicy":{"kubeConfigFile":"` + kubeconfig + `","allowTTL":50,"denyTTL":50,"retryBackoff":500,"defaultAllow":true}}`
	}
	return ""
}

// onCluster are the options for an empty cluster in which no action is authorized.
func onCluster(t *testing.T, configuration string) plugins.Options {
	client := fake.NewClientset()
	stopped := make(chan struct{})
	t.Cleanup(func() { close(stopped) })
	return plugins.Options{
		Client: client, Informers: informers.NewSharedInformerFactory(client, 0),
		Authorizer: authorizerfactory.NewAlwaysDenyAuthorizer(), Mapper: meta.NewDefaultRESTMapper(nil),
		Version: compatibility.NewEffectiveVersionFromString("1.37", "", ""), Stopped: stopped,
		Configuration: func(string) ([]byte, error) {
			if configuration == "" {
				return nil, nil
			}
			return []byte(configuration), nil
		},
	}
}

// S9.12: a plugin reads its configuration during its construction. If it cannot use the configuration, New
// returns an error of one sentence.
func TestConfigurations(t *testing.T) {
	for _, tt := range []struct{ name, plugin, configuration, err string }{
		{"none", "PodSecurity", ``, ``},
		{"a level for namespaces without labels", "PodSecurity", `{"apiVersion":"pod-security.admission.config.k8s.io/v1","kind":"PodSecurityConfiguration","defaults":{"enforce":"baseline"}}`, ``},
		{"a level that there is not", "PodSecurity", `{"apiVersion":"pod-security.admission.config.k8s.io/v1","kind":"PodSecurityConfiguration","defaults":{"enforce":"strong"}}`, `enforce: must be one of`},
		{"a field that there is not", "PodSecurity", `{"apiVersion":"pod-security.admission.config.k8s.io/v1","kind":"PodSecurityConfiguration","default":{"enforce":"baseline"}}`, `unknown field "default"`},
		{"a kind that there is not", "PodSecurity", `{"apiVersion":"v1","kind":"ConfigMap"}`, `no kind "ConfigMap"`},
		{"limited resources", "ResourceQuota", `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ResourceQuotaConfiguration","limitedResources":[{"resource":"pods","matchContains":["pods"]}]}`, ``},
		{"limited resources without a name", "ResourceQuota", `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ResourceQuotaConfiguration","limitedResources":[{"matchContains":["pods"]}]}`, `limitedResources[0].resource`},
		{"limits", "EventRateLimit", configured(t, "EventRateLimit"), ``},
		{"no limits", "EventRateLimit", ``, `it needs a configuration`},
		{"a limit of no rate", "EventRateLimit", `{"apiVersion":"eventratelimit.admission.k8s.io/v1alpha1","kind":"Configuration","limits":[{"type":"Server","qps":0,"burst":5}]}`, `qps`},
		{"a webhook for images", "ImagePolicyWebhook", configured(t, "ImagePolicyWebhook"), ``},
		{"no webhook for images", "ImagePolicyWebhook", ``, `it needs a configuration`},
		{"a webhook for images that cannot be reached by what is there", "ImagePolicyWebhook", `{"imagePolicy":{"kubeConfigFile":"/nowhere/kubeconfig","defaultAllow":true}}`, `/nowhere/kubeconfig`},
		{"default selectors", "PodNodeSelector", `{"podNodeSelectorPluginConfig":{"clusterDefaultNodeSelector":"a=b"}}`, ``},
		{"no mapping", "PodNodeSelector", `{"podNodeSelectorPluginConfig":5}`, `cannot unmarshal`},
		{"a selector that is none", "PodNodeSelector", `{"podNodeSelectorPluginConfig":{"ns":"a!b"}}`, `podNodeSelectorPluginConfig.ns`},
		{"tolerations", "PodTolerationRestriction", `{"apiVersion":"podtolerationrestriction.admission.k8s.io/v1alpha1","kind":"Configuration","default":[{"key":"a","operator":"Exists"}]}`, ``},
		{"tolerations that are none", "PodTolerationRestriction", `{"apiVersion":"podtolerationrestriction.admission.k8s.io/v1alpha1","kind":"Configuration","default":[{"key":"a","operator":"Some"}]}`, `default[0].operator`},
		{"of a plugin that has none", "LimitRanger", `{"a":1}`, `it takes no configuration`},
		{"of a plugin that there is not", "LimitRange", ``, `unknown`},
	} {
		t.Run(tt.plugin+": "+tt.name, func(t *testing.T) {
			_, err := plugins.New(tt.plugin, onCluster(t, tt.configuration))
			switch {
			case tt.err == "" && err != nil:
				t.Fatal(err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Fatalf("error %v, want one with %q", err, tt.err)
			case err != nil && strings.Contains(err.Error(), "\n"):
				t.Errorf("the error has several lines: %v", err)
			}
		})
	}
}

func TestAConfigurationThatCannotBeReadKeepsAPluginFromBeingMade(t *testing.T) {
	o, cause := onCluster(t, ""), errors.New("no such file")
	o.Configuration = func(string) ([]byte, error) { return nil, cause }
	if _, err := plugins.New("PodSecurity", o); !errors.Is(err, cause) {
		t.Errorf("error %v, want %v", err, cause)
	}
}

// subresources are the subresources of each resource, in any group. Other resources have at most status and
// scale.
var subresources = map[string][]string{
	"pods":                       {"", "status", "binding", "eviction", "exec", "attach", "portforward", "proxy", "log", "ephemeralcontainers", "resize"},
	"nodes":                      {"", "status", "proxy"},
	"namespaces":                 {"", "status", "finalize"},
	"services":                   {"", "status", "proxy"},
	"serviceaccounts":            {"", "token"},
	"certificatesigningrequests": {"", "status", "approval"},
	"events":                     {""},
}

func subresourcesOf(resource string) []string {
	if list, ok := subresources[resource]; ok {
		return list
	}
	return []string{"", "status", "scale"}
}

// S9.17: a plugin admits every request that does not concern it, without changes: plans and traces then omit
// the plugin, and a cluster that has it as a webhook does not call it.
func TestPluginsDoNothingToRequestsThatTheyAreNotAbout(t *testing.T) {
	node := &user.DefaultInfo{Name: "system:node:n", Groups: []string{user.NodesGroup}}
	interfaces := apiadmission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
	var kinds []schema.GroupVersionKind
	for kind := range legacyscheme.Scheme.AllKnownTypes() {
		if kind.Version == runtime.APIVersionInternal && !strings.HasSuffix(kind.Kind, "List") && !strings.HasSuffix(kind.Kind, "Options") {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) < 60 {
		t.Fatalf("only %d kinds are known", len(kinds))
	}
	checked := map[string]int{}
	for _, row := range plugins.All() {
		p, err := plugins.New(row.Name, onCluster(t, configured(t, row.Name)))
		if err != nil {
			t.Fatalf("%s: %v", row.Name, err)
		}
		described := p.(admission.Described)
		for _, kind := range kinds {
			plural, _ := meta.UnsafeGuessKindToResource(kind)
			for _, namespace := range []string{"", "ns"} {
				for _, subresource := range subresourcesOf(plural.Resource) {
					for _, op := range []apiadmission.Operation{apiadmission.Create, apiadmission.Update, apiadmission.Delete, apiadmission.Connect} {
						object, err := legacyscheme.Scheme.New(kind)
						if err != nil {
							t.Fatal(err)
						}
						old := object.DeepCopyObject()
						a := apiadmission.NewAttributesRecord(object, old, kind, namespace, "o", plural, subresource, op, &metav1.CreateOptions{}, false, node)
						if described.Concerns(a) || !p.Handles(op) {
							continue
						}
						checked[row.Name]++
						if err := through(t.Context(), p, a, interfaces); err != nil {
							t.Errorf("%s: %s %s/%s: %v", row.Name, op, plural.GroupResource(), subresource, err)
						}
						if diff := cmp.Diff(old, object); diff != "" {
							t.Errorf("%s: %s %s/%s: changed (-before +after):\n%s", row.Name, op, plural.GroupResource(), subresource, diff)
						}
					}
				}
			}
		}
	}
	for _, row := range plugins.All() {
		everything := slices.ContainsFunc(row.About, func(about plugins.About) bool { return about.Resource == "*" })
		if checked[row.Name] == 0 && !everything {
			t.Errorf("%s: no request was tried", row.Name)
		}
	}
}

// through sends a request through the passes of a plugin.
func through(ctx context.Context, p apiadmission.Interface, a apiadmission.Attributes, o apiadmission.ObjectInterfaces) error {
	if m, ok := p.(apiadmission.MutationInterface); ok {
		if err := m.Admit(ctx, a, o); err != nil {
			return err
		}
	}
	if v, ok := p.(apiadmission.ValidationInterface); ok {
		return v.Validate(ctx, a, o)
	}
	return nil
}
