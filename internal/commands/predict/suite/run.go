package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/crdschema"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/rejection"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite/recipe"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// parallel bounds the concurrent requests, and worlds the concurrent test environments.
	parallel = 16
	worlds   = 4
	// parallelCalls bounds the concurrent requests if webhooks are called: an engine that is starting, or runs on a
	// small machine, must not time out because of the number of calls.
	parallelCalls = 4
)

// Options configure a run.
type Options struct {
	// Set has the tests.
	Set *Set
	// Run selects tests by their names; nil selects all.
	Run *regexp.Regexp
	// Call enables calls of webhooks without an answer in the test. ServiceAddresses are the addresses of webhooks that
	// name a service, each as NAMESPACE/NAME[:PORT]=HOST:PORT.
	Call             bool
	ServiceAddresses []string
	// AdmissionConfigFile is the AdmissionConfiguration of the server; empty for none. Manifests are the directories with
	// its manifest files.
	AdmissionConfigFile string
	Manifests           []string
	// Gatehouse and Fields have the meaning of the fields in stage.Options.
	Gatehouse bool
	Fields    *emulation.Fields
	// StartPrograms starts the programs that files with tests name (S24.18). Without it, the tests of such files cannot
	// be run.
	StartPrograms bool
	// Engines are started for the tests that they evaluate.
	Engines []*recipe.Recipe
	// FailOnSkip matches the reasons of skipped tests that count as errors; nil matches none.
	FailOnSkip *regexp.Regexp
	// Keep keeps the requests and the objects of all outcomes, which need much memory for many tests.
	Keep bool
	// Repeat is the command that repeats the run; a test adds its own name.
	Repeat string
	// Coverage adds the coverage of policies and webhooks to the report.
	Coverage bool
	// Definitions finds CRDs that are not in the files of a test environment; nil for none.
	Definitions *crdschema.Locations
	// Mutate, if set, selects registrations by their lines in a file. Each is changed, one decision at a time, and the
	// report lists the surviving mutants.
	Mutate func(file string, first, last int) (bool, error)
	// Progress, if set, is called with the number of tests done and their total, never concurrently.
	Progress func(done, of int)
}

// Report has the results of the tests. Its JSON is stable: fields are only ever added.
type Report struct {
	APIVersion        string  `json:"apiVersion"`
	Kind              string  `json:"kind"`
	KubernetesVersion string  `json:"kubernetesVersion"`
	Summary           Summary `json:"summary"`
	// Tests are in the order of the files and lines.
	Tests []*Result `json:"tests"`
	// Wrong lists the files whose tests were not run.
	Wrong []*FileError `json:"wrongFiles,omitempty"`
	// Without lists the files without tests.
	Without []string `json:"-"`
	// Notes are sentences about the limits of the tests.
	Notes []string `json:"notes,omitempty"`
	// Coverage is nil unless Options.Coverage is set.
	Coverage *Coverage `json:"coverage,omitempty"`
	// Mutants is nil unless registrations were changed.
	Mutants *Mutants `json:"mutants,omitempty"`
}

// Summary counts files and tests.
type Summary struct {
	Files int `json:"files"`
	// Without counts the searched files without tests.
	Without int `json:"filesWithoutTests"`
	Tests   int `json:"tests"`
	Passed  int `json:"passed"`
	Failed  int `json:"failed"`
	Skipped int `json:"skipped"`
	// Errors counts tests that could not be run.
	Errors int `json:"errors"`
	// StartSeconds is the total time to start the servers, and WorldSeconds the total time to load their objects;
	// Seconds is the duration of the whole run.
	StartSeconds float64 `json:"startSeconds"`
	WorldSeconds float64 `json:"worldSeconds"`
	TestSeconds  float64 `json:"testSeconds"`
	Seconds      float64 `json:"seconds"`
}

// Status is the status of a test.
type Status string

// The values of Status.
const (
	Passed  Status = "pass"
	Failed  Status = "fail"
	Skipped Status = "skip"
	// Broken tests could not be run.
	Broken Status = "error"
)

