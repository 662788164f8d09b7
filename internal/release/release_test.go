package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/elf"
	"debug/macho"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"sigs.k8s.io/yaml"
)

// host is the platform of the tests, which can run its programs.
var host = platform{runtime.GOOS, runtime.GOARCH}

// work is a shared directory of the tests.
var work string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "release-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	work = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// sources is a module that resembles Gatehouse and builds in a second: its program prints the name it was
// started under, and it depends on a k8s.io/kubernetes.
var sources = map[string]string{
	"LICENSE": "Do as you like.\n",
	"go.mod": `module example.com/gatehouse

go 1.26.0

require k8s.io/kubernetes v1.37.2

replace k8s.io/kubernetes v1.37.2 => ./kubernetes
`,
	"kubernetes/go.mod":     "module k8s.io/kubernetes\n\ngo 1.26.0\n",
	"kubernetes/version.go": "package kubernetes\n\nconst Minor = 37\n",
	"cmd/gatehouse/main.go": `package main

import (
	"fmt"
	"os"

	"k8s.io/kubernetes"
)

func main() { fmt.Println(os.Getenv("GATEHOUSE_PROGRAM"), kubernetes.Minor, os.Args[1:]) }
`,
	"cmd/gatehouse-agent/main.go": `package main

import (
	"fmt"
	"os"

	"k8s.io/kubernetes"
)

func main() { fmt.Println("agent", kubernetes.Minor, os.Args[1:]) }
`,
}

// newModule puts the sources into a git work tree.
func newModule(dir string) error {
	guide, err := os.ReadFile(path.Base(profile))
	if err != nil {
		return err
	}
	files := maps.Clone(sources)
	files[profile] = string(guide)
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return git(dir, "init", "-q", ".").also("add", ".").also("commit", "-q", "-m", "first").also("tag", "v1.2.3").err
}

// gitRun runs git commands in a directory until one fails.
type gitRun struct {
	dir string
	err error
}

func git(dir string, args ...string) gitRun { return gitRun{dir: dir}.also(args...) }

func (g gitRun) also(args ...string) gitRun {
	if g.err != nil {
		return g
	}
	cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"}, args...)...)
	cmd.Dir = g.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		g.err = fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return g
}

// released is a release of the sources for three platforms, in a directory.
var released = sync.OnceValues(func() (string, error) {
	module := filepath.Join(work, "module")
	if err := os.Mkdir(module, 0o755); err != nil {
		return "", err
	}
	if err := newModule(module); err != nil {
		return "", err
	}
	out := filepath.Join(work, "out")
	return out, optionsFor(module, out).run(context.Background(), io.Discard)
})

func release3(t *testing.T) string {
	t.Helper()
	dir, err := released()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func optionsFor(module, out string) *options {
	o := &options{module: module, out: out, platforms: []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "arm64"}}}
	if !slices.Contains(o.platforms, host) {
		o.platforms = append(o.platforms, host)
	}
	return o
}

func TestAReleaseHasItsFilesAndTheirChecksums(t *testing.T) {
	dir := release3(t)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	const checksums = "gatehouse_v1.2.3_checksums.txt"
	want := []string{checksums, "gatehouse_v1.2.3_krew.yaml", "gatehouse_v1.2.3_image.tar", "gatehouse-agent_v1.2.3_image.tar", "envtest-releases.yaml"}
	for _, p := range optionsFor("", "").platforms {
		want = append(want,
			fmt.Sprintf("gatehouse_v1.2.3_%s_%s.tar.gz", p.OS, p.Arch), fmt.Sprintf("gatehouse_v1.2.3_%s_%s.cdx.json", p.OS, p.Arch),
			fmt.Sprintf("gatehouse-agent_v1.2.3_%s_%s.tar.gz", p.OS, p.Arch), fmt.Sprintf("gatehouse-agent_v1.2.3_%s_%s.cdx.json", p.OS, p.Arch),
			fmt.Sprintf("envtest-v1.37.2-%s-%s.tar.gz", p.OS, p.Arch))
	}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("the files are\n%s\nwant\n%s", strings.Join(names, "\n"), strings.Join(want, "\n"))
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(read(t, filepath.Join(dir, checksums)))) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		sums[name] = sum
	}
	for _, name := range names {
		if name == checksums {
			continue
		}
		if got := sum(read(t, filepath.Join(dir, name))); sums[name] != got {
			t.Errorf("%s has the checksum %s, and the list says %q", name, got, sums[name])
		}
	}
}

