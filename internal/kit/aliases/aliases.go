package aliases

import (
	"bytes"
	"fmt"

	yamlv2 "go.yaml.in/yaml/v2"
)

// TooLarge is the error for a text that expands to more than Most bytes.
type TooLarge struct{ Most int64 }

func (e TooLarge) Error() string {
	return fmt.Sprintf("has more than %d MiB after its aliases are expanded", e.Most>>20)
}

// Check returns TooLarge if the first document of a text has more than most bytes after each alias is replaced by
// its value. A text without aliases passes: its reader bounds its length. An invalid text passes as well: its
// parser returns the error.
func Check(text []byte, most int64) error {
	if bytes.IndexByte(text, '&') < 0 || bytes.IndexByte(text, '*') < 0 {
		return nil
	}
	// sigs.k8s.io/yaml decodes in the same way. Until it writes JSON, aliases of one value share its memory.
	var value any
	if yamlv2.Unmarshal(text, &value) != nil {
		return nil
	}
	if left := most; !fits(value, &left) {
		return TooLarge{most}
	}
	return nil
}

// fits subtracts the size of a value from left, and reports whether left is still at least 0.
func fits(value any, left *int64) bool {
	// A separator, and a pair of brackets or quotation marks.
	*left -= 3
	switch v := value.(type) {
	case string:
		*left -= int64(len(v))
	case []any:
		for _, element := range v {
			if !fits(element, left) {
				return false
			}
		}
	case map[any]any:
		for key, member := range v {
			if !fits(key, left) || !fits(member, left) {
				return false
			}
		}
	}
	return *left >= 0
}
