package manifests

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// documentsOfYAML use the alternative notations of YAML.
var documentsOfYAML = []string{
	"a: 1\nb: [1, 2.5, 1.0, -3, 0x10, 0o17, 017, 1e3, 1e30, 1_000]\nc: {d: null, e: ~, f: }\n",
	"on: yes\noff: no\ny: n\n1: one\n2.5: x\ntrue: t\n-7: z\n",
	"a: 9223372036854775807\nb: 9223372036854775808\nc: 18446744073709551615\nd: 1.5e300\ne: 123456789012345678901234567890\n",
	"a: 2020-01-02\nb: 2020-01-02T03:04:05Z\nc: '1'\nd: \"on\"\ne: |\n  text\n  more\nf: >\n  folded\n  text\n",
	"base: &b {x: 1, y: [1]}\nother:\n  <<: *b\n  z: 2\nagain: *b\n",
	"a: 1\na: 2\n", "a: [1\n", "- 1\n- {a: b}\n", "", "text", "a: .nan\n", "a: -.inf\n", "? [1]\n: x\n", "null: x\n", "a: !!binary aGVsbG8=\n",
	"a: -x\nb: +\nc: .\nd: -\ne: 1.2.3\nf: 0x\ng: 1_\nh: .5\ni: 5.\nj: +1\nk: 0b11\nl: 1:30\n", "- - 1\n  - 'x'\n- ? k\n  : v\n",
	"a: !!str 1\nb: !!int '2'\nc: !x y\n", "a: &x 1\nb: *x\n", "Null: Y\nyES: No\nN: tRue\n", "a:\n  multi\n  line\nb: 1\n  2\n",
	"a: web-1.example.com/a_b\nb: 'yes'\nc: \"a\\nb\"\nd: !!str yes\ne: 0o7\nf: 01\ng: e1\nh: 2026-01-01T00:00:00Z\ni: 500m\nj: |\n  a\n  b\nk: >-\n  a\n  b\n",
	"{yes: a}", "{'yes': a}", "{true: a}", "{~: a}", "{<<: {a: b}}", "{a: {<<: &y {b: c}}}", "{a: 1, b: [x, 2, true, {c: 'd'}]}", "{1: a}",
	"a: -0.0\nb: 0.0\nc: 4611686018427387904.0\nd: 1e17\ne: 1e18\nf: 1e21\n",
}

// asKubectl decodes a document with kubectl's library.
func asKubectl(text []byte) (content any, err error) {
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err == nil {
		err = utiljson.Unmarshal(asJSON, &content)
	}
	return content, err
}

// A document is decoded as kubectl decodes it.
func FuzzYAML(f *testing.F) {
	for _, text := range documentsOfYAML {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		want, wrong := asKubectl(text)
		got, _, err := fromYAML(text)
		if (err == nil) != (wrong == nil) {
			t.Fatalf("got error %v, kubectl has %v", err, wrong)
		}
		if diff := cmp.Diff(want, got); err == nil && diff != "" {
			t.Errorf("(-kubectl +got):\n%s", diff)
		}
	})
}
