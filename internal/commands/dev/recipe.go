package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/commands/dev/image"
	"github.com/gatehouse-dev/gatehouse/internal/kit/subprocess"
)

// recipe has the commands that build and start the program.
type recipe struct {
	// build is the command that builds the program; nil if none is needed.
	build []string
	// pkg has the flags and the Go package that the session builds; nil for none. Each build writes a new file,
	// which becomes the first word of run.
	pkg []string
	// given are the words in front of run in messages: 'go run' with its package.
	given []string
	// base is run before fill.
	base, run []string
	built     int
	// ended is the number of builds in a row that ended because another one would follow.
	ended int
	// dir is the working directory; empty for the directory of this process.
	dir string
}

// newRecipe parses the command line of a program. 'go run PACKAGE ARGUMENTS' is split, so that the previous
// program serves while the session builds the package.
func newRecipe(command []string, build string) (*recipe, error) {
	r := &recipe{base: command, run: command}
	if build != "" {
		r.build = []string{"/bin/sh", "-c", build}
		return r, nil
	}
	if len(command) < 2 || filepath.Base(command[0]) != "go" || command[1] != "run" {
		return r, nil
	}
	at := 2
	for at < len(command) && strings.HasPrefix(command[at], "-") {
		name := strings.TrimLeft(command[at], "-")
		if name == "exec" || strings.HasPrefix(name, "exec=") {
			return nil, errors.New("go run -exec: build the program with --build, and name what runs it as the command")
		}
		if at++; image.TakesValue(name) {
			at++
		}
	}
	end := at
	for end < len(command) && strings.HasSuffix(command[end], ".go") {
		end++
	}
	if end == at {
		end++
	}
	if at >= len(command) {
		return nil, errors.New("go run: name the package")
	}
	r.build, r.pkg, r.given = slices.Concat([]string{command[0], "build"}, command[2:at], asRun(command[0], command[2:at])), command[at:end], command[:end]
	r.base, r.run = command[end:], command[end:]
	return r, nil
}

// asRun returns flags for 'go build' beside the given ones: without debug information, which is a large part of a link, and
// without the state of the repository. Flags of the user's GOFLAGS are kept.
func asRun(program string, given []string) (flags []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	// The variable may be in the file of 'go env -w'.
	set, err := exec.CommandContext(ctx, program, "env", "GOFLAGS").Output()
	if err != nil {
		set = []byte(os.Getenv("GOFLAGS"))
	}
	given = slices.Concat(strings.Fields(string(set)), given)
	for _, flag := range []string{"-buildvcs=false", "-ldflags=-s -w"} {
		name, _ := flagName(flag)
		if !slices.ContainsFunc(given, func(word string) bool {
			other, _ := flagName(strings.Trim(word, `'"`))
			return other == name
		}) {
			flags = append(flags, flag)
		}
	}
	return flags
}

// fill replaces ${NAME} in the command line by the value of NAME, and appends arguments. Other uses of $ stay, since the
// command may be a script.
func (r *recipe) fill(values map[string]string, arguments []string) []string {
	var pairs []string
	for name, value := range values {
		pairs = append(pairs, "${"+name+"}", value)
	}
	r.run = slices.Clone(r.base)
	for i := range r.run {
		r.run[i] = strings.NewReplacer(pairs...).Replace(r.run[i])
	}
	r.run = append(r.run, arguments...)
	return r.run
}

// mostEnded bounds the builds in a row that end because another one would follow, so that files that change all the time
// do not prevent every build.
const mostEnded = 3

// errBuild is the error of a failed build; the output of the build has the reason.
var errBuild = errors.New("the build failed")

// make builds the program into dir, and returns its command line. A package is built to a new file, because the
// previous program may still run, and its build ends with errInterrupted when another one would follow it. Go's temporary
// files are in dir, too, since a build that is killed does not remove them.
func (r *recipe) make(ctx context.Context, g *guard, env []string, dir string, output io.Writer, interrupted func() bool) (run []string, err error) {
	if r.build == nil {
		return r.run, nil
	}
	temporaries := filepath.Join(dir, builds)
	if err := os.MkdirAll(temporaries, 0o700); err != nil {
		return nil, err
	}
	env = append(slices.Clone(env), "GOTMPDIR="+temporaries)
	args, binary := r.build, ""
	if r.pkg != nil {
		r.built++
		name := strings.TrimSuffix(filepath.Base(r.pkg[0]), ".go")
		if name == "." || name == ".." {
			name = "program"
		}
		binary = filepath.Join(temporaries, strconv.Itoa(r.built), name)
		args = append(append(slices.Clone(args), "-o", binary), r.pkg...)
	}
	p, err := subprocess.Start(args, env, r.dir, output, output, g.set)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", args[0], err)
	}
	tick := time.NewTicker(firstLook)
	defer tick.Stop()
	for building := true; building; {
		select {
		case <-p.Gone:
			p.Stop(0)
			building, r.ended = false, 0
		case <-ctx.Done():
			p.Stop(time.Second)
			return nil, context.Cause(ctx)
		case <-tick.C:
			if r.pkg != nil && r.ended < mostEnded && interrupted() {
				r.ended++
				p.Stop(time.Second)
				return nil, errInterrupted
			}
		}
	}
	switch {
	case p.Err != nil:
		return nil, errors.Join(errBuild, p.Err)
	case binary == "":
		return r.run, nil
	}
	return append([]string{binary}, r.run...), nil
}

// builds is the directory of the built files, with a subdirectory for each build, and of the temporary files of builds.
const builds = "builds"

// clean removes the files of all builds except the program of the last.
func (r *recipe) clean(dir string) {
	dir = filepath.Join(dir, builds)
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != strconv.Itoa(r.built) {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}
