package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// build sets the command of a program that is built from source.
func (p *project) build(found *Program, stages []*stage, at source, word string) error {
	switch {
	case at.build != nil:
		b := at.build
		if len(b.packages) != 1 && !strings.HasSuffix(b.packages[0], ".go") {
			return fmt.Errorf("%s: %q is built from several packages%s", found.Found, word, Remedy)
		}
		pkg, ok := p.origin(stages, at.stage, join(b.dir, b.packages[0]))
		if !ok || pkg.file == "" {
			// Flags about modules belong to the directory of the build.
			tags := slices.DeleteFunc(slices.Clone(b.flags), func(flag string) bool { return !strings.HasPrefix(flag, "-tags") })
			return p.guess(found, word, tags...)
		}
		found.Found += fmt.Sprintf(", 'go build' of %s", path.Base(word))
		return p.goRun(found, pkg.file, b.flags)
	case at.missing:
		// A command outside of the Dockerfile makes the file.
		return p.guess(found, word)
	case strings.HasSuffix(at.file, ".sh") || strings.HasPrefix(p.read(at.file), "#!"):
		if len(p.mains) > 0 {
			// Scripts of images prepare the container and start the program.
			found.Found += fmt.Sprintf(", without the script %s", at.file)
			return p.guess(found, word)
		}
	}
	found.Command = []string{"./" + at.file}
	return nil
}

// goRun sets 'go run' of a package: a directory, or a file of it.
func (p *project) goRun(found *Program, pkg string, flags []string) error {
	if strings.HasSuffix(pkg, ".go") {
		dir := path.Dir(pkg)
		if p.programs(dir) < 2 {
			pkg = dir
		}
	}
	module := "."
	for _, dir := range p.modules {
		if dir == "." || pkg == dir || strings.HasPrefix(pkg, dir+"/") {
			if module == "." || len(dir) > len(module) {
				module = dir
			}
		}
	}
	found.Dir = module
	if module != "." {
		pkg = strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/")
	}
	found.Command = append(append([]string{"go", "run"}, flags...), "./"+path.Clean("./"+pkg))
	if found.Command[len(found.Command)-1] == "./." {
		found.Command[len(found.Command)-1] = "."
	}
	return nil
}

var mainFunction = regexp.MustCompile(`(?m)^func main\(\)`)

// programs returns the number of main functions in a directory.
func (p *project) programs(dir string) (n int) {
	for _, name := range p.list(dir) {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			n += len(mainFunction.FindAllString(p.read(path.Join(dir, name)), -1))
		}
	}
	return n
}

// guess sets the main package that fits the name of a program best: the only one of the project, or the one in a
// directory of that name. flags are flags of its build.
func (p *project) guess(found *Program, word string, flags ...string) error {
	mains := p.products()
	name := strings.TrimSuffix(path.Base(word), ".sh")
	named := slices.DeleteFunc(slices.Clone(mains), func(dir string) bool { return path.Base(dir) != name })
	switch {
	case len(named) == 1:
		mains = named
	case len(mains) != 1 && slices.Contains(mains, "."):
		mains = []string{"."}
	}
	if len(mains) == 1 {
		found.Found += fmt.Sprintf(", the main package %s", mains[0])
		return p.goRun(found, mains[0], flags)
	}
	return p.failed(fmt.Sprintf("%s starts %s, and no instruction builds it from source", found.Found, word))
}

// products returns the main packages, without examples, tests and tools if there are others.
func (p *project) products() []string {
	rest := slices.DeleteFunc(slices.Clone(p.mains), func(dir string) bool {
		return slices.ContainsFunc(strings.Split(dir, "/"), func(part string) bool { return slices.Contains(aside, part) })
	})
	if len(rest) == 0 {
		return p.mains
	}
	return rest
}

// Remedy is the part of an error of Find that follows its reason.
const Remedy = ": name the program after --"

// failed returns an error with the nearest candidates.
func (p *project) failed(reason string) error {
	var candidates []string
	for _, dir := range p.products() {
		candidates = append(candidates, "go run ./"+dir)
	}
	for _, file := range []string{"main.py", "app.py", "webhook.py", "server.py"} {
		if p.exists(file) {
			candidates = append(candidates, "python3 "+file)
		}
	}
	if p.exists("package.json") {
		candidates = append(candidates, "npm start")
	}
	if len(candidates) == 0 {
		return errors.New(reason + Remedy)
	}
	const most = 5
	if len(candidates) > most {
		candidates = append(candidates[:most], "...")
	}
	return fmt.Errorf("%s%s, such as: %s", reason, Remedy, strings.Join(candidates, "; "))
}

