package aliases

import (
	"bytes"
	"fmt"

	yamlv2 "go.yaml.in/yaml/v2"
)

// TooLarge is the error for a text that stands for more than Most bytes.
type TooLarge struct{ Most int64 }

func (e TooLarge) Error() string {
	return fmt.Sprintf("has more than %d MiB, with what its aliases stand for", e.Most>>20)
}

// Check returns TooLarge if the first document of a text is larger than most bytes when each alias is replaced by
// what it stands for. A text without aliases passes: its reader bounds its length. So does one that cannot be
// read: the library that reads it says why.
func Check(text []byte, most int64) error {
	if bytes.IndexByte(text, '&') < 0 || bytes.IndexByte(text, '*') < 0 {
		return nil
	}
	// The library that makes JSON of YAML decodes in the same way. Aliases of one text share it until then.
	var value any
	if yamlv2.Unmarshal(text, &value) != nil {
		return nil
	}
	if left := most; !fits(value, &left) {
		return TooLarge{most}
	}
	return nil
}

// fits takes the size of a value from what is left, and reports whether that was enough.
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
