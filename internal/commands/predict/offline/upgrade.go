package offline

import (
	"fmt"
	"path"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1beta1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"

	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
)

// Lives returns the releases of Kubernetes in which its kinds are served, from the tables that upstream generates from
// its types.
func Lives() []lint.Life {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensionsv1.AddToScheme, apiextensionsv1beta1.AddToScheme, apiregistrationv1.AddToScheme, apiregistrationv1beta1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	var list []lint.Life
	for gvk := range s.AllKnownTypes() {
		obj, err := s.New(gvk)
		if err != nil || gvk.Version == runtime.APIVersionInternal || meta.IsListType(obj) {
			continue
		}
		if _, ok := obj.(metav1.ObjectMetaAccessor); !ok {
			continue
		}
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		list = append(list, lifeOf(obj, plural, gvk.Kind))
	}
	return list
}

// lifeOf reads the tables of a type.
func lifeOf(obj runtime.Object, resource schema.GroupVersionResource, kind string) lint.Life {
	l := lint.Life{GroupVersionResource: resource, Kind: kind}
	release := func(major, minor int) *version.Version {
		if major == 0 {
			return nil
		}
		return version.MajorMinor(uint(major), uint(minor))
	}
	if o, ok := obj.(interface{ APILifecycleIntroduced() (int, int) }); ok {
		l.Introduced = release(o.APILifecycleIntroduced())
	}
	if o, ok := obj.(interface{ APILifecycleDeprecated() (int, int) }); ok {
		l.Deprecated = release(o.APILifecycleDeprecated())
	}
	if o, ok := obj.(interface{ APILifecycleRemoved() (int, int) }); ok {
		l.Removed = release(o.APILifecycleRemoved())
	}
	if o, ok := obj.(interface {
		APILifecycleReplacement() schema.GroupVersionKind
	}); ok {
		l.Replacement = o.APILifecycleReplacement()
	}
	return l
}

// Release returns the Kubernetes release of a cluster.
func Release(config *rest.Config) (*version.Version, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	info, err := client.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("the version of the cluster: %w", err)
	}
	v, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return nil, fmt.Errorf("the version of the cluster: %w", err)
	}
	return version.MajorMinor(v.Major(), v.Minor()), nil
}

// Versions returns the API versions of the objects in files.
func (w *World) Versions() map[lint.Object]string {
	if w.files == nil {
		return nil
	}
	versions := map[lint.Object]string{}
	for _, d := range w.files.stored {
		u := d.Unstructured()
		versions[lint.Object{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), At: d.At()}] = u.GetAPIVersion()
	}
	return versions
}

// ServerOptions returns the flags and plugins of the kube-apiservers in files: from pods and workloads that run one,
// from kubeadm's ClusterConfiguration, and from an AdmissionConfiguration. The feature gates of other components are
// among them: from kubeadm, from the configurations of the kubelet and kube-proxy, and from clusters of kind.
func (w *World) ServerOptions() []lint.ServerOption {
	if w.files == nil {
		return nil
	}
	var list []lint.ServerOption
	for _, d := range w.files.stored {
		u := d.Unstructured()
		o := lint.Object{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), At: d.At()}
		switch u.GetKind() {
		case "Pod":
			list = commandLines(list, o, u, "spec")
		case "Deployment", "DaemonSet", "StatefulSet":
			list = commandLines(list, o, u, "spec", "template", "spec")
		case "ClusterConfiguration":
			for _, component := range []string{"apiServer", "controllerManager", "scheduler"} {
				list = extraArguments(list, o, u, component)
			}
		case "KubeletConfiguration", "KubeProxyConfiguration", "Cluster":
			for _, field := range []struct{ name, flag string }{{"featureGates", featureGates}, {"runtimeConfig", "runtime-config"}} {
				values, _, _ := unstructured.NestedMap(u.Object, field.name)
				for name, value := range values {
					list = append(list, lint.ServerOption{Object: o, Path: []any{field.name, name}, Flag: field.flag, Value: fmt.Sprintf("%s=%v", name, value)})
				}
			}
		case "AdmissionConfiguration":
			plugins, _, _ := unstructured.NestedSlice(u.Object, "plugins")
			for i, p := range plugins {
				if p, ok := p.(map[string]any); ok {
					name, _ := p["name"].(string)
					list = append(list, lint.ServerOption{Object: o, Path: []any{"plugins", i, "name"}, Plugin: name})
				}
			}
		}
	}
	return list
}

// commandLines adds the flags of the containers that run kube-apiserver.
func commandLines(list []lint.ServerOption, o lint.Object, u *unstructured.Unstructured, fields ...string) []lint.ServerOption {
	containers, _, _ := unstructured.NestedSlice(u.Object, append(fields, "containers")...)
	for i, c := range containers {
		container, ok := c.(map[string]any)
		if !ok {
			continue
		}
		runs := false
		for _, field := range []string{"command", "args"} {
			words, _, _ := unstructured.NestedStringSlice(container, field)
			for k, word := range words {
				flag, isFlag := strings.CutPrefix(word, "--")
				if !isFlag {
					runs = runs || path.Base(word) == "kube-apiserver"
					continue
				}
				if !runs {
					continue
				}
				name, value, given := strings.Cut(flag, "=")
				if !given && k+1 < len(words) {
					value = words[k+1]
				}
				where := []any{}
				for _, f := range fields {
					where = append(where, f)
				}
				list = append(list, lint.ServerOption{Object: o, Path: append(where, "containers", i, field, k), Flag: name, Value: value})
			}
		}
	}
	return list
}

const featureGates = "feature-gates"

// extraArguments adds the flags of a component in kubeadm's configuration: a map, or in v1beta4 a list. Of other
// components than the API server, it adds the feature gates.
func extraArguments(list []lint.ServerOption, o lint.Object, u *unstructured.Unstructured, component string) []lint.ServerOption {
	add := func(path []any, name, value string) {
		if component == "apiServer" || name == featureGates {
			list = append(list, lint.ServerOption{Object: o, Path: path, Flag: name, Value: value})
		}
	}
	if arguments, ok, _ := unstructured.NestedStringMap(u.Object, component, "extraArgs"); ok {
		for name, value := range arguments {
			add([]any{component, "extraArgs", name}, name, value)
		}
	}
	arguments, _, _ := unstructured.NestedSlice(u.Object, component, "extraArgs")
	for i, a := range arguments {
		if a, ok := a.(map[string]any); ok {
			name, _ := a["name"].(string)
			value, _ := a["value"].(string)
			add([]any{component, "extraArgs", i, "name"}, name, value)
		}
	}
	return list
}