// Result is the result of one test.
type Result struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Name   string `json:"name"`
	Format string `json:"format"`
	Status Status `json:"status"`
	// Message is the reason why the test was skipped, or could not be run.
	Message  string    `json:"message,omitempty"`
	Failures []Failure `json:"failures,omitempty"`
	Outcome  *Outcome  `json:"outcome,omitempty"`
	// Request describes the request in one line.
	Request string `json:"request,omitempty"`
	// Explanation explains a failed test, in lines.
	Explanation []string `json:"explanation,omitempty"`
	// Diff is the difference between the expected and the actual object.
	Diff string `json:"diff,omitempty"`
	// Repeat is the command that repeats the test alone.
	Repeat string  `json:"repeat,omitempty"`
	Millis float64 `json:"milliseconds"`

	test *Test
	// touched lists the registrations whose rules match the request, by kind and name. The value reports whether the
	// registration acted on the request.
	touched map[string]bool
	// mutant is the mutant of a repeated test; nil for the first run.
	mutant *mutant
}

// NamespaceLabels returns the labels that the test gives to the namespace of its request; nil if it gives none.
func (r *Result) NamespaceLabels() map[string]string { return r.test.request.labels }

// Run runs tests. The error reports that they could not be run.
func Run(ctx context.Context, o Options) (*Report, error) {
	begin := time.Now()
	r := &runner{Options: o, named: map[string]bool{}, results: map[*Suite][]*Result{}, report: &Report{APIVersion: ownVersion, Kind: "TestReport", KubernetesVersion: emulation.Behaves("v" + emulation.Release), Tests: []*Result{}, Wrong: o.Set.Errors, Without: o.Set.Without}}
	if o.Coverage {
		r.report.Coverage = newCoverage()
	}
	groups := map[string][]*Suite{}
	files := map[string]bool{}
	var order []string
	for _, s := range o.Set.Suites {
		selected := false
		for _, t := range s.Tests {
			if o.Run != nil && !o.Run.MatchString(t.Name) {
				continue
			}
			selected = true
			result := &Result{File: s.File, Line: t.Line, Name: t.Name, Format: s.Format, test: t}
			r.report.Tests, r.results[s] = append(r.report.Tests, result), append(r.results[s], result)
		}
		if !selected {
			continue
		}
		files[s.File] = true
		key := s.worldKey()
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], s)
	}
	r.of, r.report.Summary.Files, r.report.Summary.Without = len(r.report.Tests), len(files), len(o.Set.Without)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(min(worlds, runtime.GOMAXPROCS(0)))
	for _, key := range order {
		group.Go(func() error { return r.group(groupCtx, groups[key]) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	r.silent()
	if r.invalid > 0 {
		r.report.Notes = append(r.report.Notes, fmt.Sprintf("without the validation of the API server, which rejects their objects first, the engine decided %s", report.Count(r.invalid, "request")))
	}
	r.report.finish()
	r.countMutants()
	if o.Coverage {
		r.report.Coverage.finish()
	}
	r.report.Summary.Seconds = time.Since(begin).Seconds()
	return r.report, nil
}

type runner struct {
	Options
	report *Report

	mu   sync.Mutex
	done int
	of   int
	// results are the results of the tests, by suite.
	results map[*Suite][]*Result
	// named are the policies that responses of webhooks named.
	named map[string]bool
	// invalid counts the requests that were evaluated without the validation of their kind.
	invalid int
	// mutants are the tried mutants, by their changes.
	mutants map[string]*tried
	// left counts the mutants that were not tried.
	left int
}

// silent skips tests that passed without a message of a webhook, for policies that no webhook named in any test: it is
// unknown whether the engine behind the webhooks has these policies. Then it turns skipped tests into errors as
// FailOnSkip requires (S24.20).
func (r *runner) silent() {
	for _, result := range r.report.Tests {
		if about := result.test.running; about != nil && result.test.Suite.engine == "" && result.Status == Passed && !r.named[about.name] {
			result.Status, result.Message = Skipped, fmt.Sprintf("no webhook named %s in any answer: see whether the engine that is called has it, and enforces it", about.name)
		}
		if r.FailOnSkip != nil && result.Status == Skipped && r.FailOnSkip.MatchString(result.Message) {
			result.Status = Broken
		}
	}
}

// note adds notes to the report, each once.
func (r *runner) note(notes ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, note := range notes {
		if !slices.Contains(r.report.Notes, note) {
			r.report.Notes = append(r.report.Notes, note)
		}
	}
}

// did counts a finished test.
func (r *runner) did() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	if r.Progress != nil {
		r.Progress(r.done, r.of)
	}
}

// judgeable returns the results of tests that can be run.
func (r *runner) judgeable(suites []*Suite) (judged []*Result) {
	for _, s := range suites {
		for _, result := range r.results[s] {
			switch {
			case result.Status != "":
			case result.test.Skip != "":
				result.Status, result.Message = Skipped, result.test.Skip
				r.did()
			case len(s.programs) > 0 && !r.StartPrograms:
				result.Status, result.Message = Broken, notStarted(result.File, &s.programs[0]).Error()
				r.did()
			default:
				judged = append(judged, result)
			}
		}
	}
	return judged
}

// broken marks tests as errors.
func (r *runner) broken(ctx context.Context, judged []*Result, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for i, result := range judged {
		result.Status, result.Message = Broken, err.Error()
		if first := judged[0]; i > 0 && errors.As(err, new(*worldError)) {
			result.Message = fmt.Sprintf("%s, for the reason that %s has (%s)", noWorld, first.Name, report.Place(first.File, first.Line, 0))
		}
		r.did()
	}
	return nil
}

// group runs the tests of suites that share a test environment, or an engine.
func (r *runner) group(ctx context.Context, suites []*Suite) error {
	judged := r.judgeable(suites)
	if len(judged) == 0 {
		return nil
	}
	shared := suites[0].engine == ""
	broken := func(err error) error {
		if shared && len(suites) > 1 && suites[0].extend != nil && ctx.Err() == nil {
			// A fault in one suite of another tool must not affect the others.
			for _, s := range suites {
				if err := r.group(ctx, []*Suite{s}); err != nil {
					return err
				}
			}
			return nil
		}
		return r.broken(ctx, judged, err)
	}
	set := &worldSet{&manifests.Set{}}
	if shared {
		var err error
		if set, err = world(suites); err != nil {
			return broken(fmt.Errorf("the test environment: %w", err))
		}
	}
	options := stage.Options{Webhooks: true, ServiceAddresses: slices.Clone(r.ServiceAddresses), Gatehouse: r.Gatehouse, Fields: r.Fields, AdmissionConfigFile: r.AdmissionConfigFile, Skips: r.Mutate != nil || r.Coverage}
	running, err := startPrograms(suites, r.recipes(suites, set), set, &options)
	if err != nil {
		return broken(err)
	}
	defer running.stop()
	options.MayConvert = r.mayConvert(running.services)
	opening := time.Now()
	p := &venue{running: running}
	if p.stage, err = stage.Open(ctx, options); err != nil {
		return broken(fmt.Errorf("starting a server to test with: %w", err))
	}
	defer p.stage.Close()
	// Objects of the test environment may need a program to convert them.
	if err := running.await(ctx); err != nil {
		return broken(err)
	}
	for _, e := range running.engines {
		if err := e.Start(ctx, p.stage); err != nil {
			return broken(err)
		}
		r.through(e.Recipe)
	}
	r.mu.Lock()
	r.report.Summary.StartSeconds += time.Since(opening).Seconds()
	r.mu.Unlock()
	if shared {
		return r.together(ctx, p, set, judged, broken)
	}
	for _, s := range suites {
		if judged := r.judgeable([]*Suite{s}); len(judged) > 0 {
			if err := r.alone(ctx, p, s, judged); err != nil {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				// The environment cannot be used any more.
				return r.broken(ctx, r.judgeable(suites), err)
			}
		}
	}
	return nil
}

// together runs the tests of suites with one test environment.
func (r *runner) together(ctx context.Context, p *venue, set *worldSet, judged []*Result, broken func(error) error) error {
	loading := time.Now()
	static, err := manifests.Read(r.Manifests, nil)
	if err != nil {
		return broken(err)
	}
	names := namesIn(slices.Concat(set.Objects, static.Objects))
	doubts, elsewhere, err := r.definedElsewhere(ctx, p, set, judged)
	policies := p.split(set)
	var notes []string
	if err == nil {
		notes, err = load(ctx, p.stage, set.Set)
	}
	notes = append(elsewhere, notes...)
	if err == nil {
		_, err = p.give(ctx, policies)
	}
	if err == nil {
		err = names.registered(ctx, p, policies)
	}
	r.mu.Lock()
	r.report.Summary.WorldSeconds += time.Since(loading).Seconds()
	r.mu.Unlock()
	r.note(notes...)
	if err != nil {
		return broken(err)
	}
	judged = slices.DeleteFunc(judged, func(result *Result) bool {
		err := cmp.Or(names.strange(result.test), doubts.of(result.test))
		if err != nil {
			result.Status, result.Message = Broken, err.Error()
			r.did()
		}
		return err != nil
	})
	if c := r.report.Coverage; c != nil {
		c.declare(set.Objects)
	}
	begin := time.Now()
	defer func() {
		r.mu.Lock()
		r.report.Summary.TestSeconds += time.Since(begin).Seconds()
		r.mu.Unlock()
	}()
	if err := r.runAll(ctx, p, judged); err != nil || r.Mutate == nil {
		return err
	}
	return r.mutate(ctx, p, set.Objects, judged)
}

// load stores the objects of a test environment in a stage. It returns a worldError if objects cannot be stored, with
// findings in the order of the files.
func load(ctx context.Context, w *stage.Stage, set *manifests.Set) (notes []string, err error) {
	var failures []report.Finding
	places := map[*unstructured.Unstructured]*manifests.Object{}
	objects := make([]*unstructured.Unstructured, len(set.Objects))
	for i, o := range set.Objects {
		objects[i] = o.Unstructured()
		places[objects[i]] = o
	}
	for _, p := range set.Problems {
		if !p.Warning {
			failures = append(failures, report.Finding{File: p.File, Line: p.Line, Message: p.Message})
		}
	}
	refused, notes, err := w.Load(ctx, metav1.FieldValidationStrict, objects)
	if err != nil {
		return nil, err
	}
	for i := range refused {
		r := &refused[i]
		o := places[r.Object]
		for _, f := range rejection.Faults(r.Status, r.Object.Object) {
			if r.Unserved {
				meant := w.Kinds().Meant(r.Object.GroupVersionKind())
				f.Place, f.Message = "apiVersion", f.Message+cmp.Or(meant, ": add the definition of the kind to the files")
			}
			line, _ := o.Place(f.Place)
			failures = append(failures, report.Finding{
				File: o.File, Line: line, Object: report.Title(r.Object.GetKind(), r.Object.GetNamespace(), r.Object.GetName()), Field: f.Field, Message: f.Message,
			})
		}
	}
	slices.SortStableFunc(failures, func(a, b report.Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(set.Files, a.File), slices.Index(set.Files, b.File)), cmp.Compare(a.Line, b.Line))
	})
	if len(failures) > 0 {
		err = &worldError{failures}
	}
	return append(w.Hardened(objects), notes...), err
}

