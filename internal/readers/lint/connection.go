package lint

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Webhook returns the connection settings of a webhook in a plan. service is nil for a webhook
// without a service. ok is false for an entry that is not a webhook, or that is not in the Input.
func (w *Input) Webhook(e *plan.Entry) (c *registration.ClientConfig, at Address, service *types.NamespacedName, ok bool) {
	for _, source := range hooks {
		if source.String() != e.Kind {
			continue
		}
		for _, one := range w.Snapshot.Entries(source) {
			if one.Configuration != e.Configuration || one.Index != e.Index || one.Name != e.Name {
				continue
			}
			if name, inside := namedService(&one.ClientConfig); inside {
				service = &name
			}
			return &one.ClientConfig, addressOf(&one.ClientConfig), service, true
		}
	}
	return nil, Address{}, nil, false
}

// Verdict describes the connection to a webhook in a sentence.
func (s *Served) Verdict(c *registration.ClientConfig, now time.Time) string {
	if s.Err != nil {
		return "it could not be reached from here: " + s.Err.Error()
	}
	if len(s.Chain) == 0 {
		return "reached from here: it presents no certificate, so that each call fails"
	}
	until, whose, trusted := s.Chain[0].NotAfter, "the certificate", "is trusted by the system's roots"
	if len(c.CABundle) > 0 {
		list, err := bundle(c.CABundle)
		if err != nil {
			return fmt.Sprintf("reached from here: each call fails, since its caBundle cannot be used: %v", err)
		}
		if _, to := valid(list, now); to.Before(until) {
			until, whose = to, "the caBundle"
		}
		trusted = "fits its caBundle"
	}
	if err := trust(c, s.Chain, now); err != nil {
		return fmt.Sprintf("reached from here: each call fails, since the API server does not trust its certificate: %v", err)
	}
	text := fmt.Sprintf("reached from here: its certificate %s; %s expires at %s", trusted, whose, until.UTC().Format(time.RFC3339))
	if left := until.Sub(now); left < soon {
		text += fmt.Sprintf(", in %d days", int(left.Hours()/24))
	}
	return text
}