func TestTheArchivesHaveTheirPrograms(t *testing.T) {
	for name, prints := range map[string]string{gatehouse: " 37 [version]\n", agent: "agent 37 [version]\n"} {
		members := untar(t, release3(t), fmt.Sprintf("%s_v1.2.3_%s_%s.tar.gz", name, host.OS, host.Arch))
		if string(members["LICENSE"].content) != sources["LICENSE"] {
			t.Errorf("%s has no license", name)
		}
		program := filepath.Join(unpack(t, members), name)
		if out, err := exec.Command(program, "version").Output(); err != nil || string(out) != prints {
			t.Errorf("%s prints %q, %v", name, out, err)
		}
		out, err := exec.Command("go", "version", "-m", program).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"-trimpath=true", "-pgo=server.pgo", "CGO_ENABLED=0", "mod\texample.com/gatehouse\tv1.2.3", "vcs.modified=false"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s does not say %s:\n%s", name, want, out)
			}
		}
		if bytes.Contains(read(t, program), []byte(work)) {
			t.Errorf("%s has a path of this machine", name)
		}
	}
}

// Each archive has a static program for its platform.
func TestProgramsAreForTheirPlatforms(t *testing.T) {
	dir := release3(t)
	for _, p := range optionsFor("", "").platforms {
		name := fmt.Sprintf("gatehouse_v1.2.3_%s_%s.tar.gz", p.OS, p.Arch)
		program := bytes.NewReader(untar(t, dir, name)["gatehouse"].content)
		if p.OS == "darwin" {
			f, err := macho.NewFile(program)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if want := map[string]macho.Cpu{"amd64": macho.CpuAmd64, "arm64": macho.CpuArm64}[p.Arch]; f.Cpu != want || f.Type != macho.TypeExec {
				t.Errorf("%s is a %s for %s", name, f.Type, f.Cpu)
			}
			// macOS kills programs for arm64 that are not signed. The linker signs them.
			if signed := slices.ContainsFunc(f.Loads, func(l macho.Load) bool { return f.ByteOrder.Uint32(l.Raw()) == codeSignature }); p.Arch == "arm64" && !signed {
				t.Errorf("%s has no signature", name)
			}
			continue
		}
		f, err := elf.NewFile(program)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[p.Arch]; f.Machine != want {
			t.Errorf("%s is for %s", name, f.Machine)
		}
		if f.Section(".interp") != nil {
			t.Errorf("%s is not static", name)
		}
	}
}

// codeSignature is the load command of a signature, LC_CODE_SIGNATURE.
const codeSignature = 0x1d

// A release has no traces of a machine: another clone, another cache and another temporary directory give the
// same bytes.
func TestAReleaseIsReproducible(t *testing.T) {
	first := release3(t)
	dir := t.TempDir()
	module, out := filepath.Join(dir, "elsewhere"), filepath.Join(dir, "out")
	if err := git(dir, "clone", "-q", filepath.Join(work, "module"), module).err; err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOFLAGS", "-buildvcs=false")
	t.Setenv("TMPDIR", dir)
	if err := optionsFor(module, out).run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	const checksums = "gatehouse_v1.2.3_checksums.txt"
	if a, b := string(read(t, filepath.Join(first, checksums))), string(read(t, filepath.Join(out, checksums))); a != b {
		t.Errorf("the first release has\n%s\nthe second one\n%s", a, b)
	}
}

// The archive for setup-envtest has regular files only, and each file starts the program under its name.
func TestTheArchiveForSetupEnvtest(t *testing.T) {
	dir := release3(t)
	name := fmt.Sprintf("envtest-v1.37.2-%s-%s.tar.gz", host.OS, host.Arch)
	members := untar(t, dir, name)
	programs := unpack(t, members)
	if len(members) != 3 {
		t.Errorf("it has %d members, want 3", len(members))
	}
	for member, want := range map[string]string{"kube-apiserver": " 37 [--help]\n", "etcd": "etcd 37 [--help]\n", "kubectl": "kubectl 37 [--help]\n"} {
		// The shell may also find them on the PATH.
		for _, cmd := range []*exec.Cmd{exec.Command(filepath.Join(programs, member), "--help"), {Path: "/usr/bin/env", Args: []string{"env", member, "--help"}}} {
			cmd.Env = []string{"PATH=" + programs + ":/usr/bin:/bin"}
			if out, err := cmd.Output(); err != nil || string(out) != want {
				t.Errorf("%s prints %q, %v, want %q", cmd, out, err, want)
			}
		}
	}
	var found struct {
		Releases map[string]map[string]struct {
			// Hash is the SHA-512 of the archive.
			Hash     string `json:"hash"`
			SelfLink string `json:"selfLink"`
		} `json:"releases"`
	}
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(dir, indexName)), &found); err != nil {
		t.Fatal(err)
	}
	entry := found.Releases["v1.37.2"][name]
	if want := "https://example.com/gatehouse/releases/download/v1.2.3/" + name; entry.SelfLink != want || len(entry.Hash) != 128 {
		t.Errorf("the index has %+v", entry)
	}
}