// copies adds the files of the build context that are in the image, the last copy first.
func (p *project) copies(found *Program, s *stage) {
	for _, st := range slices.Backward(s.steps) {
		if st.run || st.mounted || st.from != "" {
			continue
		}
		for _, from := range st.sources {
			file := path.Join(p.base, path.Clean("/"+from))
			if !p.exists(file) {
				continue
			}
			target := st.target
			if !p.isDir(file) && (st.directory || st.target == s.workdir || st.target == "/") {
				target = path.Join(target, path.Base(file))
			}
			if target != "/" {
				found.Files = append(found.Files, File{target, file})
			}
		}
	}
}

// interpreter reports whether a program runs other programs from source.
func interpreter(word string) bool {
	return interpreters.MatchString(path.Base(word))
}

var interpreters = regexp.MustCompile(`^(python[0-9.]*|pypy3?|node|nodejs|npm|npx|yarn|pnpm|bun|deno|ts-node|tsx|ruby|bundle|perl|php|java|sh|bash|ash|dash|gunicorn|uvicorn|flask|hypercorn|waitress-serve|uwsgi|poetry|uv|pipenv|pdm|kopf|dotnet)$`)

// interpreted sets the command of a program that an interpreter runs.
func (p *project) interpreted(found *Program, stages []*stage, s *stage, entry []string) (*Program, error) {
	at, mapped := p.origin(stages, s, s.workdir)
	if mapped && p.isDir(at.file) {
		found.Dir = at.file
	} else if dir, ok := p.workdir(s); ok {
		found.Dir = dir
	}
	name := path.Base(entry[0])
	if !interpreter(entry[0]) {
		if script, ok := p.scripts(found.Dir)[name]; ok {
			module, function, _ := strings.Cut(script, ":")
			found.Command = []string{"python3", "-c", fmt.Sprintf("import sys; from %s import %s as run; sys.exit(run())", module, function)}
			found.Entry = entry[1:]
			if p.isDir(path.Join(found.Dir, "src")) {
				found.Environment = append(found.Environment, "PYTHONPATH=src")
			}
			found.Found += ", the script " + name + " of pyproject.toml"
			return found, nil
		}
		if len(p.mains) > 0 {
			return found, p.guess(found, entry[0])
		}
		return nil, p.failed(fmt.Sprintf("%s starts %s, which is not made from files of the project", found.Found, entry[0]))
	}
	found.Command, found.Entry = []string{name}, entry[1:]
	if strings.HasPrefix(name, "python") && !p.look(name) {
		found.Command[0] = "python3"
	}
	if !p.look(found.Command[0]) && !p.installed(found.Command[0]) {
		return nil, fmt.Errorf("%s starts %s, which is not installed here%s", found.Found, strings.Join(entry, " "), p.install(found.Dir))
	}
	if dir := found.Dir; nodePrograms.MatchString(name) && strings.Contains(p.read(path.Join(dir, "package.json")), `"dependencies"`) && !p.exists(path.Join(dir, "node_modules")) && !p.exists("node_modules") {
		return nil, fmt.Errorf("%s starts %s, and the packages of %s are not installed here: cd %s && npm install", found.Found, strings.Join(slices.Concat(entry, found.Arguments), " "), path.Join(dir, "package.json"), dir)
	}
	return found, nil
}

// nodePrograms run programs whose packages are in node_modules.
var nodePrograms = regexp.MustCompile(`^(node|nodejs|npm|npx|yarn|pnpm)$`)

// workdir returns the directory of the build context whose files a stage copies into its working directory.
func (p *project) workdir(s *stage) (dir string, ok bool) {
	for _, st := range slices.Backward(s.steps) {
		if st.run || st.mounted || st.from != "" {
			continue
		}
		for _, from := range st.sources {
			file := path.Join(p.base, path.Clean("/"+from))
			if p.exists(file) && (st.target == s.workdir || path.Dir(st.target) == s.workdir) {
				if p.isDir(file) && st.target == s.workdir {
					return file, true
				}
				return path.Dir(file), true
			}
		}
	}
	return "", false
}

// installed reports whether a program is in a virtual environment or in node_modules.
func (p *project) installed(name string) bool {
	return slices.ContainsFunc(p.prepared, func(dir string) bool { return p.exists(path.Join(dir, name)) })
}

// install returns a remedy for dependencies that are not installed; empty if none is known.
func (p *project) install(dir string) string {
	for _, known := range []struct{ file, command string }{
		{"requirements.txt", "python3 -m venv .venv && .venv/bin/pip install -r %s"}, {"Pipfile", "pipenv install"}, {"poetry.lock", "poetry install"}, {"package.json", "npm install"},
	} {
		for _, at := range []string{dir, p.base, "."} {
			if file := path.Join(at, known.file); p.exists(file) {
				if strings.Contains(known.command, "%s") {
					return ": " + fmt.Sprintf(known.command, file)
				}
				return ": " + known.command
			}
		}
	}
	return ""
}

