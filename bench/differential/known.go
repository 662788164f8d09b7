package main

import (
	"fmt"
	"regexp"
	"strings"
)

// known is a difference that has a reason. known.yaml is a list of them.
type known struct {
	// Title is what differs, in a few words; Reason why, in whole sentences.
	Title  string `json:"title"`
	Reason string `json:"reason"`
	// Request matches "case: step", and Path the place in the answer; both are
	// regular expressions.
	Request string `json:"request"`
	Path    string `json:"path"`
	// OnlyIf, when set, is a text that kube-apiserver's value must hold.
	OnlyIf string `json:"onlyIf"`

	request, path *regexp.Regexp
	seen          int
}

func loadKnown() ([]*known, error) {
	lists, err := documents[[]*known]("known.yaml")
	if err != nil {
		return nil, err
	}
	var all []*known
	for _, list := range lists {
		for _, k := range list {
			if k.request, err = regexp.Compile("^(" + k.Request + ")$"); err != nil {
				return nil, fmt.Errorf("known.yaml, %q: %w", k.Title, err)
			}
			if k.path, err = regexp.Compile("^(" + k.Path + ")$"); err != nil {
				return nil, fmt.Errorf("known.yaml, %q: %w", k.Title, err)
			}
			all = append(all, k)
		}
	}
	return all, nil
}

// explain returns the entry that d falls under, nil for none.
func explain(all []*known, d difference) *known {
	for _, k := range all {
		if k.request.MatchString(d.Case+": "+d.Step) && k.path.MatchString(d.Path) &&
			(k.OnlyIf == "" || strings.Contains(text(d.Kube), k.OnlyIf)) {
			return k
		}
	}
	return nil
}
