package recorded

import (
	"bytes"
	"encoding/json"
	"slices"
)

// A line of a log is mostly objects, which are passed on as they are. The functions of this file find
// where the values of a JSON object begin and end, several times faster than decoding it. They look at
// strings and brackets alone: a value may still not be valid.

// members calls take with the name and the value of each member. It returns false if the data are not one
// object.
func members(data []byte, take func(name, value []byte)) bool {
	i := space(data, 0)
	if i == len(data) || data[i] != '{' {
		return false
	}
	if i = space(data, i+1); i < len(data) && data[i] == '}' {
		return space(data, i+1) == len(data)
	}
	for i < len(data) && data[i] == '"' {
		end := endOfString(data, i)
		if end < 0 {
			return false
		}
		name := data[i+1 : end-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			var text string
			if json.Unmarshal(data[i:end], &text) != nil {
				return false
			}
			name = []byte(text)
		}
		if i = space(data, end); i == len(data) || data[i] != ':' {
			return false
		}
		i = space(data, i+1)
		if end = endOfValue(data, i); end < 0 {
			return false
		}
		take(name, data[i:end])
		if i = space(data, end); i == len(data) {
			return false
		}
		switch data[i] {
		case ',':
			i = space(data, i+1)
		case '}':
			return space(data, i+1) == len(data)
		default:
			return false
		}
	}
	return false
}

// space returns the place of what comes behind white space.
func space(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\t' || data[i] == '\n' || data[i] == '\r') {
		i++
	}
	return i
}

// endOfString returns the place behind the string that begins at i; -1 if it does not end.
func endOfString(data []byte, i int) int {
	begin := i + 1
	for i = begin; ; i++ {
		n := bytes.IndexByte(data[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		escapes := 0
		for i-1-escapes >= begin && data[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
}

// endOfValue returns the place behind the value that begins at i; -1 if it does not end.
func endOfValue(data []byte, i int) int {
	for depth, begin := 0, i; i < len(data); {
		switch data[i] {
		case '"':
			if i = endOfString(data, i); i < 0 || depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 {
				return -1
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 && i > begin {
				return i
			}
		}
		i++
		if depth == 0 && i < len(data) && (data[i] == '}' || data[i] == ']') {
			return i
		}
	}
	return -1
}

// apart takes members out of an object: it returns the object without them, and copies of
// their values, nil for one that the object does not have. rest is nil if the data are not one object.
func apart(data []byte, names ...string) (rest []byte, values []json.RawMessage) {
	values = make([]json.RawMessage, len(names))
	rest = append(make([]byte, 0, 1<<10), '{')
	if !members(data, func(name, value []byte) {
		if i := slices.Index(names, string(name)); i >= 0 {
			values[i] = bytes.Clone(value)
			return
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		quoted, err := json.Marshal(string(name))
		if err != nil {
			return
		}
		rest = append(append(append(rest, quoted...), ':'), value...)
	}) {
		return nil, nil
	}
	return append(rest, '}'), values
}

// Meta is what has to be known of an object.
type Meta struct {
	APIVersion, Kind                                    string
	Name, Namespace, GenerateName, UID, ResourceVersion string
	// Created reports whether the object has a creationTimestamp.
	Created bool
}

// Text returns a text in an object, empty if there is none.
func Text(object []byte, path ...string) (text string) {
	members(object, func(name, value []byte) {
		switch {
		case string(name) != path[0]:
		case len(path) > 1:
			text = Text(value, path[1:]...)
		case json.Unmarshal(value, &text) != nil:
			text = ""
		}
	})
	return text
}

// MetaOf reads an object. It returns false if the object, or one of these fields, is not readable.
func MetaOf(object []byte) (m Meta, ok bool) {
	ok = true
	text := func(into *string, value []byte) { ok = ok && json.Unmarshal(value, into) == nil }
	found := members(object, func(name, value []byte) {
		switch string(name) {
		case "apiVersion":
			text(&m.APIVersion, value)
		case "kind":
			text(&m.Kind, value)
		case "metadata":
			if string(value) == "null" {
				return
			}
			inside := members(value, func(name, value []byte) {
				switch string(name) {
				case "name":
					text(&m.Name, value)
				case "namespace":
					text(&m.Namespace, value)
				case "generateName":
					text(&m.GenerateName, value)
				case "uid":
					text(&m.UID, value)
				case "resourceVersion":
					text(&m.ResourceVersion, value)
				case "creationTimestamp":
					m.Created = string(value) != "null"
				}
			})
			ok = ok && inside
		}
	})
	return m, ok && found
}
