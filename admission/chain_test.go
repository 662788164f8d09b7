package admission

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-base/metrics/legacyregistry"
)

// link is a plugin made of functions; nil means that it skips the pass.
type link struct {
	handles  func(admission.Operation) bool
	admit    func(admission.Attributes) error
	validate func(admission.Attributes) error
}

func (l link) Handles(op admission.Operation) bool { return l.handles == nil || l.handles(op) }

type mutator struct{ link }

func (m mutator) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return m.admit(a)
}

type validator struct{ link }

func (v validator) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return v.validate(a)
}

func TestChain(t *testing.T) {
	denied := errors.New("denied")
	tests := []struct {
		name                  string
		ask                   bool // a plugin asks to be run again
		admitErr, validateErr error
		handles               func(admission.Operation) bool
		wantAdmit             []string
		wantValidate          []string
	}{
		{
			name:         "S9.1 both passes run in order",
			wantAdmit:    []string{"a", "b"},
			wantValidate: []string{"c", "d"},
		},
		{
			name:         "S5.16 S5.17 the mutating pass runs twice, never more",
			ask:          true,
			wantAdmit:    []string{"a", "b", "a again", "b again"},
			wantValidate: []string{"c", "d"},
		},
		{
			name:         "S9.1 the first error ends a pass",
			ask:          true,
			admitErr:     denied,
			validateErr:  denied,
			wantAdmit:    []string{"a"},
			wantValidate: []string{"c"},
		},
		{
			name:    "S9.1 a plugin that does not handle the operation is left out",
			handles: func(op admission.Operation) bool { return op != admission.Create },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var admitted, validated []string
			admit := func(name string, err error) func(admission.Attributes) error {
				return func(a admission.Attributes) error {
					again := a.GetReinvocationContext()
					if again.IsReinvoke() {
						name += " again"
					}
					if tt.ask {
						again.SetShouldReinvoke()
					}
					admitted = append(admitted, name)
					return err
				}
			}
			validate := func(name string, err error) func(admission.Attributes) error {
				return func(admission.Attributes) error {
					validated = append(validated, name)
					return err
				}
			}
			chain := Chain(
				Plugin{"a", mutator{link{handles: tt.handles, admit: admit("a", tt.admitErr)}}},
				Plugin{"c", validator{link{handles: tt.handles, validate: validate("c", tt.validateErr)}}},
				Plugin{"b", mutator{link{handles: tt.handles, admit: admit("b", nil)}}},
				Plugin{"d", validator{link{handles: tt.handles, validate: validate("d", nil)}}},
			)
			a := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", "", schema.GroupVersionResource{}, "",
				admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{})
			if err := chain.Admit(t.Context(), a, nil); err != tt.admitErr {
				t.Errorf("Admit: got error %v, want %v", err, tt.admitErr)
			}
			if err := chain.Validate(t.Context(), a, nil); err != tt.validateErr {
				t.Errorf("Validate: got error %v, want %v", err, tt.validateErr)
			}
			if diff := cmp.Diff(tt.wantAdmit, admitted); diff != "" {
				t.Errorf("mutating pass (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.wantValidate, validated); diff != "" {
				t.Errorf("validating pass (-want +got):\n%s", diff)
			}
		})
	}
}

func TestChainIsMeasured(t *testing.T) {
	denied := errors.New("denied")
	chain := Chain(
		Plugin{"MeasuredMutator", mutator{link{admit: func(admission.Attributes) error { return nil }}}},
		Plugin{"MeasuredValidator", validator{link{validate: func(admission.Attributes) error { return denied }}}},
	)
	before := passes(t)
	a := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", "", schema.GroupVersionResource{}, "",
		admission.Connect, nil, false, &user.DefaultInfo{})
	if err := chain.Admit(t.Context(), a, nil); err != nil {
		t.Fatal(err)
	}
	if err := chain.Validate(t.Context(), a, nil); err != denied {
		t.Fatal(err)
	}
	after := passes(t)
	for _, name := range []string{
		"apiserver_admission_step_admission_duration_seconds operation=CONNECT rejected=false type=admit",
		"apiserver_admission_step_admission_duration_seconds operation=CONNECT rejected=true type=validate",
		"apiserver_admission_step_admission_duration_seconds_summary operation=CONNECT rejected=false type=admit",
		"apiserver_admission_controller_admission_duration_seconds name=MeasuredMutator operation=CONNECT rejected=false type=admit",
		"apiserver_admission_controller_admission_duration_seconds name=MeasuredValidator operation=CONNECT rejected=true type=validate",
	} {
		if got := after[name] - before[name]; got != 1 {
			t.Errorf("S10.1 %s was observed %d times, want 1", name, got)
		}
	}
}

// passes returns the number of observations of each admission latency so far.
func passes(t *testing.T) map[string]uint64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]uint64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			found[name] = m.GetHistogram().GetSampleCount() + m.GetSummary().GetSampleCount()
		}
	}
	return found
}
