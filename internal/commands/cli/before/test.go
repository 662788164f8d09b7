package before

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite/recipe"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

type testOptions struct {
	definitions      command.Definitions
	paths            []string
	run              string
	list, call       bool
	startPrograms    bool
	engines          []string
	config           string
	recipes          []*recipe.Recipe
	failOnSkip       string
	update           bool
	init             string
	world            string
	serviceAddresses []string
	configFile       string
	release          command.Release
	enforcer         command.Enforcer
	output           command.ReportFormat
	coverage         string
	coverageMin      []string
	minimums         map[string]int
	mutate, base     string
	log              command.Logging
	// selected and skips are the regular expressions of run and failOnSkip; nil for none.
	selected, skips *regexp.Regexp
}

// NewTest returns the command gatehouse test.
func NewTest(streams command.Streams) *cobra.Command {
	o := &testOptions{log: command.NewLogging()}
	cmd := &cobra.Command{
		Use:   "test [PATH...]",
		Short: "Run tests of policies, webhooks and chains of admission",
		Args: func(_ *cobra.Command, args []string) error {
			if o.paths = args; len(args) == 0 {
				o.paths = []string{"."}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(cmd); err != nil {
				return err
			}
			if o.world != worldPolicy && o.world != worldAll {
				return command.Usagef("--world %q is not one of %s, %s", o.world, worldPolicy, worldAll)
			}
			if o.init != "" {
				return o.first(cmd.Context(), streams)
			}
			return o.execute(cmd.Context(), streams)
		},
	}
	command.AddSection(cmd, "Tests", func(f *pflag.FlagSet) {
		f.StringVar(&o.run, "run", "", "regular `expression` of the names of the tests to run")
		o.release.AddFlag(f, "this program's")
		o.enforcer.AddFlag(f, "kubernetes")
		o.definitions.AddFlag(f)
		command.AddConfigFlag(f, &o.config)
		f.StringVar(&o.coverage, "coverage", "", "report the coverage of policies and webhooks by the tests; with a `file` .html, .md, .info (LCOV) or .json, there")
		f.Lookup("coverage").NoOptDefVal = "-"
		f.StringSliceVar(&o.coverageMin, "coverage-min", nil, "exit with 1 if less than so many `percent` are covered: of all as 80, or of kinds as rules=100,lists=50; changes that --mutate makes are the kind mutants")
		f.StringVar(&o.mutate, "mutate", "", "run mutation tests: change one decision of a policy or webhook at a time, and report surviving mutants: `all`, or changed for lines that differ from --base")
		f.Lookup("mutate").NoOptDefVal = mutateAll
		f.StringVar(&o.base, "base", "main", "`commit` that --mutate=changed compares with")
		f.StringVar(&o.failOnSkip, "fail-on-skip", "", "exit with 1 if a test is skipped; with a regular `expression`, if the reason matches it")
		f.Lookup("fail-on-skip").NoOptDefVal = "."
		f.BoolVar(&o.update, "update", false, "write what happened into the files, for tests that fail; comments and order stay")
		f.StringVar(&o.init, "init", "", "write first tests for the policies in a `path` into a file next to each: requests that are allowed and rejected, each tried; the path is a file or a folder")
		f.StringVar(&o.world, "world", worldPolicy, "test environment of the files that --init writes: `policy` for the files with the policy, its bindings, params and definitions, or all for the whole folder")
		f.BoolVar(&o.list, "list", false, "list the tests and run none")
	})
	command.AddSection(cmd, "Webhooks", func(f *pflag.FlagSet) {
		f.BoolVar(&o.call, "call", false, "call the webhooks that no file answers for")
		f.BoolVar(&o.startPrograms, "start-programs", false, "start the programs that files with tests, and the configuration file, name; only for files that you trust")
		f.StringArrayVar(&o.engines, "engine", nil, "start an `engine` of policies, which decides by its own policies: gatekeeper, kyverno, the same with its directory as NAME=PATH, or the path of a recipe; may be repeated")
		f.StringArrayVar(&o.serviceAddresses, "service-address", nil, "address of a service whose webhook is called, as NAMESPACE/NAME[:PORT]=HOST:PORT; may be repeated")
		f.StringVar(&o.configFile, "admission-control-config-file", "", "`file` with the configuration of the API server's plugins, whose manifest files are enforced, too")
	})
	command.AddSection(cmd, "Output", func(f *pflag.FlagSet) {
		o.output.AddFlag(f)
		o.log.AddFlags(f, "verbosity: 1 lists the tests that pass; 2 and more include the log of the server")
	})
	return cmd
}

func (o *testOptions) complete(cmd *cobra.Command) error {
	configured, err := command.ReadConfiguration(cmd, o.config)
	if err != nil {
		return err
	}
	if named := configured.Test.Engines; !cmd.Flags().Changed("engine") && len(named) > 0 {
		// The author of the file would choose a program to run here.
		if !o.startPrograms {
			return command.Usagef("%s names an engine (%s), which is started with --start-programs only: name that flag if you trust the file, or --engine", o.config, strings.Join(named, ", "))
		}
		for _, one := range named {
			o.engines = append(o.engines, configured.EngineBelow(one))
		}
	}
	for _, one := range o.engines {
		read, err := recipe.Read(one)
		if err != nil {
			return command.Usagef("--engine %s: %w", one, err)
		}
		o.recipes = append(o.recipes, read)
	}
	if len(o.recipes) > 0 && o.mutate != "" {
		return command.Usagef("--engine does not go with --mutate: an engine takes too long to read each change")
	}
	if len(o.serviceAddresses) > 0 && !o.call {
		return command.Usagef("--service-address needs --call")
	}
	if err := cmp.Or(o.checkMutate(), o.checkCoverage()); err != nil {
		return err
	}
	if o.selected, err = expression("run", o.run); err != nil {
		return err
	}
	o.skips, err = expression("fail-on-skip", o.failOnSkip)
	return err
}

// expression compiles the regular expression of a flag; nil for none.
func expression(flag, text string) (*regexp.Regexp, error) {
	if text == "" {
		return nil, nil
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, command.Usagef("--%s: %w", flag, err)
	}
	return compiled, nil
}

// errTests is the error of a run with tests that failed or could not be evaluated.
type errTests struct{ failed, broken int }

func (e errTests) Error() string {
	switch {
	case e.broken == 0:
		return report.Count(e.failed, "test") + " failed"
	case e.failed == 0:
		return report.Count(e.broken, "test") + " could not be decided"
	}
	return fmt.Sprintf("%s failed, %s could not be decided", report.Count(e.failed, "test"), report.Count(e.broken, "test"))
}

// errFiles is the error of files with invalid tests.
type errFiles []*suite.FileError

func (e errFiles) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

func (o *testOptions) execute(ctx context.Context, streams command.Streams) error {
	if err := o.release.Choose(emulation.Cluster{}); err != nil {
		return err
	}
	shown := &terminal.Progress{}
	if o.log.Verbosity < 2 {
		shown = terminal.NewProgress(streams.Err, "Reading files", command.ProgressAfter)
	}
	defer shown.End()
	var through []string
	for _, recipe := range o.recipes {
		through = append(through, recipe.Name)
	}
	set, err := suite.Find(o.paths, suite.Reading{Call: o.call, Through: through, Update: o.update})
	if err != nil {
		return command.UsageError{Err: err}
	}
	if len(set.Suites) == 0 && len(set.Errors) > 0 {
		return command.UsageError{Err: errFiles(set.Errors)}
	}
	if len(set.Suites) == 0 {
		return command.Usagef("there are no tests in %s: a document of gatehouse.dev/v1alpha1, kind AdmissionTests, has some", strings.Join(o.paths, ", "))
	}
	if o.list {
		shown.End()
		return o.ended(streams, set, o.printList(streams.Out, set))
	}
	if err := o.log.StartFromTwo(ctx, streams.Err); err != nil {
		return err
	}
	command.BoundMemory(streams, testMemory)
	mutates, end, err := o.mutates(ctx)
	if err != nil {
		return err
	}
	defer end()
	options := suite.Options{
		Set: set, Run: o.selected, FailOnSkip: o.skips, Coverage: o.coverage != "" || len(o.minimums) > 0, Call: o.call, ServiceAddresses: o.serviceAddresses, AdmissionConfigFile: o.configFile, StartPrograms: o.startPrograms, Engines: o.recipes, Repeat: o.command(), Gatehouse: o.enforcer.Gatehouse(nil),
		Fields:   o.release.Fields(nil),
		Mutate:   mutates,
		Progress: func(done, of int) { shown.Set(fmt.Sprintf("%d of %d tests", done, of)) },
	}
	if options.Manifests, err = manifestDirectories(o.configFile); err != nil {
		return err
	}
	if options.Definitions, err = o.definitions.Open(); err != nil {
		return err
	}
	shown.Set("Starting a server")
	found, err := suite.Run(ctx, options)
	shown.End()
	if err != nil {
		return err
	}
	if found.Summary.Tests == 0 && len(set.Errors) == 0 {
		return command.Usagef("--run %q selects none of the tests", o.run)
	}
	for _, note := range found.Notes {
		terminal.Fprintf(streams.Err, "note: %s\n", terminal.Indented(note, "  "))
	}
	if o.update {
		err = o.updateFiles(streams.Out, found)
	} else if err = cmp.Or(o.print(streams.Out, found), o.writeCoverage(found.Coverage)); err == nil && found.Failed() {
		err = errTests{found.Summary.Failed, found.Summary.Errors}
	}
	if err == nil {
		err = o.covered(found)
	}
	if nothing := found.Nothing(); err == nil && nothing != nil && len(set.Errors) == 0 {
		return command.Refuse(streams, nothing)
	}
	return o.ended(streams, set, err)
}

// testMemory is the memory limit of the Go runtime, in bytes: the heap is collected more often above it. It
// holds the server and some thousand tests.
const testMemory = 390 << 20

// The values of --world.
const (
	worldPolicy = "policy"
	worldAll    = "all"
)

// first writes the first tests for the policies of a file, or of each file in a folder.
func (o *testOptions) first(ctx context.Context, streams command.Streams) error {
	if err := o.release.Choose(emulation.Cluster{}); err != nil {
		return err
	}
	if err := o.log.StartFromTwo(ctx, streams.Err); err != nil {
		return err
	}
	options := suite.FirstOptions{All: o.world == worldAll, Gatehouse: o.enforcer.Gatehouse(nil), Fields: o.release.Fields(nil)}
	info, err := os.Stat(o.init)
	if err != nil || !info.IsDir() {
		to := suite.FirstFile(o.init)
		if _, err := os.Lstat(to); err == nil {
			return command.Usagef("--init %s: %s is there: remove it, or add tests to it", o.init, to)
		}
		return o.firstOf(ctx, streams, o.init, options)
	}
	options.Root = o.init
	list, err := suite.PolicyFiles(o.init)
	if err != nil {
		return command.UsageError{Err: err}
	}
	written := 0
	for _, file := range list {
		to := suite.FirstFile(file)
		if _, err := os.Lstat(to); err == nil {
			terminal.Fprintf(streams.Err, "skipped %s: %s is there\n", file, to)
			written++
			continue
		}
		switch err := o.firstOf(ctx, streams, file, options); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			terminal.Fprintf(streams.Err, "skipped %s: %s\n", file, terminal.Indented(err.Error(), "  "))
		default:
			written++
		}
	}
	if written == 0 {
		return command.Usagef("--init %s: no tests were written for the policies in %s", o.init, report.Count(len(list), "file"))
	}
	return nil
}

