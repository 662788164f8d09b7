package dispatch

import (
	"sync"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
)

const (
	// unknownHabit is the initial estimate of the probability that a webhook changes the object.
	// habitWeight is the weight of each observation. After about twenty-five calls without a change
	// a webhook is quiet.
	unknownHabit = 0.5
	habitWeight  = 1.0 / 16
	// quietEnough is the required probability that the object does not change before a webhook's
	// turn, so that the webhook is called ahead.
	quietEnough = 0.9
	// wasteAllowed is the part of all calls that may be discarded. maxCredit bounds the accumulated
	// credit, and so also the number of concurrent calls ahead of turn: the calls of 25 requests
	// with ten such webhooks.
	wasteAllowed = 0.1
	maxCredit    = 256
	// maxHabits bounds the number of estimates; beyond it, learning starts over.
	maxHabits = 8192
)

// forecast learns which webhooks usually leave objects unchanged, and keeps the discarded calls
// ahead of turn below one in ten: a discarded call costs one credit, and every call earns a tenth
// of a credit. It is safe for concurrent use.
type forecast struct {
	mu struct {
		sync.Mutex
		// habits are the estimated probabilities that a webhook disturbs later webhooks, because it
		// changes the object or rejects the request.
		habits map[habit]float64
		credit float64
	}
}

// habit is the key of an estimate: one webhook and one kind of request.
type habit struct {
	hook                  identity
	operation             string
	group, resource, part string
}

func (r *run) habit(step *plan.Candidate) habit {
	return habit{
		hook:      identityOf(&step.Entry.Origin),
		operation: string(r.request.Operation),
		group:     r.request.Resource.Group,
		resource:  r.request.Resource.Resource,
		part:      r.request.Subresource,
	}
}

// quiet returns the probability that the webhook does not change the object.
func (f *forecast) quiet(h habit) float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p, ok := f.mu.habits[h]; ok {
		return 1 - p
	}
	return 1 - unknownHabit
}

// observe learns from a call and adds its credit.
func (f *forecast) observe(h habit, disturbed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.mu.habits[h]
	if !ok {
		p = unknownHabit
		if f.mu.habits == nil || len(f.mu.habits) >= maxHabits {
			f.mu.habits = map[habit]float64{}
		}
	}
	now := 0.0
	if disturbed {
		now = 1
	}
	f.mu.habits[h] = p + (now-p)*habitWeight
	f.mu.credit = min(f.mu.credit+wasteAllowed, maxCredit)
}

// take pays for a call ahead of turn, if there is credit.
func (f *forecast) take() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.credit < 1 {
		return false
	}
	f.mu.credit--
	return true
}

// giveBack returns the credit of a call ahead of turn that was not discarded.
func (f *forecast) giveBack() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.credit = min(f.mu.credit+1, maxCredit)
}