func TestTheListOfModules(t *testing.T) {
	in, err := os.Open(filepath.Join(release3(t), "gatehouse_v1.2.3_linux_arm64.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	list := new(cdx.BOM)
	if err := cdx.NewBOMDecoder(in, cdx.BOMFileFormatJSON).Decode(list); err != nil {
		t.Fatal(err)
	}
	if c := list.Metadata.Component; c.PackageURL != "pkg:golang/example.com/gatehouse@v1.2.3" || c.Version != "v1.2.3" {
		t.Errorf("it is about %+v", c)
	}
	var links []string
	for _, c := range *list.Components {
		links = append(links, c.PackageURL)
	}
	want := []string{"pkg:golang/std@" + strings.TrimPrefix(runtime.Version(), "go"), "pkg:golang/k8s.io/kubernetes@v1.37.2"}
	if !slices.Equal(links, want) {
		t.Errorf("it has %q, want %q", links, want)
	}
}

// An image is for all Linux platforms, and its program runs as an unprivileged user. The image of the agent has
// neither the other program nor a directory for data.
func TestTheImages(t *testing.T) {
	for _, name := range []string{gatehouse, agent} {
		t.Run(name, func(t *testing.T) { checkImages(t, name) })
	}
}

func checkImages(t *testing.T, name string) {
	t.Helper()
	dir := unpack(t, untar(t, release3(t), name+"_v1.2.3_image.tar"))
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	top, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(top.Manifests) != 1 || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "v1.2.3" {
		t.Fatalf("the layout has %+v", top.Manifests)
	}
	images, err := index.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := images.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
		image, err := images.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, name, image)
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("the platforms are %q, want %q", platforms, want)
	}
}

func checkImage(t *testing.T, name string, image v1.Image) {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := file.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/usr/local/bin/" + name}) || slices.Contains(c.Env, "GATEHOUSE_DATA_DIR=/var/lib/gatehouse") != (name == gatehouse) {
		t.Errorf("the configuration is %+v", c)
	}
	contents := mutate.Extract(image)
	defer contents.Close()
	members := readTar(t, contents)
	type expected struct {
		mode int64
		uid  int
		has  string
	}
	wanted, home := map[string]expected{}, ""
	if name == gatehouse {
		home = "var/lib/gatehouse"
		wanted[home] = expected{0o700, 65532, ""}
	} else if _, ok := members["usr/local/bin/gatehouse"]; ok || members["var/lib/gatehouse"].header != nil {
		t.Errorf("the image of %s has gatehouse", name)
	}
	maps.Copy(wanted, map[string]expected{
		"usr/local/bin/" + name:             {0o755, 0, "Go build"},
		"tmp":                               {0o1777, 0, ""},
		"etc/passwd":                        {0o644, 0, "gatehouse:x:65532:65532::/" + home + ":"},
		"etc/ssl/certs/ca-certificates.crt": {0o644, 0, "BEGIN CERTIFICATE"},
		"usr/share/zoneinfo.zip":            {0o644, 0, "Europe/Berlin"},
	})
	for name, want := range wanted {
		m, ok := members[name]
		if !ok {
			t.Errorf("%s: the image has no %s", file.Architecture, name)
			continue
		}
		if m.header.Mode != want.mode || m.header.Uid != want.uid || !bytes.Contains(m.content, []byte(want.has)) {
			t.Errorf("%s: %s has the mode %o, the owner %d and %d bytes", file.Architecture, name, m.header.Mode, m.header.Uid, len(m.content))
		}
	}
}

// krewPlugin is the manifest of a plugin, as krew reads it.
type krewPlugin struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   krewMetadata `json:"metadata"`
	Spec       krewSpec     `json:"spec"`
}

