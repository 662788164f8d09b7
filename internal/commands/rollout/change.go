package rollout

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Change changes the enforcement of a registration.
type Change struct {
	Mode registration.Mode
	// Webhook is the only webhook of a configuration that changes; empty for all.
	Webhook string
	// In selects the namespaces in which the registration is already enforced: a share such as 25%,
	// or a label selector.
	In string
}

// ParseMode parses a mode that a user wrote, in any case.
func ParseMode(text string) (registration.Mode, error) {
	i := slices.IndexFunc(registration.Modes, func(m registration.Mode) bool { return strings.EqualFold(string(m), text) })
	if i < 0 {
		return "", fmt.Errorf("%q is not a mode: use Deny, Warn or Audit", text)
	}
	return registration.Modes[i], nil
}

// Patch returns the merge patch of the change for a registration as it was read.
func (c *Change) Patch(u *unstructured.Unstructured) ([]byte, error) {
	value := c.value(u.GetAnnotations()[registration.EnforcementAnnotation])
	annotations := map[string]any{registration.EnforcementAnnotation: value, registration.RolloutAnnotation: nil}
	switch {
	case c.In != "":
		annotations[registration.RolloutAnnotation] = c.In
	case c.Webhook != "":
		// The rollout applies to all webhooks of the configuration.
		delete(annotations, registration.RolloutAnnotation)
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": u.GetResourceVersion(), "annotations": annotations}})
}

// value returns the new value of the annotation: one mode for all webhooks, or the modes of several
// webhooks with the changed one replaced.
func (c *Change) value(old string) string {
	if c.Webhook == "" {
		return string(c.Mode)
	}
	var items []string
	for item := range strings.SplitSeq(old, ",") {
		if item = strings.TrimSpace(item); item != "" && !strings.HasPrefix(item, c.Webhook+"=") {
			items = append(items, item)
		}
	}
	return strings.Join(append(items, c.Webhook+"="+string(c.Mode)), ",")
}

// Describe describes the enforcement that the annotations of a registration set, such as "enforced in 25 % of the
// namespaces, warns in the others".
func Describe(annotations map[string]string) string {
	mode, part := annotations[registration.EnforcementAnnotation], annotations[registration.RolloutAnnotation]
	does := "enforcement " + mode
	switch registration.Mode(mode) {
	case "", registration.ModeDeny:
		return "enforced"
	case registration.ModeWarn:
		does = "warns"
	case registration.ModeAudit:
		does = "audits"
	}
	if share, ok := strings.CutSuffix(part, "%"); ok {
		return "enforced in " + share + " % of the namespaces, " + does + " in the others"
	}
	if part != "" {
		return "enforced in namespaces with " + part + ", " + does + " in the others"
	}
	if strings.HasPrefix(does, "enforcement ") {
		return does
	}
	return does + " only"
}
