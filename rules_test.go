package gatehouse_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// unproven are rules of the behaviour checklist that no test names, and why.
var unproven = map[string]string{
	"S1.37":  "leaves room for a second source of registrations; nothing is built for it",
	"S3.5":   "says that a limit does not exist",
	"S9.9":   "is advice on using the library, which the layering test enforces",
	"S11.42": "is a convention that the server does not enforce",
	"S12.17": "says that an order does not matter",
	"S13.9":  "is about the checklist itself",
}

var (
	ruleName  = regexp.MustCompile(`\bS\d+\.\d+a?\b`)
	ruleRange = regexp.MustCompile(`\bS(\d+)\.(\d+) to S(\d+)\.(\d+)\b`)
)

// TestEveryRuleIsProven lists the rules of the checklist that no test names.
// testdata/rules.txt has all rules; a test proves one by naming it in its own
// name, its cases' names or the comment above it.
func TestEveryRuleIsProven(t *testing.T) {
	data, err := os.ReadFile("testdata/rules.txt")
	if err != nil {
		t.Fatal(err)
	}
	rules := strings.Fields(string(data))
	known := map[string]bool{}
	for _, rule := range rules {
		known[rule] = true
	}
	named := map[string]bool{}
	walk(t, func(file string) {
		if file == "rules_test.go" || !strings.HasSuffix(file, "_test.go") && !strings.HasSuffix(file, ".txtar") {
			return
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, ends := range ruleRange.FindAllStringSubmatch(string(content), -1) {
			first, _ := strconv.Atoi(ends[2])
			last, _ := strconv.Atoi(ends[4])
			for n := first; ends[1] == ends[3] && n <= last; n++ {
				named[fmt.Sprintf("S%s.%d", ends[1], n)] = true
			}
		}
		for _, rule := range ruleName.FindAllString(string(content), -1) {
			if !known[rule] {
				t.Errorf("%s names %s, which is no rule", file, rule)
			}
			named[rule] = true
		}
	})
	for _, rule := range rules {
		switch why, excused := unproven[rule]; {
		case !named[rule] && !excused:
			t.Errorf("no test names %s", rule)
		case named[rule] && excused:
			t.Errorf("%s is proven now: remove %q from unproven", rule, why)
		}
	}
}