// firstOf writes the first tests for the policies of a file.
func (o *testOptions) firstOf(ctx context.Context, streams command.Streams, file string, options suite.FirstOptions) error {
	shown := terminal.NewProgress(streams.Err, "Trying requests for "+file, command.ProgressAfter)
	text, err := suite.First(ctx, file, options)
	shown.End()
	if err != nil {
		return command.UsageError{Err: err}
	}
	to := suite.FirstFile(file)
	if err := writeNew(to, text); err != nil {
		return err
	}
	open := strings.Count(string(text), "# Missing: ")
	left := ""
	if open > 0 {
		left = fmt.Sprintf("; %s for missing tests", report.Count(open, "comment"))
	}
	_, err = terminal.Fprintf(streams.Out, "wrote %s: %s%s\n", to, report.Count(strings.Count(string(text), "\n- name: "), "test"), left)
	return err
}

// writeNew creates a file. It is an error if the file exists, and links are not followed.
func writeNew(file string, text []byte) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// ended returns the final error of a run: invalid files have priority over failed tests (S24.9).
func (o *testOptions) ended(streams command.Streams, set *suite.Set, err error) error {
	switch {
	case len(set.Errors) == 0:
		return err
	case err != nil && !errors.As(err, new(errTests)):
		return err
	case err != nil:
		terminal.Fprintf(streams.Err, "gatehouse: %s\n", err.Error())
	}
	return command.Refuse(streams, errFiles(set.Errors))
}

