package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// choice is the content of specs.yaml.
type choice struct {
	// Serve are flags of gatehouse serve.
	Serve []string `json:"serve,omitempty"`
	// Try are regular expressions: specs that match one of them are run, unless they match Leave.
	Try []string `json:"try"`
	// Leave are specs that are not run, Fail specs that are known to fail.
	Leave []*group `json:"leave,omitempty"`
	Fail  []*group `json:"fail,omitempty"`
}

// group is a list of specs with the same reason.
type group struct {
	Reason string `json:"reason"`
	// Specs are regular expressions.
	Specs []string `json:"specs"`

	match *regexp.Regexp
}

// load reads specs.yaml. Every error names the file.
func load(file string) (*choice, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c := &choice{}
	if err := yaml.UnmarshalStrict(data, c); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(c.Try) == 0 {
		return nil, fmt.Errorf("%s: try is empty", file)
	}
	for _, groups := range [][]*group{c.Leave, c.Fail} {
		for _, g := range groups {
			if g.Reason == "" || len(g.Specs) == 0 {
				return nil, fmt.Errorf("%s: a group needs a reason and specs: %q, %q", file, g.Reason, g.Specs)
			}
			if g.match, err = regexp.Compile(strings.Join(g.Specs, "|")); err != nil {
				return nil, fmt.Errorf("%s: %q: %w", file, g.Reason, err)
			}
		}
	}
	return c, nil
}

// left returns the expressions of specs that are not run.
func (c *choice) left() []string {
	var left []string
	for _, g := range c.Leave {
		left = append(left, g.Specs...)
	}
	return left
}

// focuses returns the expressions of specs that are run, or the narrower one if it is set.
func (c *choice) focuses(narrower string) []string {
	if narrower != "" {
		return []string{narrower}
	}
	return c.Try
}

// reason returns the reason of the first group that contains the spec, or "".
func reason(groups []*group, spec string) string {
	for _, g := range groups {
		if g.match.MatchString(spec) {
			return g.Reason
		}
	}
	return ""
}
