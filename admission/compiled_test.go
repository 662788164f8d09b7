package admission

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// described is a built-in admission plugin for pods.
type described struct {
	mutator
	changes bool
	reads   []Read
	asked   *int
	unsure  bool
}

func (described) Concerns(a admission.Attributes) bool { return a.GetResource().Resource == "pods" }
func (d described) Changes() bool                      { return d.changes }
func (d described) Reads(admission.Attributes) []Read  { return d.reads }
func (d described) DependsOnOthers() bool              { return false }

func (d described) Predict(ctx context.Context, _ registration.Pass, a admission.Attributes, o admission.ObjectInterfaces) error {
	if d.unsure {
		return ErrNotPredicted
	}
	if d.asked != nil {
		*d.asked++
	}
	return d.Admit(ctx, a, o)
}

func labellingPlugin(key string) described {
	return described{changes: true, mutator: mutator{link{admit: func(a admission.Attributes) error {
		object := a.GetObject().(metav1.Object)
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[key] = "x"
		object.SetLabels(labels)
		return nil
	}}}}
}

// confined is a described that may change only some fields.
type confined struct {
	described
	fields []string
}

func (c confined) Fields() []string { return c.fields }

// othersPlugin is a plugin of an Engine, which makes its own record.
type othersPlugin struct{ mutator }

func (othersPlugin) acts() *registration.Descriptor { return nil }

func attributes(resource string) admission.Attributes {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}}
	return admission.NewAttributesRecord(pod, nil, corev1.SchemeGroupVersion.WithKind("Pod"), "ns", "p",
		corev1.SchemeGroupVersion.WithResource(resource), "", admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "u"})
}

