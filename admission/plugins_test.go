package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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
