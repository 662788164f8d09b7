package aliases

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf16"
)

// S27.9: the size of a text includes the expansion of all aliases.
func TestCheck(t *testing.T) {
	const most = 100_000
	long := strings.Repeat("x", most/10)
	many := "[" + strings.Repeat("*a,", 20) + "*a]"
	for name, c := range map[string]struct {
		text     string
		tooLarge bool
	}{
		"aliases of a long text":            {"a: &a " + long + "\nb: " + many, true},
		"few aliases of a long text":        {"a: &a " + long + "\nb: [*a,*a,*a]", false},
		"aliases as names":                  {"a: &a " + long + "\nb: [{*a : 1}" + strings.Repeat(",{*a : 1}", 10) + "]", true},
		"aliases of lists":                  {"a: &a [" + strings.Repeat("x,", 1000) + "]\nb: &b " + many + "\nc: [*b,*b]", true},
		"merged objects":                    {"a: &a {x: " + long + "}\nb: [" + strings.Repeat("{<<: *a},", 20) + "]", true},
		"in UTF-16":                         {inUTF16("a: &a " + long + "\nb: " + many), true},
		"a text without aliases":            {strings.Repeat("- x\n", most), false},
		"anchors and stars without aliases": {"a: &a 1\nb: '*'\nc: \"&\"", false},
		"what cannot be read":               {"a: &a " + long + "\nb: [*a, *b]", false},
		"an alias of itself cannot be read": {"a: &a [*a]", false},
		"what follows the first document":   {"a: &a 1\nb: *a\n---\na: &a " + long + "\nb: " + many, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check([]byte(c.text), most)
			if errors.As(err, new(TooLarge)) != c.tooLarge || (err != nil) != c.tooLarge {
				t.Errorf("%v", err)
			}
		})
	}
}

// inUTF16 encodes a text, with a byte order mark.
func inUTF16(text string) string {
	var b strings.Builder
	for _, c := range utf16.Encode([]rune("\ufeff" + text)) {
		b.WriteString(string([]byte{byte(c), byte(c >> 8)}))
	}
	return b.String()
}
