package trace

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/apis/audit"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// The keys of audit annotations are one of these, followed by
// "round_<round>_index_<index>".
const (
	// MutationAnnotationPrefix begins the keys for the mutating webhooks that ran. The value
	// reports whether the webhook changed the object (S5.25).
	MutationAnnotationPrefix = "mutation.webhook.admission.k8s.io/"
	// PatchAnnotationPrefix begins the keys for the patches, at level Request (S5.26).
	PatchAnnotationPrefix = "patch.webhook.admission.k8s.io/"
	// FailedOpenMutationPrefix begins the keys for mutating webhooks that failed and were ignored
	// (S5.27).
	FailedOpenMutationPrefix = "failed-open.mutation.webhook.admission.k8s.io/"
	// FailedOpenValidatingPrefix begins the keys for validating webhooks that failed and were
	// ignored (S6.7).
	FailedOpenValidatingPrefix = "failed-open.validating.webhook.admission.k8s.io/"
	// FailedOpenExternalPrefix begins the keys for external admission hooks that failed and were
	// ignored (S12.18).
	FailedOpenExternalPrefix = "failed-open.external.webhook.admission.k8s.io/"
	// DiscardedPrefix begins the keys for mutating webhooks that got a review ahead of their turn
	// and whose answer was not used. The value is the fate of the answer.
	DiscardedPrefix = "discarded.webhook.gatehouse.dev/"
	// SparedPrefix begins the keys for rejections and changes by webhooks and policies that are not
	// enforced (S28.8). The name of the plugin comes before the round.
	SparedPrefix = "enforcement.gatehouse.dev/"
	// ExclusionAnnotationPrefix begins the keys for the effects of exclusion rules. The rest is the
	// name of the plugin, and "_round_1" in the second mutating pass.
	ExclusionAnnotationPrefix = "exclusions.gatehouse.dev/"
)

// failedOpen are the prefixes for entries that failed and were ignored, by source.
var failedOpen = [...]string{
	registration.Mutating:   FailedOpenMutationPrefix,
	registration.Validating: FailedOpenValidatingPrefix,
	registration.External:   FailedOpenExternalPrefix,
}

// maxLoggedKey bounds, in bytes, the part of a dropped key that is logged.
const maxLoggedKey = 2 << 10

type mutationAnnotation struct {
	Configuration string `json:"configuration"`
	Webhook       string `json:"webhook"`
	Mutated       bool   `json:"mutated"`
}

type patchAnnotation struct {
	Configuration string          `json:"configuration"`
	Webhook       string          `json:"webhook"`
	Patch         json.RawMessage `json:"patch"`
	PatchType     string          `json:"patchType"`
}

// annotate adds the run to the audit event of the request. The index of a mutating webhook counts
// all mutating webhooks; the index of another webhook counts only the webhooks that matched the
// request (S5.25, S6.7).
func (p *Publisher) annotate(ctx context.Context, a admission.Attributes, t *Run) {
	mutating := t.Source.Descriptor().Pass == registration.MutatingPass
	for i := range t.Calls {
		c := &t.Calls[i]
		if c.sparedBefore() {
			continue
		}
		h := &c.Entry
		for _, key := range slices.Sorted(maps.Keys(c.AuditAnnotations)) {
			p.add(ctx, a, h, h.Name+"/"+key, c.AuditAnnotations[key], audit.LevelMetadata)
		}
		index := c.Matched
		if mutating {
			index = c.Position
		}
		suffix := "round_" + strconv.Itoa(t.Round) + "_index_" + strconv.Itoa(index)
		if mutating {
			p.add(ctx, a, h, MutationAnnotationPrefix+suffix,
				encode(mutationAnnotation{h.Configuration, h.Name, c.Mutated}), audit.LevelMetadata)
			if len(c.Patch) > 0 {
				p.add(ctx, a, h, PatchAnnotationPrefix+suffix,
					encode(patchAnnotation{h.Configuration, h.Name, c.Patch, "JSONPatch"}), audit.LevelRequest)
			}
		}
		if c.Ignored && !c.ClientGone {
			p.add(ctx, a, h, failedOpen[t.Source]+suffix, h.Name, audit.LevelMetadata)
		}
	}
	p.annotateDiscarded(ctx, a, t)
	for _, calls := range [][]Call{t.Calls, t.Discarded} {
		for i := range calls {
			noteDeprecations(ctx, &calls[i])
		}
	}
}

// annotateDiscarded names the webhooks whose answers were discarded, with one annotation for each
// webhook.
func (p *Publisher) annotateDiscarded(ctx context.Context, a admission.Attributes, t *Run) {
	if len(t.Discarded) == 0 {
		return
	}
	fates := map[int][]string{}
	for i := range t.Discarded {
		if c := &t.Discarded[i]; c.Sent {
			fates[c.Position] = append(fates[c.Position], c.Fate.String())
		}
	}
	for i := range t.Discarded {
		c := &t.Discarded[i]
		if list := fates[c.Position]; list != nil {
			delete(fates, c.Position)
			key := DiscardedPrefix + "round_" + strconv.Itoa(t.Round) + "_index_" + strconv.Itoa(c.Position)
			p.add(ctx, a, &c.Entry, key, c.Entry.Name+": "+strings.Join(list, ", "), audit.LevelMetadata)
		}
	}
}

// add adds an annotation to the audit event. It logs an annotation that the event refuses, because
// the key is not a qualified name or already has another value (S4.17). The value comes from the
// webhook and is not logged.
func (p *Publisher) add(ctx context.Context, a admission.Attributes, h *registration.Origin, key, value string, level audit.Level) {
	if err := a.AddAnnotationWithLevel(key, value, level); err != nil {
		p.complaints.log(ctx, h, nil, "Dropped an audit annotation", "key", key[:min(len(key), maxLoggedKey)])
	}
}

func encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("audit annotation cannot be encoded: %v", err))
	}
	return string(data)
}
