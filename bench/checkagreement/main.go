// Checkagreement compares the results of gatehouse check on manifests with the results of kubectl apply
// --dry-run=server on a kube-apiserver with its default admission plugins.
//
// The manifests are in the directories of its arguments; each directory is a set. Without arguments, the sets are the
// objects of the differential corpus and the examples in the modules of modules.txt, from the module cache. Each set
// of manifests gets a new kube-apiserver. Like gatehouse check, the program first creates the objects that others
// need, in a fixed order: namespaces and CRDs, objects that admission plugins read, policies. Each object is then
// evaluated by a dry run of kubectl. The program prints every verdict or message that differs, and exits with 1 if
// there is one.
//
// In addition, kubeconform validates the same objects against the OpenAPI schemas of the same kube-apiserver, and the
// program counts the rejected objects that pass the schemas.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	binaries := flag.String("binaries", "", "`directory` of the programs (default: in the user's cache)")
	gatehouse := flag.String("gatehouse", "", "`program` to use instead of building gatehouse")
	only := flag.String("run", "", "only the sets that match this `regexp`")
	keep := flag.String("keep", "", "`directory` for the manifests of each set (default: a temporary one)")
	release := flag.String("kubernetes-version", "", "`release` that gatehouse check emulates, such as 1.35; kube-apiserver is a real one of that release")
	flag.Parse()
	if err := run(ctx, *binaries, *gatehouse, *only, *keep, *release, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "checkagreement:", err)
		os.Exit(1)
	}
}

var errDifferent = errors.New("gatehouse check and kube-apiserver differ")

func run(ctx context.Context, binaries, gatehouse, only, keep, release string, dirs []string) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	if binaries == "" {
		if binaries, err = peer.Dir(); err != nil {
			return err
		}
	}
	b := peer.Binaries{KubeAPIServer: filepath.Join(binaries, "kube-apiserver"), Etcd: filepath.Join(binaries, "etcd"), Gatehouse: gatehouse}
	if gatehouse == "" {
		if b, err = peer.Build(ctx, ".", binaries); err != nil {
			return err
		}
	}
	a := asked{binaries: b, release: release}
	if release != "" {
		r, err := peer.ReleaseOf(release)
		if err != nil {
			return err
		}
		if a.binaries.KubeAPIServer, err = peer.BuildRelease(ctx, ".", binaries, r); err != nil {
			return err
		}
	}
	if keep == "" {
		if keep, err = os.MkdirTemp("", "checkagreement-"); err != nil {
			return err
		}
		defer os.RemoveAll(keep)
	}
	sets, err := allSets(ctx, keep, dirs)
	if err != nil {
		return err
	}
	var sum tally
	var failures []error
	for _, s := range sets {
		if !match.MatchString(s.name) {
			continue
		}
		t, err := a.compare(ctx, s, filepath.Join(keep, "sets", strings.NewReplacer("/", "_", "@", "_").Replace(s.name)))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", s.name, err))
			continue
		}
		t.print(os.Stdout, s.name)
		sum.add(t)
	}
	fmt.Println()
	sum.print(os.Stdout, "all")
	// The messages of a real older release may differ.
	if sum.falsePasses+sum.falseFailures > 0 || sum.worded > 0 && release == "" {
		failures = append(failures, errDifferent)
	}
	return errors.Join(failures...)
}

// asked contains the programs to compare.
type asked struct {
	binaries peer.Binaries
	// release is the release that gatehouse check emulates; empty for its own.
	release string
}

// answer is the result of one side for an object.
type answer struct {
	rejected bool
	message  string
}

// tally counts outcomes.
type tally struct {
	sets, objects, rejected            int
	falsePasses, falseFailures, worded int
	// schemas counts the rejected objects that pass the schemas, unschemed the rejected objects without a schema, and
	// overzealous the accepted objects that the schemas reject.
	schemas, unschemed, overzealous int
	// real counts the rejections that only a real request reveals, known the messages whose difference is explained
	// in differential/known.yaml.
	real, known int
	// left counts the objects that neither side evaluated, by reason.
	left        map[string]int
	differences []string
}

