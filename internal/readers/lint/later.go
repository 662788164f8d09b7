package lint

import (
	_ "embed"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

//go:embed later.txt
var laterTable string

// laterRelease is the release that later.txt describes.
var laterRelease = version.MajorMinor(1, 38)

// Gate is a feature gate that a release refuses to set.
type Gate struct {
	// Locked is the only value of the gate; empty for a gate that does not exist.
	Locked string
	// Source is the pull request or the file of Kubernetes that shows it.
	Source string
}

// AddLater adds the differences of the release after the libraries of this program, if the upgrade is to that release or to
// a later one.
func (u *Upgrade) AddLater() {
	if u.To.LessThan(laterRelease) || !u.Known.LessThan(laterRelease) {
		return
	}
	u.Known, u.Gates = laterRelease, map[string]Gate{}
	for line := range strings.Lines(laterTable) {
		words := strings.Fields(line)
		if len(words) != 3 || words[0] == "#" {
			continue
		}
		name, source := words[1], words[2]
		switch words[0] {
		case "gate":
			u.Gates[name] = Gate{Source: source}
		case "lock":
			name, value, _ := strings.Cut(name, "=")
			u.Gates[name] = Gate{Locked: value, Source: source}
		case "flag":
			u.Flags[name] = true
		case "plugin":
			u.Plugins[name] = true
		case "keep":
			for i := range u.Lives {
				if l := &u.Lives[i]; l.GroupVersion().String()+"/"+l.Kind == name {
					l.Removed = nil
				}
			}
		}
	}
}
