package trace

import (
	"errors"
	"unsafe"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// The size of a value, with an estimate for allocation overhead, spare capacity, and the strings
// that only the value holds.
const (
	sizeOfTrace  = int(unsafe.Sizeof(Trace{})) + 512
	sizeOfStep   = int(unsafe.Sizeof(Step{})) * 2
	sizeOfRun    = int(unsafe.Sizeof(Run{})) + 128
	sizeOfCall   = int(unsafe.Sizeof(Call{})) * 3 / 2
	sizeOfString = 32
	// sizeOfError estimates an error with its causes.
	sizeOfError = 1 << 10
)

// Size estimates the memory, in bytes, that the trace keeps from being freed. Names that belong to
// webhook configurations and policies are not counted, because the snapshot keeps them anyway.
func (t *Trace) Size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	about := &t.mu.about
	size := sizeOfTrace + len(about.Name) + len(about.UID) + len(about.User) + len(about.Namespace) + t.Audit.size()
	if r := t.mu.response; r != nil {
		size += int(unsafe.Sizeof(*r)) + len(r.Reason) + len(r.Message)
	}
	for i := range t.mu.steps {
		s := &t.mu.steps[i]
		size += sizeOfStep + sizeOf(s.Err)
		if s.Change != nil {
			size += s.Change.Size()
		}
		if r := s.Run; r != nil {
			size += sizeOfRun + sizeOfCalls(r.Calls) + sizeOfCalls(r.Discarded)
			size += len(r.Conditions)*int(unsafe.Sizeof(Condition{})) + (len(r.Pending)+len(r.Initializing))*sizeOfString + len(r.Written) + review.Size(r.Edits)
			for i := range r.Judgements {
				size += r.Judgements[i].size()
			}
			for i := range r.Conditions {
				size += sizeOf(r.Conditions[i].Err)
			}
			for i := range r.Skips {
				size += int(unsafe.Sizeof(Skip{})) + len(r.Skips[i].Reason)
			}
		}
	}
	return size
}

func sizeOfCalls(calls []Call) int {
	size := 0
	for i := range calls {
		c := &calls[i]
		size += sizeOfCall + len(c.UID) + len(c.Patch) + len(c.WouldPatch) + review.Size(c.Edits) + len(c.Stack) + sizeOf(c.Err)
		for _, w := range c.Warnings {
			size += sizeOfString + len(w)
		}
		for key, value := range c.AuditAnnotations {
			size += 2*sizeOfString + len(key) + len(value)
		}
	}
	return size
}

func sizeOf(err error) int {
	if err == nil {
		return 0
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return sizeOfError + len(status.Status().Message)
	}
	return sizeOfError + len(err.Error())
}

// size estimates the memory use of a judgement in bytes. The texts of expressions belong to the
// policy and are not counted.
func (j *Judgement) size() int {
	size := int(unsafe.Sizeof(*j))
	for i := range j.Evaluations {
		e := &j.Evaluations[i]
		size += int(unsafe.Sizeof(*e)) + len(e.Bindings)*int(unsafe.Sizeof("")) + sizeOfString
		for k := range e.Validations {
			v := &e.Validations[k]
			size += int(unsafe.Sizeof(*v)) + len(v.Message) + len(v.Because) + sizeOf(v.Err)
			for n := range v.Values {
				size += int(unsafe.Sizeof(v.Values[n])) + 2*sizeOfString + len(v.Values[n].Expression) + len(v.Values[n].Value)
			}
		}
		for k := range e.Mutations {
			m := &e.Mutations[k]
			size += int(unsafe.Sizeof(*m)) + len(m.Patch) + len(m.WouldPatch) + review.Size(m.Edits) + sizeOf(m.Err)
		}
		for k := range e.Annotations {
			size += int(unsafe.Sizeof(e.Annotations[k])) + len(e.Annotations[k].Value) + sizeOf(e.Annotations[k].Err)
		}
	}
	for i := range j.Consequences {
		size += int(unsafe.Sizeof(j.Consequences[i])) + sizeOfString
	}
	return size
}
