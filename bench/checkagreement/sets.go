package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/module"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/bench/internal/celcalls"
)

// modules are the sources of the examples, one MODULE@VERSION per line.
//
//go:embed modules.txt
var modules string

// set is a set of manifests that are applied together.
type set struct {
	name    string
	objects []object
	// left counts the objects that were left out, by reason.
	left map[string]int
	seen map[string]bool
}

// object is one object, with the file that it comes from.
type object struct {
	content map[string]any
	origin  string
}

// allSets returns the sets of the directories. Without directories, it returns the corpus, which it writes below dir,
// and the modules.
func allSets(ctx context.Context, dir string, dirs []string) (sets []*set, err error) {
	for _, at := range dirs {
		s, err := read(filepath.Base(at), at)
		if err != nil {
			return nil, err
		}
		sets = append(sets, s)
	}
	if len(dirs) > 0 {
		return sets, nil
	}
	corpus := filepath.Join(dir, "corpus")
	if out, err := exec.CommandContext(ctx, "go", "run", "./differential", "-objects", corpus).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("objects of the differential corpus: %w\n%s", err, out)
	}
	names, err := os.ReadDir(corpus)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		s, err := read("corpus/"+n.Name(), filepath.Join(corpus, n.Name()))
		if err != nil {
			return nil, err
		}
		sets = append(sets, s)
	}
	later, err := read("later", filepath.Join("checkagreement", "later"))
	if err != nil {
		return nil, err
	}
	sets = append(sets, later, functions())
	for line := range strings.Lines(modules) {
		name := strings.TrimSpace(line)
		if name == "" || strings.HasPrefix(name, "#") {
			continue
		}
		at, err := moduleDir(ctx, name)
		if err != nil {
			return nil, err
		}
		s, err := read(name, at)
		if err != nil {
			return nil, err
		}
		sets = append(sets, s)
	}
	return sets, nil
}

// functions returns a set with a policy for each CEL function.
func functions() *set {
	s := &set{name: "functions of CEL", left: map[string]int{}, seen: map[string]bool{}}
	calls := celcalls.Expressions()
	for i, call := range slices.Sorted(maps.Keys(calls)) {
		s.add(call, celcalls.Policy(fmt.Sprintf("function-%03d", i), calls[call]))
	}
	return s
}

// moduleDir returns the directory of a module in the module cache. It downloads a missing module.
func moduleDir(ctx context.Context, name string) (string, error) {
	path, version, ok := strings.Cut(name, "@")
	if !ok {
		return "", fmt.Errorf("modules.txt: %q is not MODULE@VERSION", name)
	}
	escaped, err := module.EscapePath(path)
	if err != nil {
		return "", err
	}
	cache, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE").Output()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(strings.TrimSpace(string(cache)), escaped+"@"+version)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		// The build of a module may need a later Go, but its files are downloaded anyway.
		out, err := exec.CommandContext(ctx, "go", "mod", "download", name).CombinedOutput()
		if _, missing := os.Stat(dir); missing != nil {
			return "", fmt.Errorf("%s: %w\n%s", name, err, out)
		}
	}
	return dir, nil
}

// read reads the objects of a directory.
func read(name, dir string) (*set, error) {
	s := &set{name: name, left: map[string]int{}, seen: map[string]bool{}}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(path)) {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, _ := filepath.Rel(dir, path)
		s.file(relative, data)
		return nil
	})
	s.namespaces()
	return s, err
}

// file adds the objects of a file.
func (s *set) file(origin string, data []byte) {
	if bytes.Contains(data, []byte("{{")) {
		s.left["files are templates"]++
		return
	}
	reader := utilyaml.NewYAMLReader(newReader(data))
	for {
		text, err := reader.Read()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				s.left["documents are not YAML"]++
			}
			return
		}
		var content map[string]any
		asJSON, err := yaml.YAMLToJSON(text)
		if err != nil || json.Unmarshal(asJSON, &content) != nil {
			s.left["documents are not YAML objects"]++
			continue
		}
		s.add(origin, content)
	}
}

func metadataOf(content map[string]any) map[string]any {
	m, _ := content["metadata"].(map[string]any)
	return m
}

// clusterScoped are cluster-scoped kinds with a namespace in some examples.
var clusterScoped = []string{"StorageClass", "PersistentVolume", "PriorityClass", "RuntimeClass", "ClusterRole", "ClusterRoleBinding"}

// maxItems limits the items of a list: a fixture of kubeconform has 100,000 equal ConfigMaps.
const maxItems = 1000

// add adds an object, or the first items of a list.
func (s *set) add(origin string, content map[string]any) {
	apiVersion, _ := content["apiVersion"].(string)
	kind, _ := content["kind"].(string)
	if items, ok := content["items"].([]any); ok && strings.HasSuffix(kind, "List") {
		if more := len(items) - maxItems; more > 0 {
			s.left["objects are further items of a long list"] += more
			items = items[:maxItems]
		}
		for _, item := range items {
			if one, ok := item.(map[string]any); ok {
				s.add(origin, one)
			}
		}
		return
	}
	metadata := metadataOf(content)
	name, _ := metadata["name"].(string)
	namespace, _ := metadata["namespace"].(string)
	switch {
	case apiVersion == "" || kind == "":
		if len(content) > 0 {
			s.left["documents are not Kubernetes objects"]++
		}
		return
	case strings.HasPrefix(apiVersion, "kustomize.config.k8s.io/"):
		s.left["documents are kustomizations"]++
		return
	case kind == "InitializerConfiguration" || kind == "ExternalAdmissionHookConfiguration":
		s.left["objects are of kinds that only Gatehouse serves, which check warns of"]++
		return
	case name == "" && metadata["generateName"] != nil:
		s.left["objects have a generated name, which kubectl apply refuses and check warns of"]++
		return
	}
	if namespace == "default" || slices.Contains(clusterScoped, kind) {
		// Namespaced objects without a namespace go to default. Cluster-scoped objects have no namespace.
		namespace = ""
	}
	if kind == "LimitRange" {
		if s.seen["LimitRange "+namespace] {
			s.left["are further limit ranges of a namespace, whose order kube-apiserver leaves to chance"]++
			return
		}
		s.seen["LimitRange "+namespace] = true
	}
	group, _, _ := strings.Cut(apiVersion, "/")
	if group == apiVersion {
		group = ""
	}
	key := strings.Join([]string{group, kind, namespace, name}, " ")
	if s.seen[key] {
		if _, ok := stageOf[kind]; ok || strings.Contains(kind, "Admission") || name == "" {
			s.left["objects are there twice"]++
			return
		}
		// A different name keeps the rest of the object in the comparison.
		metadata["name"] = fmt.Sprintf("%s-x%d", name, len(s.objects))
	}
	s.seen[key] = true
	s.objects = append(s.objects, object{content, origin})
}

// namespaces adds the namespaces that the objects name. Without them, every object would be rejected for its
// namespace.
func (s *set) namespaces() {
	var more []object
	for _, o := range s.objects {
		namespace, _ := metadataOf(o.content)["namespace"].(string)
		if key := " Namespace  " + namespace; namespace != "" && !s.seen[key] {
			s.seen[key] = true
			more = append(more, object{map[string]any{
				"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace},
			}, "added"})
		}
	}
	s.objects = append(s.objects, more...)
}

func fileOf(i int) string { return fmt.Sprintf("%05d.json", i) }

// write writes each object to a separate file.
func (s *set) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i, o := range s.objects {
		if err := writeObject(filepath.Join(dir, fileOf(i)), o.content); err != nil {
			return err
		}
	}
	return nil
}

func writeObject(path string, content map[string]any) error {
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
