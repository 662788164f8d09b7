package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// own is the release of the program, emulated are the releases that it can emulate.
const own = "1.37"

var emulated = []string{"1.34", "1.35", "1.36"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	binaries := flag.String("binaries", "", "`directory` of the programs (default: in the user's cache)")
	page := flag.String("page", "results/versions.md", "`file` whose generated part is written")
	fields := flag.String("fields", "../internal/kit/emulation/fields.txt", "`file` with the fields in which releases differ, which is written")
	release := flag.String("release", "", "only compare Gatehouse as this `release` with -real, by requests of each field and function")
	real := flag.String("real", "", "`program` of a real kube-apiserver of -release (default: built in minutes, and kept)")
	only := flag.Bool("only-fields", false, "write the fields only, and ask no server")
	flag.Parse()
	if *release != "" {
		if err := compareWith(ctx, *binaries, *release, *real); err != nil {
			fmt.Fprintln(os.Stderr, "versions:", err)
			os.Exit(1)
		}
		return
	}
	if err := writeFields(ctx, *fields); err != nil || *only {
		if err != nil {
			fmt.Fprintln(os.Stderr, "versions:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(ctx, *binaries, *page); err != nil {
		fmt.Fprintln(os.Stderr, "versions:", err)
		os.Exit(1)
	}
}

// compareWith compares Gatehouse as a release with a real server.
func compareWith(ctx context.Context, binaries, release, real string) error {
	b, err := peer.Build(ctx, ".", binaries)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "versions-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if real == "" {
		r, err := peer.ReleaseOf(release)
		if err != nil {
			return err
		}
		if real, err = peer.BuildRelease(ctx, ".", binaries, r); err != nil {
			return err
		}
	}
	return compareRequests(ctx, os.Stdout, b, release, real, dir)
}

// facts are the capabilities that a server reports.
type facts struct {
	// served are the resources, by group and version; gates are the feature gates with their stage and whether they
	// are enabled; fields are the fields of the kinds in OpenAPI.
	served map[string]bool
	gates  map[string]string
	fields map[string]bool
	// functions are the CEL functions that a policy may use.
	functions map[string]bool
}

func run(ctx context.Context, binaries, page string) (err error) {
	b, err := peer.Build(ctx, ".", binaries)
	if err != nil {
		return err
	}
	old := b
	covered, err := peer.ReleaseOf("1.35")
	if err != nil {
		return err
	}
	if old.KubeAPIServer, err = peer.BuildRelease(ctx, ".", binaries, covered); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "versions-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	found := map[string]*facts{}
	for _, release := range append(slices.Clone(emulated), own) {
		if found[release], err = ask(ctx, b, peer.Gatehouse, filepath.Join(dir, release), "--emulated-version="+release); err != nil {
			return fmt.Errorf("as release %s: %w", release, err)
		}
	}
	real, err := ask(ctx, old, peer.KubeAPIServer, filepath.Join(dir, "real"))
	if err != nil {
		return fmt.Errorf("kube-apiserver %s: %w", covered.Version, err)
	}
	var text strings.Builder
	differ(&text, found)
	if err := judgeInputs(ctx, &text, b, dir); err != nil {
		return err
	}
	uncovered(&text, covered, found[covered.Minor], real)
	return replace(page, text.String())
}

// ask starts a server and reads its facts.
func ask(ctx context.Context, b peer.Binaries, kind peer.Kind, dir string, flags ...string) (_ *facts, err error) {
	s, err := peer.Start(ctx, b, kind, dir, flags...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	client, err := discovery.NewDiscoveryClientForConfig(s.Config)
	if err != nil {
		return nil, err
	}
	f := &facts{}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	f.served = servedBy(lists)
	if f.gates, err = gatesOf(ctx, client.RESTClient()); err != nil {
		return nil, err
	}
	if f.fields, err = fieldsOf(ctx, client.RESTClient()); err != nil {
		return nil, err
	}
	f.functions, err = functionsOf(ctx, client.RESTClient())
	return f, err
}

// onlyHere reports whether a kind is in a version of the admissionregistration API that only Gatehouse serves.
func onlyHere(name string) bool {
	return strings.HasPrefix(name, "admissionregistration.v1alpha1") || strings.HasPrefix(name, "admissionregistration.v1beta1")
}

// servedBy lists resources as version and name.
func servedBy(lists []*metav1.APIResourceList) map[string]bool {
	served := map[string]bool{}
	for _, l := range lists {
		if strings.HasPrefix(l.GroupVersion, "gatehouse.dev/") || onlyHere(strings.Replace(l.GroupVersion, ".k8s.io/", ".", 1)) {
			continue
		}
		for _, r := range l.APIResources {
			served[l.GroupVersion+" "+r.Name] = true
		}
	}
	return served
}

var gate = regexp.MustCompile(`(?m)^kubernetes_feature_enabled\{name="(\w+)",stage="(\w*)"\} ([01])$`)

// gatesOf reads the feature gates from the metrics.
func gatesOf(ctx context.Context, client rest.Interface) (map[string]string, error) {
	text, err := client.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	gates := map[string]string{}
	for _, m := range gate.FindAllSubmatch(text, -1) {
		stage, state := strings.ToLower(string(m[2])), "off"
		if stage == "" {
			stage = "ga"
		}
		if m[3][0] == '1' {
			state = "on"
		}
		gates[string(m[1])] = stage + ", " + state
	}
	if len(gates) == 0 {
		return nil, errors.New("the metrics have no feature gates")
	}
	return gates, nil
}

// fieldsOf lists the fields of the kinds of Kubernetes, as KIND.FIELD.
func fieldsOf(ctx context.Context, client rest.Interface) (map[string]bool, error) {
	text, err := client.Get().AbsPath("/openapi/v2").SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var document struct {
		Definitions map[string]struct {
			Properties map[string]json.RawMessage `json:"properties"`
		} `json:"definitions"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	fields := map[string]bool{}
	for name, d := range document.Definitions {
		name, ok := strings.CutPrefix(name, "io.k8s.api.")
		if onlyHere(name) {
			continue
		}
		for property := range d.Properties {
			if ok {
				fields[name+"."+property] = true
			}
		}
	}
	return fields, nil
}

// replace replaces the part between the markers of a page.
func replace(page, text string) error {
	const begin, end = "<!-- begin generated by bench/versions -->\n", "<!-- end generated by bench/versions -->\n"
	data, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(data, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !ok || !closed {
		return fmt.Errorf("%s: there is no %q with %q after it", page, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(page, slices.Concat(before, []byte(begin+text+end), after), 0o644)
}

// lacking lists the keys of has that are missing in hasNot.
func lacking(has, hasNot map[string]bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(has)), func(key string) bool { return hasNot[key] })
}
