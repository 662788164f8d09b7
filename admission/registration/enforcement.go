package registration

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The annotations that weaken the enforcement of a webhook configuration, an admission policy or a
// binding (S28). A kube-apiserver ignores them.
const (
	// EnforcementAnnotation has a Mode, or a comma-separated list of WEBHOOK=Mode for single
	// webhooks (S28.1).
	EnforcementAnnotation = "gatehouse.dev/enforcement"
	// RolloutAnnotation selects the namespaces in which an entry with mode Warn or Audit is already
	// enforced: a share of them, such as 25%, or a selector for their labels (S28.3).
	RolloutAnnotation = "gatehouse.dev/rollout"
)

// Mode is the effect of an entry on a request that it would reject or change (S28.2).
type Mode string

// The modes. The zero Mode is ModeDeny.
const (
	// ModeDeny rejects and changes requests, as a kube-apiserver does.
	ModeDeny Mode = "Deny"
	// ModeWarn allows the request unchanged, as if the entry did not exist. The client gets a
	// warning instead of a rejection.
	ModeWarn Mode = "Warn"
	// ModeAudit allows the request unchanged, too. The rejection appears only in traces, audit
	// events and metrics.
	ModeAudit Mode = "Audit"
)

// Modes are the modes, the strictest first.
var Modes = []Mode{ModeDeny, ModeWarn, ModeAudit}

// Soft reports whether the entry has no effect on requests.
func (m Mode) Soft() bool { return m == ModeWarn || m == ModeAudit }

// Softens reports whether the value of an EnforcementAnnotation contains a mode other than Deny.
func Softens(value string) bool {
	return strings.Contains(value, string(ModeWarn)) || strings.Contains(value, string(ModeAudit))
}

// Enforcement is the enforcement of an entry in the annotations of its object.
type Enforcement struct {
	// Mode is ModeDeny only if set explicitly. A binding can set Deny to override its policy.
	Mode Mode
	// Rollout selects the namespaces in which the entry is already enforced; nil means none.
	Rollout *Rollout
}

// Rollout selects namespaces: a share of them, or by labels.
type Rollout struct {
	// Selector matches the labels of namespaces; nil for a share.
	Selector labels.Selector
	// percent is the share. A namespace belongs to it depending on the hash of its name and salt.
	percent uint64
	salt    string
}

// Percent returns the share, from 0 to 100; 0 with a Selector.
func (r *Rollout) Percent() int { return int(r.percent) }

// Share reports whether a namespace belongs to the share. The result depends only on the name, and
// a namespace of a share belongs to each larger share (S28.3). The empty name belongs only to a
// share of 100 %.
func (r *Rollout) Share(namespace string) bool {
	if namespace == "" || r.percent >= 100 {
		return r.percent >= 100
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(r.salt + "/" + namespace))
	// spread separates names that differ only in their last letter.
	return spread(h.Sum64())%100 < r.percent
}

// spread mixes the bits of a hash.
func spread(x uint64) uint64 {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], x)
	h := fnv.New64a()
	_, _ = h.Write(b[:])
	x = h.Sum64()
	return x ^ x>>32
}

// enforcementOf returns the enforcement of the entry with a name from the annotations of an object;
// nil if there is none. An annotation that cannot be parsed counts as absent, so that a typing
// error cannot turn off the enforcement.
func enforcementOf(meta *metav1.ObjectMeta, name string) *Enforcement {
	value, ok := meta.Annotations[EnforcementAnnotation]
	if !ok {
		return nil
	}
	mode, own := Mode(""), Mode("")
	for item := range strings.SplitSeq(value, ",") {
		of, text, single := strings.Cut(strings.TrimSpace(item), "=")
		if !single {
			mode = Mode(of)
		} else if of == name {
			own = Mode(text)
		}
	}
	if own != "" {
		mode = own
	}
	switch {
	case mode == ModeDeny:
		return &Enforcement{Mode: ModeDeny}
	case !mode.Soft():
		return nil
	}
	e := &Enforcement{Mode: mode}
	if text, ok := meta.Annotations[RolloutAnnotation]; ok {
		rollout, err := parseRollout(text, meta.Name)
		if err != nil {
			return nil
		}
		e.Rollout = rollout
	}
	return e
}

func parseRollout(text, salt string) (*Rollout, error) {
	text = strings.TrimSpace(text)
	if digits, ok := strings.CutSuffix(text, "%"); ok {
		n, err := strconv.Atoi(strings.TrimSpace(digits))
		if err != nil || n < 0 || n > 100 {
			return nil, fmt.Errorf("must be a whole number from 0%% to 100%%")
		}
		return &Rollout{percent: uint64(n), salt: salt}, nil
	}
	if text == "" {
		return nil, fmt.Errorf("must be a share such as 25%%, or a selector of the labels of namespaces such as stage=test")
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("must be a share such as 25%%, or a selector of the labels of namespaces such as stage=test: %w", err)
	}
	return &Rollout{Selector: selector}, nil
}

// ValidateEnforcement returns the errors in the enforcement annotations of an object (S28.4). names
// are the names of its webhooks; nil for an object that is one entry. Stored annotations are
// accepted; old is nil for a new object.
func ValidateEnforcement(obj, old metav1.Object, names []string) field.ErrorList {
	var errs field.ErrorList
	annotations := obj.GetAnnotations()
	same := func(annotation string) bool {
		return old != nil && old.GetAnnotations()[annotation] == annotations[annotation]
	}
	at := field.NewPath("metadata", "annotations")
	value, soft := annotations[EnforcementAnnotation]
	if soft && !same(EnforcementAnnotation) {
		errs = append(errs, validateModes(value, names, at.Key(EnforcementAnnotation))...)
	}
	text, rolled := annotations[RolloutAnnotation]
	if !rolled || same(RolloutAnnotation) && same(EnforcementAnnotation) {
		return errs
	}
	path := at.Key(RolloutAnnotation)
	if !soft {
		errs = append(errs, field.Invalid(path, text, "has a meaning only with the annotation "+EnforcementAnnotation+": add Warn or Audit there, or remove this one"))
	}
	if _, err := parseRollout(text, ""); err != nil {
		errs = append(errs, field.Invalid(path, text, err.Error()))
	}
	return errs
}

func validateModes(value string, names []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for item := range strings.SplitSeq(value, ",") {
		of, text, single := strings.Cut(strings.TrimSpace(item), "=")
		if !single {
			of, text = "", of
		}
		switch {
		case !slices.Contains(Modes, Mode(text)):
			errs = append(errs, field.NotSupported(path, text, Modes))
		case single && names == nil:
			errs = append(errs, field.Invalid(path, value, "must be one mode: this kind has no webhooks to name"))
		case single && !slices.Contains(names, of):
			errs = append(errs, field.Invalid(path, value, fmt.Sprintf("names %q, and this object has no such webhook", of)))
		case seen[of]:
			errs = append(errs, field.Invalid(path, value, "must have one mode for all webhooks and one for each that it names"))
		}
		seen[of] = true
	}
	return errs
}
