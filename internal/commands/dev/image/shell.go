package image

import (
	"regexp"
	"slices"
	"strings"
)

// reference is a variable in a shell command or a Dockerfile.
var reference = regexp.MustCompile(`\$(?:(\w+)|\{(\w+)(?:(:?[-+])([^}]*))?\})`)

// mostValues bounds the values of variables in a line, in bytes: a value may repeat another one, and so on.
const mostValues = 8 << 10

// expander replaces the variables of a line.
type expander struct {
	variables map[string]string
	// left bounds the values that may follow, in bytes.
	left int
}

// expand replaces variables. A variable that is not set, or has no room left, is empty.
func expand(text string, variables map[string]string) string {
	e := &expander{variables, mostValues}
	return e.expand(text)
}

func (e *expander) expand(text string) string {
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		m := reference.FindStringSubmatch(found)
		value := e.variables[m[1]+m[2]]
		switch strings.TrimPrefix(m[3], ":") {
		case "-":
			if value == "" {
				return e.expand(m[4])
			}
		case "+":
			if value != "" {
				return e.expand(m[4])
			}
			return ""
		}
		if e.left -= len(value); e.left < 0 {
			return ""
		}
		return value
	})
}

// words splits a line into words as a shell does, and replaces variables outside of single quotes. A command
// substitution is one word.
func words(line string, variables map[string]string) (found []string) {
	var word strings.Builder
	started := false
	end := func() {
		if started {
			found = append(found, word.String())
		}
		word.Reset()
		started = false
	}
	var plain strings.Builder
	values := &expander{variables, mostValues}
	// flush ends a part in which variables are replaced.
	flush := func() {
		word.WriteString(values.expand(plain.String()))
		plain.Reset()
	}
	quote, depth := byte(0), 0
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote == '\'':
			if c == quote {
				quote = 0
			} else {
				word.WriteByte(c)
			}
		case strings.HasPrefix(line[i:], "$("):
			depth++
			started = true
			plain.WriteByte(c)
		case depth > 0 && c == ')':
			depth--
			plain.WriteByte(c)
		case c == '\\' && i+1 < len(line):
			i++
			started = true
			flush()
			word.WriteByte(line[i])
		case quote == '"':
			if c == quote {
				quote = 0
			} else {
				plain.WriteByte(c)
			}
		case c == '\'' || c == '"':
			flush()
			quote, started = c, true
		case (c == ' ' || c == '\t' || c == '\n') && depth == 0:
			flush()
			end()
		default:
			started = true
			plain.WriteByte(c)
		}
	}
	flush()
	end()
	return found
}

// separator ends a simple command. Operators inside of quotes are rare in Dockerfiles, and a command that is cut there is
// not recognized.
var separator = regexp.MustCompile(`&&|\|\||;|\n`)

// goBuild is a 'go build' or 'go install' command.
type goBuild struct {
	// dir is the working directory, output the built file or directory; empty for the default.
	dir, output string
	flags       []string
	packages    []string
}

// kept are the flags of 'go build' that decide which code is built.
var kept = map[string]bool{"tags": true, "mod": true, "modfile": true}

// goBuilds returns the builds of Go programs in a shell command.
func goBuilds(text, dir string, variables map[string]string) (found []goBuild) {
	for _, simple := range separator.Split(text, -1) {
		list := words(strings.TrimLeft(strings.TrimSpace(simple), "@-+({ "), variables)
		for len(list) > 0 && (strings.Contains(list[0], "=") || list[0] == "env" || list[0] == "exec" || list[0] == "time") {
			list = list[1:]
		}
		switch {
		case len(list) == 2 && list[0] == "cd":
			dir = join(dir, list[1])
		case len(list) >= 2 && (list[0] == "go" || strings.HasSuffix(list[0], "/go")) && (list[1] == "build" || list[1] == "install"):
			b := goBuild{dir: dir}
			b.arguments(list[2:])
			found = append(found, b)
		}
	}
	return found
}

// valued are the flags of 'go build' and 'go run' that may have a value in the next word.
var valued = []string{"C", "asmflags", "buildmode", "compiler", "covermode", "coverpkg", "exec", "gccgoflags", "gcflags", "installsuffix", "ldflags", "mod",
	"modfile", "o", "overlay", "p", "pgo", "pkgdir", "tags", "toolexec"}

// TakesValue reports whether a flag of 'go build' or 'go run', without dashes, may have its value in the next word.
func TakesValue(flag string) bool { return slices.Contains(valued, flag) }

// arguments reads the arguments of 'go build'.
func (b *goBuild) arguments(args []string) {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		name, value, given := strings.Cut(strings.TrimLeft(args[0], "-"), "=")
		args = args[1:]
		if !given && TakesValue(name) && len(args) > 0 {
			value, args = args[0], args[1:]
		}
		switch {
		case name == "o":
			b.output = value
		case name == "C":
			b.dir = join(b.dir, value)
		case kept[name] && value != "":
			b.flags = append(b.flags, "-"+name+"="+value)
		}
	}
	b.packages = args
	if len(b.packages) == 0 {
		b.packages = []string{"."}
	}
}
