package userpatch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// node is a value of an object that operations edit. The zero value is a null of the object. Upstream distinguishes
// it from a null of an operation, whose text is noText.
type node struct {
	value
	// in has the members or elements once an operation has reached into the value; nil before.
	in *container
}

// noText is the text of a null in an operation.
var noText = &text{}

// container has either the members of an object or the elements of an array.
type container struct {
	// members is nil for a copy of a null of an operation, which upstream treats as an object.
	members map[string]*node
	list    *list
}

func (n *node) isNull() bool { return n.text == nil && n.in == nil }

// newNode returns the node of a value inside of an object or array.
func newNode(v value) node {
	if v.isNull() {
		return node{}
	}
	return node{value: v}
}

// open returns the contents of an object or array, nil for other values.
func (n *node) open() *container {
	if n.in != nil || n.text == nil || n.text == noText {
		return n.in
	}
	switch n.first() {
	case '{':
		members := map[string]*node{}
		n.eachMember(func(m member) {
			child := newNode(m.value)
			members[m.key] = &child
		})
		n.in = &container{members: members}
	case '[':
		var nodes []node
		// The function returns no error.
		_ = n.elements(func(v value) error {
			nodes = append(nodes, newNode(v))
			return nil
		})
		n.in = &container{list: newList(nodes)}
	case 'n':
		n.in = &container{}
	}
	return n.in
}

// These are the errors of upstream.
var (
	errMissing      = errors.New("missing value")
	errInvalidIndex = errors.New("invalid index referenced")
	errTestFailed   = errors.New("test failed")
)

// index parses the index of an element in a list of a given length. A negative index counts from
// the end.
func index(key string, length int) (int, error) {
	at, err := strconv.Atoi(key)
	if err != nil {
		return 0, err
	}
	if at >= length || at < -length {
		//lint:ignore ST1005 The text of upstream, capital letter included.
		return 0, fmt.Errorf("Unable to access invalid index: %d: %w", at, errInvalidIndex)
	}
	if at < 0 {
		at += length
	}
	return at, nil
}

// get returns an element, a null for a missing member.
func (c *container) get(key string) (*node, error) {
	if c.list == nil {
		if n := c.members[key]; n != nil {
			return n, nil
		}
		return &node{}, nil
	}
	at, err := index(key, c.list.length)
	if err != nil {
		return nil, err
	}
	return c.list.at(at), nil
}

// set replaces an element, or adds a member.
func (c *container) set(key string, n node) error {
	if c.list != nil {
		at, err := index(key, c.list.length)
		if err == nil {
			*c.list.at(at) = n
		}
		return err
	}
	if c.members == nil {
		// Upstream panics.
		return errMissing
	}
	c.members[key] = &n
	return nil
}

// add inserts an element, or sets a member.
func (c *container) add(key string, n node) error {
	if c.list == nil {
		return c.set(key, n)
	}
	at := c.list.length
	if key != "-" {
		var err error
		if _, isNumber := strconv.Atoi(key); isNumber != nil {
			return fmt.Errorf("value was not a proper array index: '%s': %w", key, isNumber)
		}
		if at, err = index(key, c.list.length+1); err != nil {
			return err
		}
	}
	c.list.insert(at, n)
	return nil
}

// remove removes an element.
func (c *container) remove(key string) error {
	if c.list == nil {
		if _, ok := c.members[key]; !ok {
			//lint:ignore ST1005 The text of upstream, capital letter included.
			return fmt.Errorf("Unable to remove nonexistent key: %s: %w", key, errMissing)
		}
		delete(c.members, key)
		return nil
	}
	at, err := index(key, c.list.length)
	if err == nil {
		c.list.remove(at)
	}
	return err
}

// compact returns the text of a value without white space.
func (n *node) compact() []byte {
	if n.text == noText {
		return nil
	}
	var b bytes.Buffer
	// The text is valid.
	_ = json.Compact(&b, n.raw())
	return b.Bytes()
}

// equal reports whether two values are the same, as upstream sees it: numbers and strings have the same spelling,
// and a null of an operation differs from a null of the object. Upstream panics for a null in a list.
func (n *node) equal(o *node) bool {
	if n.isNull() || o.isNull() {
		return n.isNull() && o.isNull()
	}
	mine := n.open()
	if mine == nil {
		return o.in == nil && bytes.Equal(n.compact(), o.compact())
	}
	theirs := o.open()
	switch {
	case theirs == nil || (mine.list == nil) != (theirs.list == nil):
		return false
	case mine.list == nil:
		if len(mine.members) != len(theirs.members) {
			return false
		}
		for key, m := range mine.members {
			if other := theirs.members[key]; other == nil || !m.equal(other) {
				return false
			}
		}
		return true
	case mine.list.length != theirs.list.length:
		return false
	}
	at := 0
	return mine.list.forEach(func(m *node) error {
		other := theirs.list.at(at)
		if at++; !m.equal(other) {
			return errTestFailed
		}
		return nil
	}) == nil
}

// maxDepth is the greatest depth of nested objects, which is the limit of JSON decoders.
const maxDepth = 10_000

var errDeep = errors.New("the patch nests the object more than 10000 levels deep")

// encode appends a value as encoding/json writes it. levels counts the objects and arrays around the value.
func (n *node) encode(to []byte, levels int) ([]byte, error) {
	if n.in != nil {
		return n.in.encode(to, levels)
	}
	if n.text == nil || n.text == noText {
		return append(to, "null"...), nil
	}
	to, inside := appendRaw(to, n.raw())
	if levels+inside > maxDepth {
		return nil, errDeep
	}
	return to, nil
}

func (c *container) encode(to []byte, levels int) (_ []byte, err error) {
	if levels++; levels > maxDepth {
		return nil, errDeep
	}
	if c.list != nil {
		to = append(to, '[')
		err = c.list.forEach(func(n *node) (err error) {
			to, err = n.encode(comma(to), levels)
			return err
		})
		return append(to, ']'), err
	}
	if c.members == nil {
		return append(to, "null"...), nil
	}
	to = append(to, '{')
	for _, key := range slices.Sorted(maps.Keys(c.members)) {
		to = appendKey(comma(to), key)
		if to, err = c.members[key].encode(to, levels); err != nil {
			return nil, err
		}
	}
	return append(to, '}'), nil
}

// comma appends a comma unless the next element is the first one.
func comma(to []byte) []byte {
	switch to[len(to)-1] {
	case '{', '[':
		return to
	}
	return append(to, ',')
}
