package requestlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// A line of a log is mostly objects, which are passed on as they are. The functions of this file find
// where the values of a JSON object begin and end, several times faster than decoding it.

// Members calls take with the name and the value of each member of a JSON object, until take returns false; the value holds
// until take returns. It returns false if the data, as far as they were read, are not one object.
func Members(data []byte, take func(name string, value []byte) bool) bool {
	d := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if begin, err := d.ReadToken(); err != nil || begin.Kind() != '{' {
		return false
	}
	for d.PeekKind() == '"' {
		token, err := d.ReadToken()
		if err != nil {
			return false
		}
		name := token.String()
		value, err := d.ReadValue()
		if err != nil {
			return false
		}
		if !take(name, value) {
			return true
		}
	}
	if end, err := d.ReadToken(); err != nil || end.Kind() != '}' {
		return false
	}
	_, err := d.ReadToken()
	return errors.Is(err, io.EOF)
}

// members is Members for all of them.
func members(data []byte, take func(name string, value []byte)) bool {
	return Members(data, func(name string, value []byte) bool {
		take(name, value)
		return true
	})
}

// apart takes members out of an object: it returns the object without them, and copies of
// their values, nil for one that the object does not have. rest is nil if the data are not one object.
func apart(data []byte, names ...string) (rest []byte, values []json.RawMessage) {
	values = make([]json.RawMessage, len(names))
	rest = append(make([]byte, 0, 1<<10), '{')
	if !members(data, func(name string, value []byte) {
		if i := slices.Index(names, name); i >= 0 {
			values[i] = bytes.Clone(value)
			return
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		quoted, err := json.Marshal(name)
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
	members(object, func(name string, value []byte) {
		switch {
		case name != path[0]:
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
	found := members(object, func(name string, value []byte) {
		switch name {
		case "apiVersion":
			text(&m.APIVersion, value)
		case "kind":
			text(&m.Kind, value)
		case "metadata":
			if string(value) == "null" {
				return
			}
			inside := members(value, func(name string, value []byte) {
				switch name {
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
