package image

import (
	"cmp"
	"encoding/json"
	"maps"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// stage is a build stage of a Dockerfile.
type stage struct {
	name    string
	workdir string
	// variables are the build arguments and the environment; environment has the names of the latter, in order.
	variables   map[string]string
	environment []string
	steps       []step
	// sources is the number of sources of all copies.
	sources    int
	entry, cmd []string
}

// step is a RUN or COPY instruction. Paths of the stage are absolute.
type step struct {
	// run reports whether a shell command runs, and builds are the builds of Go programs in it.
	run    bool
	builds []goBuild
	// from is the stage of the sources of a copy, by name or number; empty for the build context.
	from    string
	sources []string
	target  string
	// mounted reports whether only a RUN instruction sees the copy, not the image.
	mounted bool
	// directory reports whether the target is a directory by its notation.
	directory bool
}

// mostInstructions bounds the instructions of a Dockerfile, and the sources of all copies of a stage: a stage has the
// steps of the stage that it begins with.
const mostInstructions = 1_000

// instructions splits a Dockerfile into instructions with joined lines. Here-documents are part of their instruction.
func instructions(text string) (found []string) {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	var joined strings.Builder
	for i := 0; i < len(lines) && len(found) < mostInstructions; i++ {
		line := strings.TrimSpace(lines[i])
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		rest, more := strings.CutSuffix(line, `\`)
		joined.WriteString(rest)
		if more {
			joined.WriteByte(' ')
			continue
		}
		instruction := joined.String()
		joined.Reset()
		if m := hereDocument.FindStringSubmatch(instruction); m != nil {
			begin := i + 1
			for i++; i < len(lines) && strings.TrimSpace(lines[i]) != m[1]; i++ {
			}
			instruction += "\n" + strings.Join(lines[begin:min(i, len(lines))], "\n")
		}
		found = append(found, instruction)
	}
	return found
}

var hereDocument = regexp.MustCompile(`<<-?["']?(\w+)["']?\s*$`)

// parse returns the stages of a Dockerfile. A stage that begins with another stage has the steps of both.
func parse(text string) (stages []*stage) {
	global := map[string]string{
		"TARGETOS": runtime.GOOS, "TARGETARCH": runtime.GOARCH, "TARGETPLATFORM": runtime.GOOS + "/" + runtime.GOARCH,
		"BUILDPLATFORM": runtime.GOOS + "/" + runtime.GOARCH, "GOPATH": "/go",
	}
	var s *stage
	for _, instruction := range instructions(text) {
		name, rest, _ := strings.Cut(instruction, " ")
		rest = strings.TrimSpace(rest)
		name = strings.ToUpper(name)
		if name == "FROM" {
			s = begin(stages, words(rest, global), global)
			stages = append(stages, s)
			continue
		}
		if s == nil {
			if name == "ARG" {
				assign(global, rest, global)
			}
			continue
		}
		s.add(name, rest)
	}
	return stages
}

// begin returns the stage of a FROM instruction.
func begin(stages []*stage, args []string, global map[string]string) *stage {
	args = slices.DeleteFunc(args, func(a string) bool { return strings.HasPrefix(a, "--") })
	s := &stage{workdir: "/", variables: maps.Clone(global)}
	if len(args) > 0 {
		if base := find(stages, args[0]); base != nil {
			copied := *base
			s = &copied
			s.variables, s.environment, s.steps = maps.Clone(base.variables), slices.Clone(base.environment), slices.Clone(base.steps)
		}
	}
	s.name = ""
	if len(args) == 3 && strings.EqualFold(args[1], "as") {
		s.name = args[2]
	}
	return s
}

// find returns a stage by name or number; nil if there is none.
func find(stages []*stage, name string) *stage {
	for i, s := range slices.Backward(stages) {
		if strings.EqualFold(s.name, name) && name != "" || name == strconv.Itoa(i) {
			return s
		}
	}
	return nil
}

// add adds an instruction to a stage.
func (s *stage) add(name, rest string) {
	switch name {
	case "ARG":
		assign(s.variables, rest, s.variables)
	case "ENV":
		s.environment = append(s.environment, assign(s.variables, rest, nil)...)
	case "WORKDIR":
		s.workdir = s.absolute(expand(rest, s.variables))
	case "ENTRYPOINT":
		s.entry, s.cmd = command(rest), nil
	case "CMD":
		s.cmd = command(rest)
	case "RUN":
		for strings.HasPrefix(rest, "--") {
			option, after, _ := strings.Cut(rest, " ")
			rest = strings.TrimSpace(after)
			if mount, ok := strings.CutPrefix(option, "--mount="); ok {
				s.mount(expand(mount, s.variables))
			}
		}
		if list := jsonList(rest); list != nil {
			rest = strings.Join(list, " ")
		}
		s.steps = append(s.steps, step{run: true, builds: goBuilds(rest, s.workdir, s.variables)})
	case "COPY", "ADD":
		c := step{}
		args := jsonList(rest)
		if args == nil {
			args = words(rest, s.variables)
		}
		for len(args) > 0 && strings.HasPrefix(args[0], "--") {
			if from, ok := strings.CutPrefix(args[0], "--from="); ok {
				c.from = from
			}
			args = args[1:]
		}
		if len(args) < 2 {
			return
		}
		target := args[len(args)-1]
		// A file of another machine is not of the project.
		c.sources = slices.DeleteFunc(args[:len(args)-1], func(from string) bool { return strings.Contains(from, "://") })
		c.target = s.absolute(target)
		c.directory = strings.HasSuffix(target, "/") || path.Base(target) == "." || len(c.sources) > 1
		s.copy(c)
	}
}

// copy adds a copy if the stage does not have too many sources.
func (s *stage) copy(c step) {
	if s.sources += len(c.sources); s.sources <= mostInstructions {
		s.steps = append(s.steps, c)
	}
}

// mount adds a bind mount of a RUN instruction as a copy, which the command sees in the same way.
func (s *stage) mount(options string) {
	given := map[string]string{"type": "bind", "source": "."}
	long := map[string]string{"src": "source", "dst": "target", "destination": "target"}
	for option := range strings.SplitSeq(options, ",") {
		name, value, _ := strings.Cut(option, "=")
		given[cmp.Or(long[name], name)] = value
	}
	if given["type"] == "bind" && given["target"] != "" {
		s.copy(step{from: given["from"], sources: []string{given["source"]}, target: s.absolute(given["target"]), mounted: true})
	}
}

// absolute returns a path of the stage.
func (s *stage) absolute(name string) string {
	if !path.IsAbs(name) {
		name = path.Join(s.workdir, name)
	}
	return path.Clean(name)
}

// assign adds the assignments of an ARG or ENV instruction to variables, and returns their names. A variable without a
// value keeps the value in outer.
func assign(variables map[string]string, text string, outer map[string]string) (names []string) {
	list := words(text, variables)
	if len(list) >= 2 && !strings.Contains(list[0], "=") && outer == nil {
		// The old notation: ENV NAME VALUE.
		variables[list[0]] = strings.Join(list[1:], " ")
		return list[:1]
	}
	for _, word := range list {
		name, value, ok := strings.Cut(word, "=")
		if _, known := outer[name]; known && !ok {
			continue
		}
		variables[name] = value
		names = append(names, name)
	}
	return names
}

// command returns the words of an ENTRYPOINT or CMD instruction. A shell runs a script only if it has more than one
// simple command.
func command(text string) []string {
	if list := jsonList(text); list != nil {
		return list
	}
	text = strings.TrimPrefix(text, "exec ")
	if strings.ContainsAny(text, "$&|;<>(){}*?`\n") {
		return []string{"/bin/sh", "-c", text}
	}
	return words(text, nil)
}

// jsonList returns the words of a JSON list; nil for another notation.
func jsonList(text string) (list []string) {
	if !strings.HasPrefix(text, "[") || json.Unmarshal([]byte(text), &list) != nil {
		return nil
	}
	return list
}
