package suite

import (
	"bytes"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/rejection"
)

// Suite has the tests of one file.
type Suite struct {
	// File is the path of the file as given, and Format its format.
	File   string
	Format string
	// paths are the sources of the test environment, and inside the sections of an archive that are part of it. own
	// reports whether the environment belongs to this file alone.
	paths  []string
	inside []section
	own    bool
	// only reports whether the file contains only tests.
	only bool
	// authorize enables RBAC for the requests.
	authorize bool
	answers   []answer
	programs  []program
	// engine evaluates the tests; empty for none. inventory reports whether it reads objects around the requests.
	engine    string
	inventory bool
	Tests     []*Test
	// referenced are the files that tests take objects from.
	referenced map[string]bool
	// text is the content of the file, for updates.
	text []byte
	// world distinguishes suites of one file that have separate test environments.
	world string
	// extend adds generated objects to the test environment, derived from the objects of the files.
	extend func(*worldSet)
}

// section is a file of an archive.
type section struct {
	name string
	line int
	data []byte
}

// placed returns the text of the section, at its lines of the archive.
func (s section) placed() []byte { return append(bytes.Repeat([]byte("\n"), s.line), s.data...) }

// Test is a request with expectations.
type Test struct {
	Suite *Suite
	// Name is unique in the file.
	Name string
	Line int
	// Skip is the reason why the test is not run; empty if it is.
	Skip string

	request request
	expect  expect
	// place is the position of the test, for updates.
	place place
	// judgeBy, if set, compares in the way of another tool. skip is the reason if there is nothing to compare.
	judgeBy func(*Outcome) (failures []Failure, skip string)
	// running is set if the responses of webhooks decide, and interprets them.
	running *about
}

// request is the request of a test.
type request struct {
	line      int
	operation string
	// object and old are nil if absent.
	object, old map[string]any
	patch       *patch
	// kind, namespace and name identify the object of a request without one: Kind namespace/name.
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

// expect has the expectations of a test. Unset fields are not compared.
type expect struct {
	line        int
	lines       map[string]int
	allowed     *bool
	code        *int64
	reason      *match
	message     *match
	by          *rejection.Decider
	causes      []cause
	warnings    []match
	annotations []annotation
	object      any
	patch       []any
	called      []string
	notCalled   []string
	costBelow   *int64
}

// has reports whether an expectation is set.
func (e *expect) has(name string) bool { _, ok := e.lines[name]; return ok }

// at returns the line of an expectation.
func (e *expect) at(name string) int {
	if line, ok := e.lines[name]; ok {
		return line
	}
	return e.line
}

// match is an expected string: exact, a part, or a regular expression.
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
	// value is nil if there must be no such annotation.
	value *match
}
