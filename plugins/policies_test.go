package plugins_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/plugins"
)

// S9.16, S9.3, S19.2: the plugins have kube-apiserver's order and defaults, and Gatehouse's own plugins are
// among them.
func TestTheOrderAndDefaultsAreThoseOfKubeAPIServer(t *testing.T) {
	known := plugins.Order(admission.Recommended())
	var names []string
	for _, k := range known {
		names = append(names, k.Name)
	}
	own := []string{admission.InitializersName, admission.GenericWebhookName}
	got := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(own, name) })
	if diff := cmp.Diff(options.AllOrderedPlugins, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	off := options.DefaultOffAdmissionPlugins()
	for _, k := range known {
		if slices.Contains(own, k.Name) {
			continue
		}
		if k.Default == off.Has(k.Name) {
			t.Errorf("%s: on by default: %v; in kube-apiserver: %v", k.Name, k.Default, !off.Has(k.Name))
		}
	}
	at := func(name string) int { return slices.Index(names, name) }
	for _, pair := range [][2]string{
		{"NamespaceLifecycle", admission.InitializersName}, {admission.InitializersName, "LimitRanger"},
		{"PodResizeValidator", "MutatingAdmissionWebhook"}, {admission.GenericWebhookName, "ValidatingAdmissionWebhook"},
		{"ValidatingAdmissionWebhook", "ResourceQuota"},
	} {
		if at(pair[0]) < 0 || at(pair[0]) >= at(pair[1]) {
			t.Errorf("%s is at %d and must be before %s, at %d", pair[0], at(pair[0]), pair[1], at(pair[1]))
		}
	}
}
