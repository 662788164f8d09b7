package review

import "errors"

const (
	// maxCopied bounds what the copy operations of a patch may copy, in bytes of
	// memory, about: copying an object into itself doubles it, and a few dozen
	// operations would fill any memory.
	maxCopied = 64 << 20
	// maxDepth bounds how deep objects may be nested. It is that of the decoder of
	// JSON: a deeper object could be stored, and never be read again.
	maxDepth = 10_000
)

var (
	errCopied = errors.New("the patch copies more than 64 MiB")
	errDeep   = errors.New("the patch nests the object more than 10000 levels deep")
)

// allowance is how many bytes may still be copied.
type allowance int

// duplicate returns a plain deep copy of v, or errCopied.
func (left *allowance) duplicate(v any) (any, error) {
	const value, container = 16, 48
	*left -= value
	if s, ok := v.(string); ok {
		*left -= allowance(len(s))
	}
	if *left < 0 {
		return nil, errCopied
	}
	var err error
	if m, ok := asMap(v); ok && m != nil {
		*left -= container
		c := make(map[string]any, len(m))
		for k, e := range m {
			*left -= allowance(value + len(k))
			if c[k], err = left.duplicate(e); err != nil {
				return nil, err
			}
		}
		return c, nil
	}
	if l, ok := asList(v); ok && l != nil {
		*left -= container
		c := make([]any, len(l))
		for i, e := range l {
			if c[i], err = left.duplicate(e); err != nil {
				return nil, err
			}
		}
		return c, nil
	}
	return v, nil
}

// tooDeep reports whether v has more than so many levels.
func tooDeep(v any, levels int) bool {
	if m, ok := asMap(v); ok {
		for _, e := range m {
			if levels == 0 || tooDeep(e, levels-1) {
				return true
			}
		}
	} else if l, ok := asList(v); ok {
		for _, e := range l {
			if levels == 0 || tooDeep(e, levels-1) {
				return true
			}
		}
	}
	return false
}
