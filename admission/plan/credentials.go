package plan

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/internal/kit/credentials"
)

// withoutCredentials removes credentials of the request's objects from the texts of the plan.
// Policies and webhooks may quote the objects, and more users may read a plan than a secret.
func (b *builder) withoutCredentials() {
	var quoting func(string) string
	clean := func(texts ...*string) {
		for _, text := range texts {
			if *text == "" {
				continue
			}
			if quoting == nil {
				quoting = credentials.Quoting(b.request.Resource.GroupResource(), b.request.Subresource, b.encoded()...)
			}
			*text = quoting(*text)
		}
	}
	clean(&b.plan.Rejection, &b.plan.Likely)
	for i := range b.plan.Causes {
		clean(&b.plan.Causes[i])
	}
	for i := range b.plan.Steps {
		s := &b.plan.Steps[i]
		if s.Reason != nil && s.Effect != Skip {
			clean(&s.Reason.Message)
		}
		s.Patch = credentials.Patch(s.Patch)
		for k := range s.Evaluations {
			e := &s.Evaluations[k]
			for n := range e.Validations {
				v := &e.Validations[n]
				clean(&v.Message)
				for m := range v.Values {
					part := &v.Values[m]
					part.Value = credentials.Evaluated(part.Expression, part.Value)
					clean(&part.Value)
				}
			}
			for n := range e.Mutations {
				e.Mutations[n].Patch = credentials.Patch(e.Mutations[n].Patch)
				clean(&e.Mutations[n].Message)
			}
			for key, value := range e.AuditAnnotations {
				clean(&value)
				e.AuditAnnotations[key] = value
			}
		}
		for k := range s.Consequences {
			clean(&s.Consequences[k].Message)
		}
	}
}

// encoded returns the known objects of the request in JSON.
func (b *builder) encoded() (list [][]byte) {
	object, old, err := b.input.Objects.Seen(b.request.Kind)
	if err != nil {
		return nil
	}
	for _, one := range []runtime.Object{object, old} {
		if data, err := json.Marshal(one); err == nil {
			list = append(list, data)
		}
	}
	return list
}
