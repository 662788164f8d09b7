package emulation

import (
	"regexp"
	"strings"
)

// odd is a warning of an address in a form that servers took for one that will be refused, before 1.36.
var odd = regexp.MustCompile(`^(.*: non-standard (?:IP address|CIDR value) ".*") is invalid: (use ".*")$`)

// Warning returns a warning in the words of the release that the process behaves as; empty if the release does not
// warn.
func Warning(text string) string {
	minor := Effective().EmulationVersion().Minor()
	if minor < 37 && strings.Contains(text, " are reserved for static manifest-based configurations ") {
		return ""
	}
	if minor < 36 {
		text = odd.ReplaceAllString(text, "$1 will be considered invalid in a future Kubernetes release: $2")
	}
	return text
}
