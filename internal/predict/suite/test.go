package suite

import (
	"bytes"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/internal/predict/stage"
)

// Suite is the tests of one file.
type Suite struct {
	// File is the file as it was named, and Format what it is written in.
	File   string
	Format string
	// Paths are what the world is read from, and Inside the objects of an archive that are part of
	// it. Own reports whether the world is that of this file alone.
	paths  []string
	inside []section
	own    bool
	// only reports whether the file has nothing but tests.
	only bool
	// Authorize has RBAC decide about the requests.
	authorize bool
	answers   []answer
	programs  []program
	// engine judges the tests; empty for none. inventory reports whether it reads objects around the requests.
	engine    string
	inventory bool
	Tests     []*Test
	// referenced are the files that tests take objects from.
	referenced map[string]bool
	// text is the file, for updates.
	text []byte
	// world tells suites of one file apart that have worlds of their own.
	world string
	// extend makes objects of the world that no file has, of what the files have.
	extend func(*worldSet)
}

// section is a file of an archive.
type section struct {
	name string
	line int
	data []byte
}

// placed is the text of the section at its lines of the archive.
func (s section) placed() []byte { return append(bytes.Repeat([]byte("\n"), s.line), s.data...) }

// Test is a request, and what is expected.
type Test struct {
	Suite *Suite
	// Name is unique in the file.
	Name string
	Line int
	// Skip says why the test is not judged; empty when it is.
	Skip string

	request request
	expect  expect
	// node is what expects, for updates.
	place place
	// judgeBy, if set, compares in the way of another tool. A text says why there is nothing to
	// compare.
	judgeBy func(*Outcome) (failures []Failure, skip string)
	// running is set when the answers of webhooks decide, and says how they name the policy.
	running *about
}

// request is what a test asks.
type request struct {
	line      int
	operation string
	// object, old: nil when there is none.
	object, old map[string]any
	patch       *patch
	// of names the object that a request without one is about: Kind namespace/name.
	apiVersion, kind, namespace, name string
	subresource                       string
	user                              *user.DefaultInfo
	labels                            map[string]string
	dryRun                            bool
	// fieldValidation is empty for Strict.
	fieldValidation string
	authorize       *bool
	timeout         time.Duration
	answers         []answer
}

// patch is a change that the API server applies.
type patch struct {
	kind types.PatchType
	body any
}

// expect is what a test wants. What is not set is not compared.
type expect struct {
	line        int
	lines       map[string]int
	allowed     *bool
	code        *int64
	reason      *match
	message     *match
	by          *stage.Decider
	causes      []cause
	warnings    []match
	annotations []annotation
	object      any
	patch       []any
	called      []string
	notCalled   []string
	costBelow   *int64
}

// has reports whether something is expected.
func (e *expect) has(name string) bool { _, ok := e.lines[name]; return ok }

// at is the line of an expectation.
func (e *expect) at(name string) int {
	if line, ok := e.lines[name]; ok {
		return line
	}
	return e.line
}

// match is a text that is expected: exact, a part of it, or a regular expression.
type match struct {
	is, contains string
	matches      *regexp.Regexp
	kind         matchKind
}

type matchKind uint8

const (
	exactly matchKind = iota
	containing
	matching
)

func (m *match) ok(s string) bool {
	switch m.kind {
	case containing:
		return strings.Contains(s, m.contains)
	case matching:
		return m.matches.MatchString(s)
	}
	return s == m.is
}

func (m *match) String() string {
	switch m.kind {
	case containing:
		return "a text with " + quote(m.contains)
	case matching:
		return "a text that matches " + quote(m.matches.String())
	}
	return quote(m.is)
}

// cause is one of the causes of a rejection.
type cause struct{ field, message, reason *match }

type annotation struct {
	key string
	// value is nil when there must be no such annotation.
	value *match
}