// noWorld begins the error of tests whose test environment cannot be set up.
const noWorld = "the test environment cannot be created"

// maxFaults bounds the faults listed for a test environment.
const maxFaults = 20

// worldError reports that the objects around the tests cannot be created.
type worldError struct{ findings []report.Finding }

func (e *worldError) Error() string {
	lines := make([]string, 0, maxFaults+1)
	for i := range e.findings[:min(len(e.findings), maxFaults)] {
		f := &e.findings[i]
		lines = append(lines, f.Place()+": "+f.About())
	}
	if more := len(e.findings) - maxFaults; more > 0 {
		lines = append(lines, fmt.Sprintf("(and %d more)", more))
	}
	return noWorld + ": " + strings.Join(lines, "\n")
}

// runAll runs tests in a test environment. Tests that need labels of a namespace run in groups.
func (r *runner) runAll(ctx context.Context, p *venue, results []*Result) error {
	w := p.stage
	type labelled struct {
		namespace string
		labels    map[string]string
		results   []*Result
	}
	var plain []*Result
	var groups []*labelled
	for _, result := range results {
		labels := result.NamespaceLabels()
		if labels == nil {
			plain = append(plain, result)
			continue
		}
		namespace := result.test.request.namespaceOf()
		i := slices.IndexFunc(groups, func(g *labelled) bool { return g.namespace == namespace && maps.Equal(g.labels, labels) })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &labelled{namespace: namespace, labels: labels})
		}
		groups[i].results = append(groups[i].results, result)
	}
	if err := r.atOnce(ctx, p, plain); err != nil {
		return err
	}
	slices.SortStableFunc(groups, func(a, b *labelled) int { return cmp.Compare(a.namespace, b.namespace) })
	before := map[string]map[string]string{}
	for _, g := range groups {
		if _, known := before[g.namespace]; !known {
			labels, err := w.Labels(ctx, g.namespace)
			if err != nil {
				return err
			}
			before[g.namespace] = labels
		}
		if err := w.Label(ctx, g.namespace, g.labels); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			for _, result := range g.results {
				result.Status, result.Message = Broken, fmt.Sprintf("the labels of namespace %s: %v", g.namespace, err)
				r.did()
			}
			continue
		}
		if err := r.atOnce(ctx, p, g.results); err != nil {
			return err
		}
		if labels := before[g.namespace]; labels != nil {
			if err := w.Label(ctx, g.namespace, labels); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *runner) atOnce(ctx context.Context, p *venue, results []*Result) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	if r.Call || len(p.engines) > 0 {
		group.SetLimit(parallelCalls)
	}
	for _, result := range results {
		group.Go(func() error {
			defer r.did()
			err := r.runTest(groupCtx, p, result)
			if result.Outcome != nil && !r.Keep {
				result.Outcome.settle(result.Status)
			}
			return err
		})
	}
	return group.Wait()
}

