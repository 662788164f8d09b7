package plugins

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// spy is a plugin that reports the attributes that it gets.
type spy struct {
	*apiadmission.Handler
	saw []string
}

func (s *spy) note(a apiadmission.Attributes) error {
	s.saw = append(s.saw, fmt.Sprintf("%s %s", a.GetResource(), a.GetKind()))
	return nil
}

func (s *spy) Admit(_ context.Context, a apiadmission.Attributes, _ apiadmission.ObjectInterfaces) error {
	return s.note(a)
}

func (s *spy) Validate(_ context.Context, a apiadmission.Attributes, _ apiadmission.ObjectInterfaces) error {
	return s.note(a)
}

// S9.19: every plugin gets the resource and the kind of the stored object: in Admit and Validate,
// in Predict, and in Concerns.
func TestEveryPluginSeesWhatIsStored(t *testing.T) {
	old, now := schema.GroupVersionResource{Group: "extensions", Version: "v1beta1", Resource: "deployments"}, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	stored := map[schema.GroupVersionResource]schema.GroupVersionResource{old: now}
	for _, row := range All() {
		for _, tt := range []struct {
			name        string
			resource    schema.GroupVersionResource
			subresource string
			kind, sees  schema.GroupVersionKind
		}{
			{"the resource", old, "", old.GroupVersion().WithKind("Deployment"), now.GroupVersion().WithKind("Deployment")},
			{"its status", old, "status", old.GroupVersion().WithKind("Deployment"), now.GroupVersion().WithKind("Deployment")},
			{"its scale", old, "scale", old.GroupVersion().WithKind("Scale"), schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}},
			{"a rollback, which only old versions have", old, "rollback", old.GroupVersion().WithKind("DeploymentRollback"), old.GroupVersion().WithKind("DeploymentRollback")},
			{"a resource of one name", now, "", now.GroupVersion().WithKind("Deployment"), now.GroupVersion().WithKind("Deployment")},
		} {
			t.Run(row.Name+", "+tt.name, func(t *testing.T) {
				for _, dryRun := range []bool{false, true} {
					inner := &spy{Handler: apiadmission.NewHandler(apiadmission.Create)}
					p := wrap(row, inner, inner, stored)
					a := apiadmission.NewAttributesRecord(nil, nil, tt.kind, "ns", "n", tt.resource, tt.subresource, apiadmission.Create, nil, dryRun, nil)
					ctx, want := t.Context(), 2
					if err := p.(apiadmission.MutationInterface).Admit(ctx, a, nil); err != nil {
						t.Fatal(err)
					}
					if err := p.(apiadmission.ValidationInterface).Validate(ctx, a, nil); err != nil {
						t.Fatal(err)
					}
					switch err := p.(admission.Predictor).Predict(ctx, registration.ValidatingPass, a, nil); {
					case err == nil:
						want++
					case !errors.Is(err, admission.ErrNotPredicted):
						t.Fatal(err)
					}
					if len(inner.saw) != want {
						t.Errorf("the plugin was asked %d times, want %d", len(inner.saw), want)
					}
					for _, saw := range inner.saw {
						if wanted := fmt.Sprintf("%s %s", now, tt.sees); saw != wanted {
							t.Errorf("the plugin saw %s, want %s", saw, wanted)
						}
					}
					if tt.subresource != "rollback" {
						was := apiadmission.NewAttributesRecord(nil, nil, tt.sees, "ns", "n", now, tt.subresource, apiadmission.Create, nil, dryRun, nil)
						if have, want := p.(admission.Described).Concerns(a), p.(admission.Described).Concerns(was); have != want {
							t.Errorf("concerns the plugin: %v, want %v", have, want)
						}
					}
				}
			})
		}
	}
}