func (t *tally) add(o *tally) {
	t.sets++
	t.objects += o.objects
	t.rejected += o.rejected
	t.falsePasses += o.falsePasses
	t.falseFailures += o.falseFailures
	t.worded += o.worded
	t.real += o.real
	t.known += o.known
	t.schemas += o.schemas
	t.unschemed += o.unschemed
	t.overzealous += o.overzealous
	if t.left == nil {
		t.left = map[string]int{}
	}
	for reason, n := range o.left {
		t.left[reason] += n
	}
	t.differences = append(t.differences, o.differences...)
}

func (t *tally) print(out io.Writer, name string) {
	fmt.Fprintf(out, "%s: %d objects, %d rejected by kube-apiserver; %d false passes, %d false failures, %d other messages (%d known; %d only for real requests); schemas let %d of the rejected pass (%d have none) and refuse %d that are accepted\n",
		name, t.objects, t.rejected, t.falsePasses, t.falseFailures, t.worded, t.known, t.real, t.schemas, t.unschemed, t.overzealous)
	for _, reason := range slices.Sorted(keys(t.left)) {
		fmt.Fprintf(out, "    left out: %d %s\n", t.left[reason], reason)
	}
	if name != "all" {
		for _, d := range t.differences {
			fmt.Fprintln(out, "   ", strings.ReplaceAll(d, "\n", "\n    "))
		}
	}
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// compare evaluates a set on both sides.
func (a asked) compare(ctx context.Context, s *set, dir string) (*tally, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := s.write(filepath.Join(dir, "objects")); err != nil {
		return nil, err
	}
	kube, schemas, confirm, err := a.kubeAPIServer(ctx, s, dir)
	if err != nil {
		return nil, fmt.Errorf("kube-apiserver: %w", err)
	}
	ours, err := a.check(ctx, filepath.Join(dir, "objects"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("gatehouse check: %w", err), func() error { _, err := confirm(nil); return err }())
	}
	// A dry run does not allocate anything. If check is stricter, a real request decides which side is right.
	var stricter []int
	for i := range s.objects {
		if k, g := kube[fileOf(i)], ours[fileOf(i)]; g.rejected && !same(k, g) {
			stricter = append(stricter, i)
		}
	}
	if slices.ContainsFunc(stricter, func(i int) bool { return strings.Contains(ours[fileOf(i)].message, "exceeded quota") }) {
		// Quotas count the objects that were applied before.
		stages := s.stages()
		stricter = stages[lastStage]
	}
	if slices.ContainsFunc(stricter, func(i int) bool { return strings.Contains(ours[fileOf(i)].message, "already allocated") }) {
		// Two services request the same port.
		for _, i := range s.stages()[lastStage] {
			if s.objects[i].content["kind"] == "Service" && !slices.Contains(stricter, i) {
				stricter = append(stricter, i)
			}
		}
		slices.Sort(stricter)
	}
	real, err := confirm(stricter)
	if err != nil {
		return nil, fmt.Errorf("kube-apiserver: %w", err)
	}
	t := &tally{left: s.left}
	for i, object := range s.objects {
		id := fileOf(i)
		k, known := kube[id]
		g, checked := ours[id]
		if !known || !checked {
			return nil, fmt.Errorf("%s: no answer (%v, %v)", id, known, checked)
		}
		t.objects++
		if r, asked := real[id]; asked && r.rejected && same(r, g) {
			t.real++
			k = r
		}
		if k.rejected {
			t.rejected++
		}
		differ := ""
		switch {
		case k.rejected && !g.rejected:
			t.falsePasses++
			differ = "FALSE PASS"
		case !k.rejected && g.rejected:
			t.falseFailures++
			differ = "FALSE FAILURE"
		case !same(k, g) && (decided(object) || deniedByPolicies(k, g)):
			t.known++
		case !same(k, g):
			t.worded++
			differ = "OTHER MESSAGE"
		}
		if differ != "" {
			t.differences = append(t.differences, fmt.Sprintf("%s: %s %s from %s\n    kube-apiserver:  %s\n    gatehouse check: %s",
				differ, id, title(object.content), object.origin, or(k.message, "accepted"), or(g.message, "accepted")))
		}
		switch verdict := schemas[id]; {
		case verdict == schemaMissing && k.rejected:
			t.unschemed++
		case verdict == schemaPasses && k.rejected:
			t.schemas++
		case verdict == schemaRefuses && !k.rejected:
			t.overzealous++
		}
	}
	return t, nil
}

// same reports whether two answers agree.
func same(kube, gatehouse answer) bool {
	return kube.rejected == gatehouse.rejected && (!kube.rejected ||
		normal(kube.message) == normal(gatehouse.message) || sameInOtherWords(kube.message, gatehouse.message))
}

// deniedByPolicies reports whether policies denied an object on both sides. If several policies deny it,
// kube-apiserver returns any of their messages; Gatehouse returns the first by name (S17.2).
func deniedByPolicies(kube, gatehouse answer) bool {
	const by = "is forbidden: ValidatingAdmissionPolicy '"
	return kube.rejected && gatehouse.rejected && strings.Contains(kube.message, by) && strings.Contains(gatehouse.message, by)
}

func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func title(content map[string]any) string {
	return fmt.Sprintf("%v %v %v/%v", content["apiVersion"], content["kind"], metadataOf(content)["namespace"], metadataOf(content)["name"])
}

// Values that differ between servers: identities, addresses, and random values.
var (
	uids     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	times    = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	revision = regexp.MustCompile(`(resourceVersion[^0-9]{0,8})\d+`)
	files    = regexp.MustCompile(`/\S+/(\d{5}\.json)`)
)

func normal(message string) string {
	message = uids.ReplaceAllString(message, "<uid>")
	message = times.ReplaceAllString(message, "<time>")
	message = revision.ReplaceAllString(message, "$1<version>")
	message = files.ReplaceAllString(message, "$1")
	// The errors about a custom resource are in random order.
	parts := strings.Split(strings.NewReplacer("[", "", "]", "").Replace(strings.Join(strings.Fields(message), " ")), ", ")
	opening, first, _ := strings.Cut(parts[0], " is invalid: ")
	parts[0] = first
	slices.Sort(parts)
	return opening + ": " + strings.Join(parts, ", ")
}

// noKind matches kubectl's message that a kind is not served.
var noKind = regexp.MustCompile(`no matches for kind "[^"]*" in version "[^"]*"`)

// sameInOtherWords reports whether two messages differ only in the words around the message of the server.
func sameInOtherWords(kube, gatehouse string) bool {
	if k := noKind.FindString(kube); k != "" {
		return k == noKind.FindString(gatehouse)
	}
	// Gatehouse names the mutating policy that failed, kube-apiserver does not.
	if cause, ok := strings.CutPrefix(kube, "Internal error occurred: "); ok && strings.HasSuffix(gatehouse, " denied request: "+cause) {
		return true
	}
	// The kind does not support the method.
	if strings.Contains(kube, "does not allow this method") && strings.Contains(gatehouse, " is not supported on resources of kind ") {
		return true
	}
	// kubectl looks up the object first, and cannot look up an object without a name.
	return strings.Contains(kube, "resource name may not be empty") && strings.Contains(gatehouse, "name or generateName is required")
}

// check runs gatehouse check.
func (a asked) check(ctx context.Context, dir string) (map[string]answer, error) {
	var out, problems strings.Builder
	cmd := exec.CommandContext(ctx, a.binaries.Gatehouse, "check", dir, "-o", "json", "--kubernetes-version", a.release, "--service-cluster-ip-range", serviceRange)
	cmd.Stdout, cmd.Stderr = &out, &problems
	var failed *exec.ExitError
	if err := cmd.Run(); err != nil && (!errors.As(err, &failed) || failed.ExitCode() != 1 || out.Len() == 0) {
		return nil, fmt.Errorf("%w: %s", err, problems.String())
	}
	var report struct {
		Objects []struct {
			File, Verdict, Message string
		}
	}
	if err := json.Unmarshal([]byte(out.String()), &report); err != nil {
		return nil, err
	}
	answers := map[string]answer{}
	for _, o := range report.Objects {
		answers[filepath.Base(o.File)] = answer{rejected: o.Verdict == "rejected", message: o.Message}
	}
	return answers, nil
}
