package admission

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/admission"
)

func TestSelectionNames(t *testing.T) {
	listed := "NamespaceLifecycle, Initializers, MutatingAdmissionPolicy, MutatingAdmissionWebhook, ValidatingAdmissionPolicy, GenericAdmissionWebhook, ValidatingAdmissionWebhook, Quota"
	recommended := []string{"NamespaceLifecycle", "Initializers", "MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "GenericAdmissionWebhook", "ValidatingAdmissionWebhook"}
	tests := []struct {
		name      string
		selection Selection
		want      []string
		err       string
	}{
		{name: "S9.4 everything is on by default, in the order of S9.3", want: recommended},
		{
			name:      "S9.6 admission-control keeps its own order",
			selection: Selection{Control: []string{"ValidatingAdmissionWebhook", "MutatingAdmissionWebhook", "NamespaceLifecycle"}},
			want:      []string{"ValidatingAdmissionWebhook", "MutatingAdmissionWebhook", "NamespaceLifecycle"},
		},
		{
			name:      "S9.6 unknown name",
			selection: Selection{Control: []string{"NamespaceLifecycle", "X"}},
			err:       `admission-control: unknown plugin "X"; known plugins: ` + listed,
		},
		{
			name:      "S9.6 several unknown names",
			selection: Selection{Control: []string{"X", "NamespaceLifecycle", "openshift.io/Y"}},
			err:       `admission-control: unknown plugins "X", "openshift.io/Y"; known plugins: ` + listed,
		},
		{
			name:      "S9.6 spaces around names do not count",
			selection: Selection{Control: []string{"Initializers", " NamespaceLifecycle "}},
			want:      []string{"Initializers", "NamespaceLifecycle"},
		},
		{
			name:      "S9.6 a name given twice",
			selection: Selection{Control: []string{"Initializers", "NamespaceLifecycle", "Initializers"}},
			err:       `admission-control plugin "Initializers" is given twice`,
		},
		{
			name:      "S9.7 disabling leaves the order",
			selection: Selection{Disable: []string{"Initializers", "GenericAdmissionWebhook"}},
			want:      []string{"NamespaceLifecycle", "MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook"},
		},
		{
			name:      "S9.7 enabling puts a plugin in its recommended place",
			selection: Selection{Enable: []string{"Quota", "Initializers"}},
			want:      append(append([]string(nil), recommended...), "Quota"),
		},
		{
			name:      "S9.7 unknown name enabled",
			selection: Selection{Enable: []string{"X"}},
			err:       `enable-admission-plugins: unknown plugin "X"; known plugins: ` + listed,
		},
		{
			name:      "S9.7 unknown name disabled",
			selection: Selection{Disable: []string{"X"}},
			err:       `disable-admission-plugins: unknown plugin "X"; known plugins: ` + listed,
		},
		{
			name:      "S9.7 a name in both",
			selection: Selection{Enable: []string{"Initializers"}, Disable: []string{"Initializers"}},
			err:       `enable-admission-plugins and disable-admission-plugins both have plugin "Initializers"`,
		},
		{
			name:      "S9.7 not together with admission-control",
			selection: Selection{Control: []string{"Initializers"}, Disable: []string{"Initializers"}},
			err:       "admission-control is the whole list, and goes with neither enable-admission-plugins nor disable-admission-plugins",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.selection.Names(append(Recommended(), Known{Name: "Quota"}))
			if text(err) != tt.err {
				t.Fatalf("got error %q, want %q", text(err), tt.err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestPlugins(t *testing.T) {
	e, err := New(Options{Snapshots: register(), Namespaces: knownNamespaces{}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	own := NewNamespaceLifecycle(knownNamespaces{})
	others := map[string]func(string) (admission.Interface, error){
		"the Engine makes all of its own": nil,
		"a host has nothing to add":       func(string) (admission.Interface, error) { return nil, nil },
		"a host has one of its own":       func(string) (admission.Interface, error) { return own, nil },
	}
	for name, other := range others {
		t.Run(name, func(t *testing.T) {
			var names []string
			for _, plugin := range Recommended() {
				names = append(names, plugin.Name)
			}
			list, err := e.Plugins(names, other)
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range list {
				if p.Name != names[i] {
					t.Errorf("plugin %d is %s, want %s", i, p.Name, names[i])
				}
				if act, ok := p.Interface.(acting); ok && act.acts().Plugin != p.Name {
					t.Errorf("%s acts on the entries of %s", p.Name, act.acts().Plugin)
				} else if !ok && p.Name != NamespaceLifecycleName {
					t.Errorf("%s is %T", p.Name, p.Interface)
				}
			}
			if _, ok := list[0].Interface.(*NamespaceLifecycle); !ok || name == "a host has one of its own" && list[0].Interface != own {
				t.Errorf("%s is %#v", list[0].Name, list[0].Interface)
			}
		})
	}
	if _, err := e.Plugins([]string{"Unheard"}, nil); err == nil || err.Error() != "admission plugin Unheard: it is unknown" {
		t.Errorf("of a plugin that nobody makes: %v", err)
	}
	broken := errors.New("it is broken")
	if _, err := e.Plugins([]string{"Broken"}, func(string) (admission.Interface, error) { return nil, broken }); !errors.Is(err, broken) || err.Error() != "admission plugin Broken: it is broken" {
		t.Errorf("of a plugin that cannot be made: %v", err)
	}
}
