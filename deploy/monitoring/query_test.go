package monitoring_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// query has the selectors of a PromQL expression and the labels that the expression uses.
type query struct {
	selectors []selector
	// grouping are the labels in by, without, on and the like.
	grouping []string
}

// selector selects series of a metric. labels has the values of equality matchers, and "" for the labels of
// other matchers.
type selector struct {
	metric string
	labels map[string]string
}

var (
	// tokens of PromQL: strings, ranges in brackets, numbers and durations, names,
	// and everything else character by character.
	tokens  = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|\\[[^\\]]*\\]|[0-9][0-9a-zA-Z.]*|[a-zA-Z_:][a-zA-Z0-9_:]*|=~|!~|!=|>=|<=|==|\\S")
	name    = regexp.MustCompile(`^[a-zA-Z_:]`)
	group   = []string{"by", "without", "on", "ignoring", "group_left", "group_right"}
	keyword = []string{"and", "or", "unless", "bool", "offset", "group_left", "group_right"}
)

// parse parses an expression far enough to find its selectors.
func parse(expr string) (*query, error) {
	q := &query{}
	list := append(tokens.FindAllString(expr, -1), "")
	depth := 0
	for i := 0; list[i] != ""; i++ {
		token, next := list[i], list[i+1]
		switch {
		case token == "(":
			depth++
		case token == ")":
			depth--
		case token == "{" || token == "}":
			return nil, fmt.Errorf("%q stands where no metric is", token)
		case slices.Contains(group, token) && next == "(":
			end := i + slices.Index(list[i:], ")")
			if end < i {
				return nil, fmt.Errorf("%q is not closed", token)
			}
			for _, label := range list[i+2 : end] {
				if label != "," {
					q.grouping = append(q.grouping, label)
				}
			}
			i = end
		case !name.MatchString(token) || slices.Contains(keyword, token):
		case next == "(" || slices.Contains(group, next):
			// A function, or an aggregation.
		case next == "{":
			end := i + slices.Index(list[i:], "}")
			if end < i {
				return nil, fmt.Errorf("the matchers of %s are not closed", token)
			}
			s := selector{metric: token, labels: map[string]string{}}
			for matcher := range slices.Chunk(append(slices.Clone(list[i+2:end]), ","), 4) {
				if len(matcher) != 4 || matcher[3] != "," || !name.MatchString(matcher[0]) {
					return nil, fmt.Errorf("the matchers of %s are not label, operator, text", token)
				}
				s.labels[matcher[0]] = ""
				if matcher[1] == "=" {
					s.labels[matcher[0]] = strings.Trim(matcher[2], `"`)
				}
			}
			q.selectors = append(q.selectors, s)
			i = end
		default:
			q.selectors = append(q.selectors, selector{metric: token, labels: map[string]string{}})
		}
	}
	if depth != 0 {
		return nil, fmt.Errorf("parentheses do not match")
	}
	if len(q.selectors) == 0 {
		return nil, fmt.Errorf("it selects nothing")
	}
	return q, nil
}

// served are the metrics of a server, with the values of their labels.
type served map[string]map[string][]string

var (
	sample = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? `)
	label  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"`)
)

// scraped are the labels that Prometheus adds.
var scraped = []string{"job", "instance"}

// read parses the response of a server at /metrics.
func read(text string) served {
	m := served{}
	for line := range strings.Lines(text) {
		found := sample.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		if m[found[1]] == nil {
			m[found[1]] = map[string][]string{}
		}
		for _, pair := range label.FindAllStringSubmatch(found[2], -1) {
			m[found[1]][pair[1]] = append(m[found[1]][pair[1]], pair[2])
		}
	}
	return m
}

// missing lists the parts of an expression that the server does not have. further are labels of a legend or a
// text.
func (m served) missing(expr string, further ...string) []string {
	q, err := parse(expr)
	if err != nil {
		return []string{err.Error()}
	}
	var missing []string
	for _, s := range q.selectors {
		labels, ok := m[s.metric]
		if !ok {
			missing = append(missing, "metric "+s.metric)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(s.labels)) {
			value := s.labels[name]
			if labels[name] == nil && !slices.Contains(scraped, name) || value != "" && !slices.Contains(labels[name], value) {
				missing = append(missing, strings.TrimSuffix("label "+name+"="+value, "=")+" of "+s.metric)
			}
		}
		for _, name := range q.grouping {
			if labels[name] == nil && !slices.Contains(scraped, name) {
				missing = append(missing, "label "+name+" of "+s.metric)
			}
		}
		for _, name := range further {
			if len(q.grouping) > 0 && !slices.Contains(q.grouping, name) || labels[name] == nil && !slices.Contains(scraped, name) {
				missing = append(missing, "label "+name+" in the result")
			}
		}
	}
	return missing
}

// Wrong queries prove that the checks detect mistakes.
func TestMistakesAreFound(t *testing.T) {
	m := read(`# HELP calls_total help
# TYPE calls_total counter
calls_total{name="a.b",code="200"} 3
calls_total{name="\"{}",code="500"} 1
age_seconds 0.5
latency_bucket{name="a",le="+Inf"} 1
`)
	for _, tc := range []struct {
		expr    string
		further []string
		want    []string
	}{
		{expr: `sum by (name, le) (rate(latency_bucket{job=~"$job", name=~"a|b"}[$__rate_interval]))`},
		{expr: `histogram_quantile(0.99, sum by (name, le) (rate(latency_bucket[5m]))) > 1`, further: []string{"name"}},
		{expr: `calls_total{code="500"} / on (name) group_left calls_total{name="a.b"} offset 5m or calls_total`},
		{expr: `max by (instance) (age_seconds)`, further: []string{"instance"}},
		{expr: `rate(call_total[5m])`, want: []string{"metric call_total"}},
		{expr: `calls_total{status="500"}`, want: []string{"label status=500 of calls_total"}},
		{expr: `calls_total{code="404"}`, want: []string{"label code=404 of calls_total"}},
		{expr: `calls_total{status=~"5.."}`, want: []string{"label status of calls_total"}},
		{expr: `sum by (hook) (calls_total)`, want: []string{"label hook of calls_total"}},
		{expr: `sum by (name) (calls_total)`, further: []string{"code"}, want: []string{"label code in the result"}},
		{expr: `sum(calls_total`, want: []string{"parentheses do not match"}},
		{expr: `calls_total{code="500"`, want: []string{"the matchers of calls_total are not closed"}},
		{expr: `1 + 2`, want: []string{"it selects nothing"}},
	} {
		t.Run(tc.expr, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, m.missing(tc.expr, tc.further...)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