// S9.18, S9.17: a trace has the changes by each built-in admission plugin, and no step of plugins
// that the request does not concern.
func TestATraceTellsWhatCompiledInPluginsChanged(t *testing.T) {
	nothing := labellingPlugin("")
	nothing.admit = func(admission.Attributes) error { return nil }
	refusing := labellingPlugin("")
	refusing.admit = func(a admission.Attributes) error {
		a.GetObject().(metav1.Object).SetLabels(map[string]string{"half": "done"})
		return errors.New("refused")
	}
	foreign := othersPlugin{labellingPlugin("foreign").mutator}
	for _, tt := range []struct {
		name     string
		resource string
		chain    []Plugin
		want     []string
	}{
		{"each with its own change", "pods", []Plugin{{"A", labellingPlugin("a")}, {"B", labellingPlugin("b")}}, []string{
			`A [{"op":"add","path":"/metadata/labels","value":{"a":"x"}}] <nil>`,
			`B [{"op":"add","path":"/metadata/labels/b","value":"x"}] <nil>`,
		}},
		{"a plugin that changes nothing", "pods", []Plugin{{"A", nothing}, {"B", labellingPlugin("b")}}, []string{
			`A  <nil>`, `B [{"op":"add","path":"/metadata/labels","value":{"b":"x"}}] <nil>`,
		}},
		{"what webhooks changed in between is theirs", "pods", []Plugin{{"A", labellingPlugin("a")}, {"W", foreign}, {"B", labellingPlugin("b")}}, []string{
			`A [{"op":"add","path":"/metadata/labels","value":{"a":"x"}}] <nil>`,
			`B [{"op":"add","path":"/metadata/labels/b","value":"x"}] <nil>`,
		}},
		{"a change of a listed field", "pods", []Plugin{{"A", confined{labellingPlugin("a"), []string{"ObjectMeta.Labels"}}}}, []string{
			`A [{"op":"add","path":"/metadata/labels","value":{"a":"x"}}] <nil>`,
		}},
		{"a change of a field that is not listed", "pods", []Plugin{{"A", confined{labellingPlugin("a"), []string{"Spec.NodeName"}}}, {"V", validator{}}}, []string{
			`A  <nil>`, Undeclared + ` [{"op":"add","path":"/metadata/labels","value":{"a":"x"}}] <nil>`,
		}},
		{"a change of a field that is not listed, and webhooks afterwards", "pods", []Plugin{{"A", confined{labellingPlugin("a"), []string{}}}, {"W", foreign}}, []string{
			`A  <nil>`, Undeclared + ` [{"op":"add","path":"/metadata/labels","value":{"a":"x"}}] <nil>`,
		}},
		{"a plugin that refuses", "pods", []Plugin{{"A", refusing}}, []string{`A  refused`}},
		{"a request that the plugin is not about", "nodes", []Plugin{{"A", labellingPlugin("a")}}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := attributes(tt.resource)
			record := trace.New()
			// The verdict is in the trace.
			_ = Chain(tt.chain...).Admit(trace.NewContext(t.Context(), record), a, admission.NewObjectInterfacesFromScheme(scheme.Scheme))
			var got []string
			for _, s := range record.Steps() {
				got = append(got, fmt.Sprintf("%s %s %v", s.Plugin, s.Patch(), s.Err))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// S9.17: a plan asks the built-in admission plugins that can predict their verdict, has the changes
// that each would make, and leaves the object unchanged.
func TestAPlanTellsWhatCompiledInPluginsWouldChange(t *testing.T) {
	unsure := labellingPlugin("unsure")
	unsure.unsure = true
	asked := 0
	reading := labellingPlugin("reading")
	reading.reads, reading.asked = []Read{{GroupResource: corev1.Resource("limitranges"), Namespaced: true}}, &asked
	refusing := labellingPlugin("")
	refusing.admit = func(admission.Attributes) error { return errors.New("refused") }
	for _, tt := range []struct {
		name     string
		resource string
		options  PlanOptions
		chain    []Plugin
		want     []string
	}{
		{"each with its own change", "pods", PlanOptions{}, []Plugin{{"A", labellingPlugin("a")}, {"B", labellingPlugin("b")}}, []string{
			`run A [{"op":"add","path":"/metadata/labels","value":{"a":"x"}}]`,
			`run B [{"op":"add","path":"/metadata/labels/b","value":"x"}]`,
		}},
		{"a plugin that cannot be asked", "pods", PlanOptions{}, []Plugin{{"A", unsure}, {"B", labellingPlugin("b")}}, []string{
			`run A `, `run B [{"op":"add","path":"/metadata/labels","value":{"b":"x"}}]`,
		}},
		{"a plugin that refuses ends the plan", "pods", PlanOptions{}, []Plugin{{"A", refusing}, {"B", labellingPlugin("b")}}, []string{`reject A  refused`}},
		{"what may not be read is not used", "pods", PlanOptions{Unread: map[string]string{"A": "may not list limitranges"}},
			[]Plugin{{"A", reading}, {"B", labellingPlugin("b")}}, []string{
				`unknown A  unknown: may not list limitranges`, `run B [{"op":"add","path":"/metadata/labels","value":{"b":"x"}}]`,
			}},
		{"no plugin is asked when the caller may not see the namespace", "pods", PlanOptions{NamespaceHidden: "may not get namespace ns"},
			[]Plugin{{"A", reading}}, []string{`run A `}},
		{"a request that the plugin is not about", "nodes", PlanOptions{}, []Plugin{{"A", labellingPlugin("a")}}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked = 0
			e, err := New(Options{Snapshots: register(), Namespaces: knownNamespaces{}})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			a := attributes(tt.resource)
			p, err := e.Plan(t.Context(), tt.chain, a, admission.NewObjectInterfacesFromScheme(scheme.Scheme), tt.options)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range p.Steps {
				line := fmt.Sprintf("%s %s %s", s.Effect, s.Plugin, s.Patch)
				if s.Reason != nil {
					line += " " + s.Reason.Message
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if asked != 0 {
				t.Errorf("the plugin whose reading is hidden was asked %d times", asked)
			}
			if labels := a.GetObject().(metav1.Object).GetLabels(); labels != nil {
				t.Errorf("the plan changed the object: labels %v", labels)
			}
		})
	}
}
