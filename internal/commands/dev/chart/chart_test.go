package chart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// folder writes the files of a chart, and returns its directory.
func folder(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if _, ok := content["Chart.yaml"]; !ok {
		content["Chart.yaml"] = "apiVersion: v2\nname: hook\nversion: 1.0.0\nappVersion: \"7\"\n"
	}
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// of returns the options for a chart.
func of(path string, values ...string) Options {
	return Options{Path: path, Values: values, Release: "dev", Namespace: "default", Kubernetes: "v1.37.2", Versions: []string{"v1", "apps/v1", "apps/v1/Deployment"}}
}

// objects returns the sources and the names of the rendered objects, in order.
func objects(r *Result) (list []string) {
	for doc := range strings.SplitSeq(r.Manifests, "---\n# Source: ") {
		source, text, _ := strings.Cut(doc, "\n")
		if _, name, ok := strings.Cut(text, "name: "); ok {
			name, _, _ = strings.Cut(name, "\n")
			list = append(list, source+" "+name)
		}
	}
	return list
}

// configMap is a template with a name and one entry.
func configMap(name, entry string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\ndata:\n  x: " + entry + "\n"
}

// S33.17: a chart is rendered as 'helm template --include-crds --skip-tests' does.
func TestCharts(t *testing.T) {
	hook := func(kind string) string {
		return strings.Replace(configMap(kind, "y"), "\ndata:", "\n  annotations:\n    helm.sh/hook: "+kind+"\ndata:", 1)
	}
	dir := folder(t, map[string]string{
		"Chart.yaml": "apiVersion: v2\nname: hook\nversion: 1.0.0\nappVersion: \"7\"\nkubeVersion: '>= 1.30'\ndependencies:\n" +
			"- {name: sub, version: 1.x.x, condition: sub.enabled}\n- {name: closed, version: 1.x.x, condition: closed.enabled}\n- {name: away, version: 1.x.x, condition: away.enabled}\n",
		"values.yaml":                         "image: {tag: one, pull: true}\nlist: [a]\nsub: {enabled: true, size: 2}\nclosed: {enabled: false}\naway: {enabled: false}\n",
		"crds/crd.yaml":                       configMap("crd", "'{{ kept }}'"),
		".helmignore":                         "ignored.*\n",
		"templates/ignored.yaml":              "{{ fail \"it is read\" }}",
		"templates/_helpers.tpl":              "{{ define \"label\" }}{{ .Chart.Name }}-{{ .Chart.AppVersion }}{{ end }}",
		"templates/NOTES.txt":                 "Thank you.",
		"templates/service.yaml":              "apiVersion: v1\nkind: Service\nmetadata:\n  name: service\n",
		"templates/a.yaml":                    configMap(`{{ include "label" . }}`, `{{ .Release.Name }} {{ .Release.Namespace }} {{ .Release.IsInstall }} {{ .Release.Service }}`),
		"templates/b.yaml":                    configMap("values", `{{ .Values.image.tag }} {{ .Values.image.pull }} {{ .Values.list }} {{ .Values.new }}`),
		"templates/c.yaml":                    configMap("capabilities", `{{ .Capabilities.KubeVersion }} {{ .Capabilities.APIVersions.Has "apps/v1/Deployment" }} {{ .Capabilities.APIVersions.Has "example.com/v1" }}`),
		"templates/d.yaml":                    configMap("outside", `'{{ lookup "v1" "Secret" "default" "s" }}{{ getHostByName "localhost" }}'`),
		"templates/e.yaml":                    hook("post-install") + "---\n" + hook("test") + "---\n" + hook("pre-install"),
		"files/f.txt":                         "content",
		"templates/f.yaml":                    configMap("file", `{{ .Files.Get "files/f.txt" }}`),
		"charts/sub/Chart.yaml":               "apiVersion: v2\nname: sub\nversion: 1.2.3\n",
		"charts/sub/values.yaml":              "size: 1\nother: 3\n",
		"charts/sub/templates/sub.yaml":       configMap("sub", "{{ .Values.size }}{{ .Values.other }}"),
		"charts/closed/Chart.yaml":            "apiVersion: v2\nname: closed\nversion: 1.2.3\n",
		"charts/closed/templates/closed.yaml": configMap("closed", "y"),
		"charts/free/Chart.yaml":              "apiVersion: v2\nname: free\nversion: 1.2.3\n",
		"charts/free/templates/any.yaml":      configMap("free", "y"),
	})
	first, second := filepath.Join(t.TempDir(), "first.yaml"), filepath.Join(t.TempDir(), "second.yaml")
	for file, text := range map[string]string{first: "image: {tag: two}\nnew: x\n", second: "image: {tag: three}\nlist: [b, c]\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Render(t.Context(), of(dir, first, second))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"hook/crds/crd.yaml crd", "hook/charts/free/templates/any.yaml free", "hook/charts/sub/templates/sub.yaml sub", "hook/templates/a.yaml hook-7",
		"hook/templates/b.yaml values", "hook/templates/c.yaml capabilities", "hook/templates/d.yaml outside", "hook/templates/f.yaml file",
		"hook/templates/service.yaml service", "hook/templates/e.yaml post-install", "hook/templates/e.yaml pre-install",
	}
	if diff := cmp.Diff(want, objects(r)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	for _, text := range []string{
		"x: '{{ kept }}'", "x: dev default true Helm", "x: three true [b c] x", "x: v1.37.2 true false", "x: 'map[]'", "x: content", "x: 23",
	} {
		if !strings.Contains(r.Manifests, text+"\n") {
			t.Errorf("%q is missing in\n%s", text, r.Manifests)
		}
	}
	if len(r.Notes) > 0 {
		t.Errorf("notes %q", r.Notes)
	}
	helpers, ignored := filepath.Join(dir, "templates/_helpers.tpl"), filepath.Join(dir, "templates/ignored.yaml")
	if !slices.Contains(r.Files, helpers) || slices.Contains(r.Files, ignored) {
		t.Errorf("files %q", r.Files)
	}
}

// S33.17: an archive is a chart, too.
func TestArchives(t *testing.T) {
	var data bytes.Buffer
	zipped := gzip.NewWriter(&data)
	archive := tar.NewWriter(zipped)
	for name, text := range map[string]string{"hook/Chart.yaml": "apiVersion: v2\nname: hook\nversion: 1.0.0\n", "hook/templates/a.yaml": configMap("a", "y")} {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "hook-1.0.0.tgz")
	if err := os.WriteFile(path, data.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Render(t.Context(), of(path))
	if err != nil || !slices.Equal(objects(r), []string{"hook/templates/a.yaml a"}) {
		t.Errorf("%+v, %v", r, err)
	}
}

// S33.17: an error names the reason and the remedy.
func TestChartsThatCannotBeRendered(t *testing.T) {
	outside := folder(t, map[string]string{"secret.txt": "secret"})
	linked := folder(t, map[string]string{})
	if err := os.Symlink(filepath.Join(outside, "secret.txt"), filepath.Join(linked, "values.yaml")); err != nil {
		t.Fatal(err)
	}
	values := filepath.Join(folder(t, map[string]string{"values.yaml": "a: b: c"}), "values.yaml")
	for name, c := range map[string]struct {
		path, want string
		values     []string
	}{
		"nothing":  {path: filepath.Join(t.TempDir(), "away"), want: "no such file or directory"},
		"no chart": {path: t.TempDir(), want: "Chart.yaml file is missing"},
		"a device": {path: os.DevNull, want: "is a device: only regular files are read"},
		"a link":   {path: linked, want: "out of the working directory: only a file that the command line names may be there"},
		"a library": {want: "it is a library chart, which renders nothing: name a chart that uses it",
			path: folder(t, map[string]string{"Chart.yaml": "apiVersion: v2\nname: hook\nversion: 1.0.0\ntype: library\n"})},
		"a missing dependency": {want: "its folder charts lacks redis, sql: 'helm dependency build' downloads dependencies",
			path: folder(t, map[string]string{"Chart.yaml": "apiVersion: v2\nname: hook\nversion: 1.0.0\ndependencies:\n" +
				"- {name: redis, version: 1.x.x, repository: 'https://charts.example.com'}\n- {name: postgres, alias: sql, version: 1.x.x, repository: 'https://charts.example.com'}\n"})},
		"another release": {want: "it needs Kubernetes < 1.30, and this is v1.37.2",
			path: folder(t, map[string]string{"Chart.yaml": "apiVersion: v2\nname: hook\nversion: 1.0.0\nkubeVersion: '< 1.30'\n"})},
		"a syntax error":   {path: folder(t, map[string]string{"templates/a.yaml": "{{ if }}"}), want: "hook/templates/a.yaml:1"},
		"a failure":        {path: folder(t, map[string]string{"templates/a.yaml": "{{ fail \"name a tag\" }}"}), want: "execution error at (hook/templates/a.yaml:1:3): name a tag"},
		"no YAML":          {path: folder(t, map[string]string{"templates/a.yaml": "a: b: c"}), want: "YAML parse error on hook/templates/a.yaml"},
		"values":           {path: folder(t, map[string]string{}), values: []string{values}, want: "values.yaml: "},
		"values of a pipe": {path: folder(t, map[string]string{}), values: []string{"/dev/stdin"}, want: "only regular files are read"},
		"values away":      {path: folder(t, map[string]string{}), values: []string{"away.yaml"}, want: "away.yaml: no such file or directory"},
		"a schema": {want: "the values of chart hook: at '/size': got string, want integer",
			path: folder(t, map[string]string{"values.yaml": "size: large\n", "values.schema.json": `{"properties": {"size": {"type": "integer"}}}`})},
		"a broken schema": {want: "the values of chart hook: values.schema.json: ",
			path: folder(t, map[string]string{"values.schema.json": `{"type": 3}`})},
		"a schema of a dependency": {want: "the values of chart sub: at '/size': got string, want integer",
			path: folder(t, map[string]string{"values.yaml": "sub: {size: large}\n", "charts/sub/Chart.yaml": "apiVersion: v2\nname: sub\nversion: 1.0.0\n",
				"charts/sub/values.schema.json": `{"properties": {"size": {"type": "integer"}}}`})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if r, err := Render(t.Context(), of(c.path, c.values...)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %v, want an error with %q", r, err, c.want)
			}
		})
	}
}

// S33.17: a chart is bounded in its number of files, its memory, its time and its output.
func TestChartsAreBounded(t *testing.T) {
	small := limits{Entries: 40, Memory: 512 << 20, Output: 1 << 20, Time: time.Minute}
	quick := small
	quick.Time = time.Second
	loop := folder(t, map[string]string{"templates/a.yaml": configMap("a", "y")})
	if err := os.Symlink("..", filepath.Join(loop, "templates/again")); err != nil {
		t.Fatal(err)
	}
	// Each template includes the next one twice.
	var doubling strings.Builder
	for i := range 60 {
		fmt.Fprintf(&doubling, "{{ define \"t%d\" }}{{ include \"t%d\" . }}{{ include \"t%d\" . }}{{ end }}\n", i, i+1, i+1)
	}
	doubling.WriteString("{{ define \"t60\" }}{{ end }}{{ include \"t0\" . }}")
	for name, c := range map[string]struct {
		path, want string
		limits     limits
	}{
		"a loop of links": {path: loop, limits: small, want: "it has too many files and directories: list those of no use in .helmignore"},
		"levels": {path: folder(t, map[string]string{"files/" + strings.Repeat("a/", 50) + "f": ""}), limits: limits{Entries: 100, Memory: small.Memory, Output: small.Output, Time: small.Time},
			want: "its directories have more than 40 levels"},
		"time":      {path: folder(t, map[string]string{"templates/a.yaml": doubling.String()}), limits: quick, want: "its templates need more than 1s"},
		"memory":    {path: folder(t, map[string]string{"templates/a.yaml": `{{ $x := "eight by" }}{{ range until 40 }}{{ $x = printf "%s%s" $x $x }}{{ end }}`}), limits: small, want: "its files and templates need more than 512 MiB of memory"},
		"recursion": {path: folder(t, map[string]string{"templates/a.yaml": `{{ define "a" }}{{ template "a" . }}{{ end }}{{ template "a" . }}`}), limits: small, want: "exceeded maximum template depth"},
		"output":    {path: folder(t, map[string]string{"templates/a.yaml": configMap("a", `{{ repeat 2000000 "x" }}`)}), limits: small, want: "its templates render more than 1 MiB"},
		"an error":  {path: folder(t, map[string]string{"templates/a.yaml": `{{ fail (repeat 2000000 "x") }}`}), limits: small, want: "bytes left out"},
		"a file":    {path: folder(t, map[string]string{"files/large": strings.Repeat("x", 6<<20)}), limits: small, want: "large: has more than 5 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if r, err := render(t.Context(), of(c.path), c.limits); err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 8<<10 {
				t.Errorf("%+v, %v, want an error with %q", r, err, c.want)
			}
		})
	}
}

// S33.17: a schema of another server is not downloaded.
func TestSchemasAreNotDownloaded(t *testing.T) {
	calls := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { calls <- r.URL.Path }))
	defer server.Close()
	url := server.URL + "/pod.json"
	r, err := Render(t.Context(), of(folder(t, map[string]string{
		"values.yaml":        "pod: 1\nsize: 1\n",
		"values.schema.json": `{"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"pod": {"$ref": "` + url + `"}, "size": {"type": "integer"}}}`,
	})))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"values.schema.json: the schema at " + url + " is not downloaded, and no value is compared with it."}; !slices.Equal(r.Notes, want) {
		t.Errorf("notes %q, want %q", r.Notes, want)
	}
	select {
	case path := <-calls:
		t.Errorf("it asked for %s", path)
	default:
	}
}