// runTest runs one test.
func (r *runner) runTest(ctx context.Context, p *venue, result *Result) error {
	t, w := result.test, p.stage
	calls := &callers{call: r.Call, started: p.services, engines: p.engines}
	if result.mutant != nil {
		return r.attempt(ctx, w, result, calls)
	}
	begin := time.Now()
	var saw witness
	coverage := r.report.Coverage
	if coverage != nil {
		saw = coverage.saw
	}
	o, err := t.judge(ctx, w, calls, saw)
	result.Millis = float64(time.Since(begin).Microseconds()) / 1000
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		result.Status, result.Message = Broken, err.Error()
		if t.judgeBy != nil && errors.As(err, new(errUnjudged)) {
			result.Status = Skipped
		}
		return nil
	}
	result.Outcome, result.Request = o, o.title()
	if coverage != nil {
		coverage.took(o)
	}
	if r.Mutate != nil {
		result.touched = o.touched()
	}
	result.Failures, result.Message = t.unmet(o)
	for len(result.Failures) > 0 && r.late(t, o, begin) {
		if o, err = retry(ctx, t, w, calls); err != nil {
			return err
		}
		result.Outcome = o
		result.Failures, result.Message = t.unmet(o)
	}
	r.mu.Lock()
	if o.invalid {
		r.invalid++
	}
	if o.named {
		r.named[t.running.name] = true
	}
	r.mu.Unlock()
	switch {
	case result.Message != "":
		result.Status = Skipped
	case len(result.Failures) == 0:
		result.Status = Passed
	default:
		result.Status = Failed
		r.explain(ctx, w, result, calls)
	}
	return nil
}