type krewMetadata struct {
	Name string `json:"name"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector krewSelector `json:"selector"`
	URI      string       `json:"uri"`
	SHA256   string       `json:"sha256"`
	// Bin is the file that krew puts on the PATH, under the name of the plugin.
	Bin   string     `json:"bin"`
	Files []krewFile `json:"files"`
}

type krewSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// krewFile is an installed file of the archive.
type krewFile struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// krew finds the archive of each platform, and the installed files in it.
func TestTheManifestOfKrew(t *testing.T) {
	dir := release3(t)
	var plugin krewPlugin
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(dir, "gatehouse_v1.2.3_krew.yaml")), &plugin); err != nil {
		t.Fatal(err)
	}
	if plugin.Metadata.Name != "gatehouse" || plugin.Spec.Version != "v1.2.3" || len(plugin.Spec.ShortDescription) > 50 {
		t.Errorf("the plugin is %+v", plugin)
	}
	if len(plugin.Spec.Platforms) != len(optionsFor("", "").platforms) {
		t.Errorf("it is for %d platforms", len(plugin.Spec.Platforms))
	}
	for _, p := range plugin.Spec.Platforms {
		archive := path.Base(p.URI)
		labels := p.Selector.MatchLabels
		if want := fmt.Sprintf("gatehouse_v1.2.3_%s_%s.tar.gz", labels["os"], labels["arch"]); archive != want {
			t.Errorf("%v: the archive is %s", labels, archive)
			continue
		}
		if got := sum(read(t, filepath.Join(dir, archive))); got != p.SHA256 {
			t.Errorf("%s has the checksum %s, and the manifest says %s", archive, got, p.SHA256)
		}
		members := untar(t, dir, archive)
		for _, f := range p.Files {
			if _, ok := members[f.From]; !ok {
				t.Errorf("%s has no %s", archive, f.From)
			}
		}
		if _, ok := members[p.Bin]; !ok {
			t.Errorf("%s has no %s", archive, p.Bin)
		}
	}
}

func TestWhatCannotBeReleased(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(module string) error
		want   string
	}{
		{"a work tree with changes", func(module string) error {
			return os.WriteFile(filepath.Join(module, "cmd/gatehouse/more.go"), []byte("package main\n"), 0o644)
		}, "the work tree has changes: commit them, or use -modified"},
		{"no work tree", func(module string) error { return os.RemoveAll(filepath.Join(module, ".git")) }, "build it in a git work tree"},
		{"a work tree that Go does not see", func(module string) error {
			clone := filepath.Join(module, "clone")
			if err := os.Rename(filepath.Join(module, ".git"), clone); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(module, ".git"), []byte("gitdir: "+clone+"\n"), 0o644)
		}, "build in a clone"},
		{"no license", func(module string) error {
			return git(module, "rm", "-q", "LICENSE").also("commit", "-q", "-m", "x").err
		}, "LICENSE: no such file"},
		{"what does not compile", func(module string) error {
			if err := os.WriteFile(filepath.Join(module, "cmd/gatehouse/more.go"), []byte("package main\n\nx"), 0o644); err != nil {
				return err
			}
			return git(module, "add", ".").also("commit", "-q", "-m", "x").err
		}, "go build: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// Go also looks for a work tree above the module.
			module := t.TempDir()
			if err := errors.Join(newModule(module), tc.change(module)); err != nil {
				t.Fatal(err)
			}
			o := optionsFor(module, filepath.Join(module, "..", "out"))
			o.platforms = []platform{host}
			if err := o.run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
	if _, err := parse([]string{"-platforms", "linux"}); err == nil || !strings.Contains(err.Error(), `-platforms: "linux" is not of the form OS/ARCH`) {
		t.Errorf("a platform without an architecture: %v", err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// member is a file or a directory of an archive.
type member struct {
	header  *tar.Header
	content []byte
}

// untar reads an archive in a directory.
func untar(t *testing.T, dir, name string) map[string]member {
	t.Helper()
	var in io.Reader = bytes.NewReader(read(t, filepath.Join(dir, name)))
	if strings.HasSuffix(name, ".gz") {
		compressed, err := gzip.NewReader(in)
		if err != nil {
			t.Fatal(err)
		}
		in = compressed
	}
	return readTar(t, in)
}

func readTar(t *testing.T, in io.Reader) map[string]member {
	t.Helper()
	members := map[string]member{}
	for archive := tar.NewReader(in); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return members
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		members[path.Clean(header.Name)] = member{header, content}
	}
}

// unpack writes members to a directory, and returns that.
func unpack(t *testing.T, members map[string]member) string {
	t.Helper()
	dir := t.TempDir()
	for name, m := range members {
		if m.header.Typeflag != tar.TypeReg {
			t.Errorf("%s is not a regular file", name)
			continue
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, m.content, os.FileMode(m.header.Mode)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