// command returns the command line that repeats the run.
func (o *testOptions) command() string {
	var b strings.Builder
	b.WriteString("gatehouse test")
	for _, path := range o.paths {
		b.WriteString(" " + shellWord(path))
	}
	if o.enforcer.Wanted != "" {
		b.WriteString(" --for " + o.enforcer.Wanted)
	}
	if o.call {
		b.WriteString(" --call")
	}
	if o.startPrograms {
		b.WriteString(" --start-programs")
	}
	for _, one := range o.engines {
		b.WriteString(" --engine " + shellWord(one))
	}
	if o.configFile != "" {
		b.WriteString(" --admission-control-config-file " + shellWord(o.configFile))
	}
	for _, address := range o.serviceAddresses {
		b.WriteString(" --service-address " + shellWord(address))
	}
	return b.String()
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:=@%+,-]+$`)

// shellWord quotes a word for a shell.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func (o *testOptions) printList(out io.Writer, set *suite.Set) error {
	for _, s := range set.Suites {
		for _, t := range s.Tests {
			if o.selected != nil && !o.selected.MatchString(t.Name) {
				continue
			}
			if _, err := terminal.Fprintf(out, "%s: %s\n", report.Place(s.File, t.Line, 0), t.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// updateFiles writes the actual results into the files of the failed tests.
func (o *testOptions) updateFiles(out io.Writer, r *suite.Report) error {
	texts, refused := r.Update()
	for _, file := range slices.Sorted(maps.Keys(texts)) {
		// The link may be from another author.
		if to, err := os.Readlink(file); err == nil {
			return fmt.Errorf("%s is not updated: it is a link to %s; name that file", file, to)
		}
		if err := files.ReplaceOutput(file, texts[file], 0o644); err != nil {
			return err
		}
		if _, err := terminal.Fprintf(out, "updated %s\n", file); err != nil {
			return err
		}
	}
	if len(refused) > 0 {
		return errFiles(refused)
	}
	if r.Summary.Errors > 0 {
		return errTests{0, r.Summary.Errors}
	}
	return nil
}
