package lint

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// longTimeout is the longest timeout without a finding: the default of v1.
const longTimeout = 10 * time.Second

var timeoutLong = &Rule{
	ID: "timeout-long", Level: Note, Advice: "small-timeout",
	Title:  "A webhook has a long timeout",
	Why:    "Webhooks answer within milliseconds. While one does not answer, every request that it intercepts waits for its whole timeout.",
	Fix:    "Set timeoutSeconds to a small value, such as 5. The default of v1 is 10, that of v1beta1 30.",
	Fails:  hook(mutating, anyPod+outside+"failurePolicy: Ignore\ntimeoutSeconds: 30\n"),
	Passes: hook(mutating, anyPod+outside+"failurePolicy: Ignore\ntimeoutSeconds: 5\n"),
	check: func(p *pass) {
		p.webhooks(func(e *snapshot.Entry) {
			if e.Timeout > longTimeout {
				p.findsCause(p.rule.Level, at(e.Entry, "timeoutSeconds"), e.Timeout.String(), "the webhook "+e.Name, "the webhook %s may take %v: requests wait that long when it does not answer", e.Name, e.Timeout)
			}
		})
	},
}