// unmet returns the expectations of a test that an outcome does not meet. skip is the reason if there is nothing to
// compare.
func (t *Test) unmet(o *Outcome) (failures []Failure, skip string) {
	if t.judgeBy != nil {
		return t.judgeBy(o)
	}
	return t.compare(o), ""
}

// unconvertedKey is the key of an *atomic.Pointer[errUnjudged] in the context of a request.
type unconvertedKey struct{}

// mayConvert allows calls of conversion webhooks of started programs, and of all conversion webhooks with Call. It
// notes in the context of a request that a call was prevented, and the request then counts as not evaluated (S24.19).
func (r *runner) mayConvert(started map[string]bool) func(context.Context, string, *registration.ClientConfig) error {
	return func(ctx context.Context, definition string, to *registration.ClientConfig) error {
		if r.Call || to.Service != nil && started[to.Service.Namespace+"/"+to.Service.Name] {
			return nil
		}
		err := errUnjudged{fmt.Errorf("the webhook that converts %s is not called: start its program (programs, with --start-programs), or say --call", definition)}
		if note, ok := ctx.Value(unconvertedKey{}).(*atomic.Pointer[errUnjudged]); ok {
			note.Store(&err)
		}
		return err
	}
}

// finish counts the results.
func (r *Report) finish() {
	s := &r.Summary
	s.Tests = len(r.Tests)
	counts := map[Status]*int{Passed: &s.Passed, Failed: &s.Failed, Skipped: &s.Skipped, Broken: &s.Errors, "": new(int)}
	for _, t := range r.Tests {
		*counts[t.Status]++
	}
}

// Failed reports whether a test failed, or could not be run.
func (r *Report) Failed() bool { return r.Summary.Failed+r.Summary.Errors > 0 }

// Nothing returns the reason why all tests were skipped; nil if a test ran, or was an error (S24.20).
func (r *Report) Nothing() error {
	if s := &r.Summary; s.Skipped == 0 || s.Skipped < s.Tests {
		return nil
	}
	first, counts := r.Tests[0], map[string]int{}
	for _, t := range r.Tests {
		if counts[t.Message]++; counts[t.Message] > counts[first.Message] {
			first = t
		}
	}
	return fmt.Errorf("no request was decided: all tests are skipped, most of them for this reason: %s (%s). A running engine decides by its own policies with --call; other reasons name the remedy",
		first.Message, report.Place(first.File, first.Line, 0))
}
