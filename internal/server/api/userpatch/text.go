package userpatch

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// text is a valid JSON text with the positions of its brackets, so that nested values can be skipped
// without another scan.
type text struct {
	data     []byte
	brackets []bracket
}

// bracket is an object or array of a text.
type bracket struct {
	// end is the offset behind the closing bracket. after is the number of the first bracket behind that.
	end, after int32
}

// newText scans a valid JSON text.
func newText(data []byte) *text {
	t := &text{data: data}
	var open []int32
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i = endOfString(data, i) - 1
		case '{', '[':
			open = append(open, int32(len(t.brackets)))
			t.brackets = append(t.brackets, bracket{})
		case '}', ']':
			b := &t.brackets[open[len(open)-1]]
			open = open[:len(open)-1]
			b.end, b.after = int32(i+1), int32(len(t.brackets))
		}
	}
	return t
}

// root returns the value of the whole text.
func (t *text) root() value {
	c := cursor{text: t}
	return c.value()
}

// endOfString returns the offset behind the string that begins at an offset.
func endOfString(data []byte, start int) int {
	for i := start + 1; ; i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

// value is a part of a text. The zero value has no text.
type value struct {
	text *text
	// bracket is the number of the bracket with which the value begins, or of the first bracket behind
	// it.
	start, end, bracket int32
}

func (v value) raw() []byte { return v.text.data[v.start:v.end] }

// first is the first byte of the value, which determines its type.
func (v value) first() byte { return v.text.data[v.start] }

func (v value) isNull() bool { return v.first() == 'n' }

// cursor scans a text.
type cursor struct {
	text *text
	at   int
	// bracket is the number of the next bracket.
	bracket int32
}

// inside returns a cursor behind the opening bracket of a value.
func (v value) inside() cursor { return cursor{v.text, int(v.start) + 1, v.bracket + 1} }

// next returns the next byte that is not white space.
func (c *cursor) next() byte {
	for {
		switch b := c.text.data[c.at]; b {
		case ' ', '\t', '\r', '\n':
			c.at++
		default:
			return b
		}
	}
}

// value moves behind the next value, and returns it.
func (c *cursor) value() value {
	first := c.next()
	v := value{text: c.text, start: int32(c.at), bracket: c.bracket}
	data := c.text.data
	switch first {
	case '{', '[':
		b := c.text.brackets[c.bracket]
		c.at, c.bracket = int(b.end), b.after
	case '"':
		c.at = endOfString(data, c.at)
	default:
		for c.at++; c.at < len(data) && !ends(data[c.at]); c.at++ {
		}
	}
	v.end = int32(c.at)
	return v
}

// ends reports whether a byte ends a number, a boolean or null.
func ends(b byte) bool {
	switch b {
	case ',', ']', '}', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}

// skip moves behind the next byte, a comma or a colon.
func (c *cursor) skip() {
	c.next()
	c.at++
}

// elements calls a function for each element of an array, until it returns an error.
func (v value) elements(each func(value) error) error {
	c := v.inside()
	for c.next() != ']' {
		if err := each(c.value()); err != nil {
			return err
		}
		if c.next() == ',' {
			c.skip()
		}
	}
	return nil
}

// member is a member of an object.
type member struct {
	key   string
	value value
}

// eachMember calls a function for each member of an object, in the order of the text.
func (v value) eachMember(each func(member)) {
	c := v.inside()
	for c.next() != '}' {
		key := c.value()
		c.skip()
		each(member{decodeString(key.raw()), c.value()})
		if c.next() == ',' {
			c.skip()
		}
	}
}

// members returns the members of an object in the order of their keys. If several members have the same key,
// the last one counts.
func (v value) members() []member {
	var list []member
	v.eachMember(func(m member) { list = append(list, m) })
	order := func(a, b member) int {
		return cmp.Or(strings.Compare(a.key, b.key), cmp.Compare(b.value.start, a.value.start))
	}
	if !slices.IsSortedFunc(list, order) {
		slices.SortFunc(list, order)
	}
	return slices.CompactFunc(list, func(a, b member) bool { return a.key == b.key })
}

// decodeString decodes a JSON string.
func decodeString(quoted []byte) string {
	s := string(quoted[1 : len(quoted)-1])
	if review.Plain(s) {
		return s
	}
	// The text is valid.
	_ = json.Unmarshal(quoted, &s)
	return s
}

// appendKey appends the key of a member as encoding/json writes it, with the colon.
func appendKey(to []byte, key string) []byte {
	if review.Plain(key) {
		to = append(append(append(to, '"'), key...), '"')
	} else {
		// A string can always be encoded.
		quoted, _ := json.Marshal(key)
		to = append(to, quoted...)
	}
	return append(to, ':')
}

// appendRaw appends a JSON text as encoding/json writes a [json.RawMessage], and returns its depth.
func appendRaw(to, raw []byte) (_ []byte, levels int) {
	depth, done := 0, 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			end := endOfString(raw, i)
			if inside := raw[i:end]; bytes.ContainsAny(inside, "<>&") || bytes.Contains(inside, lineSeparator[:2]) {
				to = append(to, raw[done:i]...)
				to, done = appendEscaped(to, inside), end
			}
			i = end - 1
		case '{', '[':
			depth++
			levels = max(levels, depth)
		case '}', ']':
			depth--
		case ' ', '\t', '\r', '\n':
			to = append(to, raw[done:i]...)
			done = i + 1
		}
	}
	return append(to, raw[done:]...), levels
}

// lineSeparator is U+2028, which is escaped in JSON as U+2029 is.
var lineSeparator = []byte("\u2028")

// appendEscaped appends a string of a JSON text with the escapes of encoding/json for HTML.
func appendEscaped(to, quoted []byte) []byte {
	b := bytes.NewBuffer(to)
	json.HTMLEscape(b, quoted)
	return b.Bytes()
}
