package trace

import (
	"context"
	"strconv"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/klog/v2"
)

// maxExcluded bounds the number of entries of each rule in a record or an annotation.
const maxExcluded = 100

// excludedAnnotation is the effect of one rule.
type excludedAnnotation struct {
	Rule    string   `json:"rule"`
	Effect  string   `json:"effect"`
	Entries []string `json:"entries"`
	More    int      `json:"more,omitempty"`
}

// publishExclusions counts and annotates the effects of exclusion rules (S23.9).
func (p *Publisher) publishExclusions(ctx context.Context, a admission.Attributes, t *Run) {
	if len(t.Exclusions) == 0 {
		return
	}
	plugin := t.Source.Descriptor().Plugin
	list := make([]excludedAnnotation, len(t.Exclusions))
	for i := range t.Exclusions {
		x := &t.Exclusions[i]
		excluded().WithLabelValues(plugin, x.Rule, x.Effect).Add(float64(len(x.Entries)))
		list[i] = excludedAnnotation{Rule: x.Rule, Effect: x.Effect, Entries: []string{}}
		for k := range x.Entries[:min(len(x.Entries), maxExcluded)] {
			list[i].Entries = append(list[i].Entries, x.Entries[k].String())
		}
		list[i].More = len(x.Entries) - len(list[i].Entries)
	}
	key := ExclusionAnnotationPrefix + plugin
	if t.Round > 0 {
		key += "_round_" + strconv.Itoa(t.Round)
	}
	if err := a.AddAnnotationWithLevel(key, encode(list), audit.LevelMetadata); err != nil {
		klog.FromContext(ctx).Error(err, "Audit annotation of exclusion rules was dropped", "key", key)
	}
}

var excluded = ownCounter("admission_exclusions_total",
	"What exclusion rules of the server did to webhooks, external hooks, policies and initializers, by admission plugin, rule and effect: skip, ignoreFailures or capTimeout.",
	"plugin", "rule", "effect")