var (
	scriptSection = regexp.MustCompile(`(?m)^\[(?:project|tool\.poetry)\.scripts\]\s*$`)
	scriptLine    = regexp.MustCompile(`^["']?([\w.-]+)["']?\s*=\s*["']([\w.]+:[\w.]+)["']`)
)

// scripts returns the scripts of pyproject.toml by name.
func (p *project) scripts(dir string) map[string]string {
	text := p.read(path.Join(dir, "pyproject.toml"))
	at := scriptSection.FindStringIndex(text)
	if at == nil {
		return nil
	}
	found := map[string]string{}
	for line := range strings.Lines(text[at[1]:]) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			break
		}
		if m := scriptLine.FindStringSubmatch(line); m != nil {
			found[m[1]] = m[2]
		}
	}
	return found
}

// ko sets the command of an image that ko builds: the import path of a package.
func (p *project) ko(pkg string) (*Program, error) {
	for _, dir := range p.modules {
		m := moduleLine.FindStringSubmatch(p.read(path.Join(dir, "go.mod")))
		if m == nil {
			continue
		}
		if rest, ok := strings.CutPrefix(pkg, m[1]); ok && (rest == "" || rest[0] == '/') {
			found := &Program{Found: "the image ko://" + pkg}
			return found, p.goRun(found, path.Join(dir, "./"+rest), nil)
		}
	}
	return nil, p.failed("the image ko://" + pkg + " is not of a module here")
}

var moduleLine = regexp.MustCompile(`(?m)^module\s+"?([^\s"]+)`)

// without finds the command of a project without a Dockerfile.
func (p *project) without(c Container) (*Program, error) {
	found := &Program{Dir: ".", Found: "no Dockerfile"}
	word := imageName(c.Image)
	if len(c.Command) > 0 {
		word = c.Command[0]
	}
	var manifest struct {
		Main    string
		Scripts map[string]string
	}
	_ = json.Unmarshal([]byte(p.read("package.json")), &manifest)
	scripts := p.scripts(".")
	switch {
	case len(p.mains) > 0:
		return found, p.guess(found, word)
	case manifest.Scripts["start"] != "":
		found.Command = []string{"npm", "start"}
	case manifest.Main != "":
		found.Command = []string{"node", manifest.Main}
	case len(scripts) == 1 || scripts[path.Base(word)] != "":
		for name := range scripts {
			if len(scripts) == 1 {
				word = name
			}
		}
		return p.interpreted(found, nil, &stage{workdir: "/"}, []string{path.Base(word)})
	default:
		return nil, p.failed("the manifests name the image " + c.Image + ", and no Dockerfile is here")
	}
	return found, nil
}

// list returns the names of the files in a directory.
func (p *project) list(dir string) (names []string) {
	entries, _ := fs.ReadDir(p.root, path.Clean(dir))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Flag is a flag of a program with a path as its default.
type Flag struct{ Name, Default string }

// flagPatterns find flags with a default path, in Go and in Python.
var flagPatterns = []*regexp.Regexp{
	regexp.MustCompile(`"([A-Za-z][\w.-]*)",\s*"(/[^"]*)"`),
	regexp.MustCompile(`["']--?([\w-]+)["'].*default\s*=\s*["'](/[^"']*)["']`),
}

// Flags returns the flags of a program whose default is a path of the container or below it.
func Flags(dir, name string) (found []Flag) {
	sources(dir, func(_, text string) {
		for line := range strings.Lines(text) {
			for _, pattern := range flagPatterns {
				m := pattern.FindStringSubmatch(line)
				if m == nil || m[2] != name && !strings.HasPrefix(m[2], name+"/") {
					continue
				}
				if f := (Flag{m[1], m[2]}); !slices.Contains(found, f) {
					found = append(found, f)
				}
			}
		}
	})
	return found
}

// Naming returns the first source file of a program that has a path of the container, or a path below it, as a string;
// empty for none.
func Naming(dir, name string) (file string) {
	pattern := regexp.MustCompile("[\"'`]" + regexp.QuoteMeta(name) + "[\"'`/]")
	sources(dir, func(at, text string) {
		if file == "" && pattern.MatchString(text) {
			file = at
		}
	})
	return file
}

// sources calls yield with each source file of a program and its text.
func sources(dir string, yield func(file, text string)) {
	p := &project{root: os.DirFS(dir), base: "."}
	_ = p.scan(func(file string) {
		if slices.Contains([]string{".go", ".py", ".js", ".ts"}, path.Ext(file)) && !strings.HasSuffix(file, "_test.go") {
			yield(file, p.read(file))
		}
	})
}
