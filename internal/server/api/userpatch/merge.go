package userpatch

import (
	"context"
	"errors"
	"strings"
)

// These are the errors of upstream.
var (
	//lint:ignore ST1005 The text of upstream, capital letter included.
	errBadObject = errors.New("Invalid JSON Document")
	//lint:ignore ST1005 The text of upstream, capital letter included.
	errBadPatch = errors.New("Invalid JSON Patch")
)

// merge returns an object with a JSON merge patch (RFC 7386) applied, as the MergePatch of upstream does. Upstream
// departs from RFC 7386 for null members inside of arrays.
func merge(ctx context.Context, object, patch []byte) ([]byte, error) {
	doc, with := newText(object).root(), newText(patch).root()
	if doc.first() != '{' {
		return nil, errBadObject
	}
	m := &merger{ctx: ctx, out: make([]byte, 0, len(object)+len(patch))}
	var err error
	switch with.first() {
	case '{':
		err = m.merge(doc, with)
	case '[':
		err = m.prune(with)
	default:
		return nil, errBadPatch
	}
	return m.out, err
}

// lookEvery is the number of bytes of output between two checks of the context.
const lookEvery = 64 << 10

// merger writes the result of a merge patch.
type merger struct {
	ctx context.Context
	out []byte
	// looked is the length of out at the last check of the context.
	looked int
}

// look returns the error of the context if it is time to check it.
func (m *merger) look() error {
	if len(m.out)-m.looked < lookEvery {
		return nil
	}
	m.looked = len(m.out)
	return m.ctx.Err()
}

// merge writes a value with a patch applied. Neither is null.
func (m *merger) merge(doc, patch value) error {
	if doc.first() != '{' {
		return m.prune(patch)
	}
	if patch.first() != '{' {
		// Upstream keeps null members inside of it.
		return m.raw(patch)
	}
	return m.object(doc.members(), patch.members())
}

// object writes the members of an object and of a patch for it.
func (m *merger) object(doc, patch []member) error {
	m.out = append(m.out, '{')
	begun := false
	for len(doc) > 0 || len(patch) > 0 {
		order := -1
		if len(doc) == 0 {
			order = 1
		} else if len(patch) > 0 {
			order = strings.Compare(doc[0].key, patch[0].key)
		}
		if order >= 0 && patch[0].value.isNull() {
			if patch = patch[1:]; order == 0 {
				doc = doc[1:]
			}
			continue
		}
		if begun {
			m.out = append(m.out, ',')
		}
		begun = true
		var err error
		switch {
		case order < 0:
			m.out = appendKey(m.out, doc[0].key)
			err, doc = m.raw(doc[0].value), doc[1:]
		case order > 0 || doc[0].value.isNull():
			m.out = appendKey(m.out, patch[0].key)
			if err, patch = m.prune(patch[0].value), patch[1:]; order == 0 {
				doc = doc[1:]
			}
		default:
			m.out = appendKey(m.out, doc[0].key)
			err, doc, patch = m.merge(doc[0].value, patch[0].value), doc[1:], patch[1:]
		}
		if err != nil {
			return err
		}
	}
	m.out = append(m.out, '}')
	return m.look()
}

// prune writes a value without the null members of its objects.
func (m *merger) prune(v value) error {
	switch v.first() {
	case '{':
		return m.object(nil, v.members())
	case '[':
		m.out = append(m.out, '[')
		begun := false
		err := v.elements(func(element value) error {
			if begun {
				m.out = append(m.out, ',')
			}
			begun = true
			return m.prune(element)
		})
		m.out = append(m.out, ']')
		return err
	}
	return m.raw(v)
}

// raw writes a value unchanged.
func (m *merger) raw(v value) error {
	m.out, _ = appendRaw(m.out, v.raw())
	return m.look()
}
