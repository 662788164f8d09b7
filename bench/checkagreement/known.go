package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"
)

// requests match the requests of the differential corpus whose answers are known to have different messages. They
// match CASE: STEP.
var requests = sync.OnceValues(func() ([]*regexp.Regexp, error) {
	data, err := os.ReadFile(filepath.Join("differential", "known.yaml"))
	if err != nil {
		return nil, err
	}
	var known []struct {
		Request string `json:"request"`
	}
	if err := yaml.Unmarshal(data, &known); err != nil {
		return nil, err
	}
	var list []*regexp.Regexp
	for _, k := range known {
		r, err := regexp.Compile("^(" + k.Request + ")$")
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
})

// fromCorpus matches the name of a file of the corpus: the number of the kind, the number of the object, the API
// version, and the resource.
var fromCorpus = regexp.MustCompile(`^\d{3}-(\d{2})-(.*)-([a-z]+)\.yaml$`)

// decided reports whether the message about an object is known to differ.
func decided(o object) bool {
	known, err := requests()
	m := fromCorpus.FindStringSubmatch(o.origin)
	if err != nil || m == nil {
		return false
	}
	n, _ := strconv.Atoi(m[1])
	version := m[2]
	if i := strings.LastIndex(version, "-"); i >= 0 {
		version = version[:i] + "/" + version[i+1:]
	}
	request := version + "/" + m[3] + ": create invalid " + strconv.Itoa(n-1)
	for _, r := range known {
		if r.MatchString(request) {
			return true
		}
	}
	return false
}
