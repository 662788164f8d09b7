package container

import (
	"bytes"
	"path"
	"strings"
	"unicode/utf8"
)

// Path is a directory or file of the container, and its path on this machine.
type Path struct{ Container, Here string }

// Paths replaces paths of the container. The longest path counts if several match.
type Paths []Path

// Value returns a string that is a path of the container, or begins with one, with the path on this machine. from is the
// replaced Path.Container, empty for none. The path must end at a path boundary.
func (p Paths) Value(s string) (replaced, from string) {
	found := Path{}
	for _, one := range p {
		rest, ok := strings.CutPrefix(s, one.Container)
		if ok && (rest == "" || strings.HasPrefix(rest, "/") || one.Container == "/") && len(one.Container) > len(found.Container) {
			found = one
		}
	}
	if found.Container == "" {
		return s, ""
	}
	return found.Here + s[len(found.Container):], found.Container
}

// Argument returns an argument, such as /certs or --cert-dir=/certs, with the path on this machine.
func (p Paths) Argument(s string) (replaced, from string) {
	if flag, value, ok := strings.Cut(s, "="); ok && !strings.HasPrefix(s, "/") {
		value, from = p.Value(value)
		return flag + "=" + value, from
	}
	return p.Value(s)
}

// mostText bounds the files whose paths are replaced, in bytes.
const mostText = 1 << 20

// before are the characters before a path in a text, and after the characters behind it.
const (
	before = " \t\r\n\"'`=,[{("
	after  = " \t\r\n\"'`,;:]})"
)

// Text returns a text with all paths of the container replaced: paths at the start of a word or of a quoted string. from
// are the replaced Path.Container, in order. A file that is not UTF-8 or is large stays as it is.
func (p Paths) Text(data []byte) (replaced []byte, from []string) {
	if len(data) > mostText || !utf8.Valid(data) {
		return data, nil
	}
	var out bytes.Buffer
	rest := string(data)
	for begin := true; rest != ""; {
		if begin && rest[0] == '/' {
			end := strings.IndexAny(rest, after)
			if end < 0 {
				end = len(rest)
			}
			value, path := p.Value(rest[:end])
			if path != "" {
				from = append(from, path)
			}
			out.WriteString(value)
			rest, begin = rest[end:], false
			continue
		}
		begin = strings.IndexByte(before, rest[0]) >= 0
		out.WriteByte(rest[0])
		rest = rest[1:]
	}
	return out.Bytes(), from
}

// clean returns a mount path in the form that Paths compares.
func clean(mountPath string) string { return path.Clean("/" + mountPath) }
