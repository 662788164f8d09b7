package main

import (
	"fmt"
	"regexp"
	"strings"
)

// known is a difference with a known reason, one entry of known.yaml.
type known struct {
	// Title names the difference in a few words; Reason explains it in whole sentences.
	Title  string `json:"title"`
	Reason string `json:"reason"`
	// Request matches "case: step", and Path the place in the answer; both are regular expressions.
	Request string `json:"request"`
	Path    string `json:"path"`
	// OnlyIf, when set, is a text that kube-apiserver's value must contain.
	OnlyIf string `json:"onlyIf"`
	// Emulated entries are used only if the servers emulate another release.
	Emulated bool `json:"emulated"`
	// Kube and Gatehouse, when set, are regular expressions that must match the two values in JSON; "-" represents a
	// missing value.
	Kube      string `json:"kube"`
	Gatehouse string `json:"gatehouse"`

	request, path, kube, gatehouse *regexp.Regexp
	seen                           int
}

// The files of known differences: between kube-apiserver and gatehouse, and between built-in admission plugins and
// the same plugins as webhooks.
const knownFile, knownOfWebhooks = "known.yaml", "webhooks.yaml"

func loadKnown(file string) ([]*known, error) {
	lists, err := documents[[]*known](file)
	if err != nil {
		return nil, err
	}
	var all []*known
	for _, list := range lists {
		for _, k := range list {
			for _, pattern := range []struct {
				text string
				into **regexp.Regexp
			}{{k.Request, &k.request}, {k.Path, &k.path}, {k.Kube, &k.kube}, {k.Gatehouse, &k.gatehouse}} {
				if pattern.text == "" {
					continue
				}
				if *pattern.into, err = regexp.Compile("(?s)^(" + pattern.text + ")$"); err != nil {
					return nil, fmt.Errorf("%s, %q: %w", file, k.Title, err)
				}
			}
			if k.request == nil || k.path == nil {
				return nil, fmt.Errorf("%s, %q: request and path must be set", file, k.Title)
			}
			all = append(all, k)
		}
	}
	return all, nil
}

// explain returns the first entry that matches d, or nil. emulated reports whether the servers emulate another
// release.
func explain(all []*known, d difference, emulated bool) *known {
	for _, k := range all {
		if k.Emulated && !emulated {
			continue
		}
		if k.request.MatchString(d.Case+": "+d.Step) && k.path.MatchString(d.Path) &&
			(k.OnlyIf == "" || strings.Contains(text(d.Kube), k.OnlyIf)) &&
			(k.kube == nil || k.kube.MatchString(show(d.Kube))) && (k.gatehouse == nil || k.gatehouse.MatchString(show(d.Gatehouse))) {
			return k
		}
	}
	return nil
}
