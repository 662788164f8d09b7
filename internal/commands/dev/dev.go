package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/order"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/scratch"
	"github.com/gatehouse-dev/gatehouse/internal/kit/selfsigned"
	"github.com/gatehouse-dev/gatehouse/internal/kit/subprocess"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/internal/server"
)

// Kustomize builds the kustomization of a directory and returns its objects as YAML. It calls reading with the path of
// each file before it reads it.
type Kustomize func(dir string, reading func(path string)) ([]byte, error)

// Options are the options of a session.
type Options struct {
	// Paths and Kustomizations are the manifests; Stdin is read for the path "-".
	Paths, Kustomizations []string
	Stdin                 io.Reader
	// Kustomize builds the kustomizations.
	Kustomize Kustomize
	// Chart is the directory or the archive of a Helm chart, and Values are files with its values; empty for none.
	Chart  string
	Values []string
	// Command is the program with its arguments. ${PORT}, ${CERT_DIR} and ${KUBECONFIG} in it are replaced. Empty means the
	// programs of the services, as the Dockerfile starts them.
	Command []string
	// Programs are settings of the programs; at most one may have no service.
	Programs []Program
	// AsServiceAccount gives the program the rights of its service account, instead of all rights.
	AsServiceAccount bool
	// Build is a shell command that builds the program; empty for none.
	Build string
	// Watch are patterns of files whose change restarts the program, as in a .gitignore. Empty means the Go files below
	// the working directory, if it is a module.
	Watch []string
	// Service is the service of the program, as NAMESPACE/NAME; empty for the service of the registrations. Port is the
	// program's port; 0 for the port in the manifests, or controller-runtime's default.
	Service string
	Port    int
	// DataDir stores the objects; empty for a temporary directory. KubeconfigOut, if set, is a file for a copy of the
	// administrator's kubeconfig.
	DataDir, KubeconfigOut string
	FakeNodes              int
	// Live is a cluster that calls the program; nil for a server of the session.
	Live *Live
	// Terminal is the terminal that reads keys; nil for none.
	Terminal *os.File
	// Restart is a buffered channel that requests a restart; nil if there is none.
	Restart <-chan struct{}
	// Output returns the writer for the output of a program. The name is empty if there is one program.
	Output func(program string) io.Writer
	// Busy, if set, is called at the start of a step that may take long, with a description of the step; it returns a
	// function to call at its end.
	Busy func(text string) (end func())
	// Say is called with each message for the user, by several goroutines. Ready is called when the server admits
	// requests.
	Say   func(format string, args ...any)
	Ready func(Ready)
}

// Ready has the addresses and the webhooks of a session that is ready.
type Ready struct {
	// Address is the server of the session. With a cluster, Cluster is its URL instead, and Requests describes the
	// requests that go to the program.
	server.Address
	Cluster, Requests string
	// Webhooks are the webhooks that the program serves, as CONFIGURATION/NAME, and Port is its port.
	Webhooks []string
	Port     int
	// Certificates is the directory with the serving certificate.
	Certificates string
}

// certificates is the directory in which controller-runtime looks for the serving certificate, below the directory for
// temporary files.
const certificates = "k8s-webhook-server/serving-certs"

const (
	// listenSoon is the time after which the session reports that the program does not listen.
	listenSoon = 10 * time.Second
	// listenLate bounds the wait of requests for a program that does not listen. They wait for at most half of their
	// own timeout.
	listenLate = 30 * time.Second
	// grace is the time for a program to end when another one replaces it, and endGrace when the session ends.
	grace    = time.Second
	endGrace = 3 * time.Second
	// mostRestarts bounds the restarts of a program that ends without an error, such as after it has made its certificate.
	mostRestarts = 5
)

// session is one run.
type session struct {
	Options
	project  *project
	programs []*program
	// absent are the services of programs that are not found here.
	absent []types.NamespacedName
	stage  *stage.Stage
	guard  *guard
	// dir is the temporary directory.
	dir string
	// placing reports whether programs find their files at the paths of their containers, and placingTmp whether also
	// below /tmp.
	placing, placingTmp bool
	// gone receives the programs whose process has ended.
	gone chan ended
	// handedOut reports whether the session made the file of --kubeconfig-out.
	handedOut bool
	// content are the ConfigMaps and Secrets of the programs' namespaces.
	content content
	// said are the messages that were reported once, and forbiddens is the number of missing rights; saying guards both.
	saying     sync.Mutex
	said       map[string]bool
	forbiddens int
	// changes receives changed source files; nil if none are watched. manifests does the same for the manifests; nil
	// with a cluster.
	changes   <-chan string
	manifests *manifestWatcher
	// piped is the content of standard input. broken is the last error of reading the manifests.
	piped  []byte
	broken string
	// later are the objects that the program evaluates. applied are the objects that the server has accepted, in the
	// form of the manifests, by key. made are the names of the objects that were created since the manifests were read.
	later   []*unstructured.Unstructured
	applied map[string]*unstructured.Unstructured
	made    []string
	// served is called when the program begins to serve, and ended, if set, after the program has ended by itself.
	served func(context.Context) error
	ended  func(context.Context)
	// leaving, if set, is called before the program is stopped for good.
	leaving func()
	// live makes a cluster call the program; nil for a server of the session.
	live *live
}

// Run runs a session until ctx ends. The error is one sentence with the reason why the session does not start.
func Run(ctx context.Context, o Options) error {
	s := &session{Options: o, said: map[string]bool{}, applied: map[string]*unstructured.Unstructured{}, gone: make(chan ended)}
	var err error
	if slices.Contains(o.Paths, manifests.Stdin) {
		if s.piped, err = files.ReadFrom(o.Stdin, files.Objects); err != nil {
			return fmt.Errorf("standard input: %w", err)
		}
	}
	if o.Live == nil && (len(o.Paths)+len(o.Kustomizations) > 0 || o.Chart != "") {
		if s.manifests, err = watchManifests(ctx); err != nil {
			return fmt.Errorf("watching the manifests: %w", err)
		}
	}
	if s.project, err = s.read(ctx); err != nil {
		return err
	}
	if s.programs, err = s.choosePrograms(); err != nil {
		return err
	}
	if o.KubeconfigOut != "" {
		if _, err := os.Lstat(o.KubeconfigOut); err == nil {
			return fmt.Errorf("--kubeconfig-out %s: the file is there, and 'gatehouse dev' removes its file at the end: name another one", o.KubeconfigOut)
		}
	}
	for _, p := range s.programs {
		if err := p.free(); err != nil {
			return err
		}
	}
	if o.Live != nil {
		if s.live, err = newLive(ctx, &o, s.project); err != nil {
			return err
		}
		defer s.live.listener.Close()
	}
	scratched, err := scratch.New()
	if err != nil {
		return err
	}
	defer scratched.Remove()
	s.dir = scratched.Path()
	if err := s.tryPlaces(); err != nil {
		return err
	}
	paths := []string{s.dir}
	if o.KubeconfigOut != "" {
		kubeconfig, err := filepath.Abs(o.KubeconfigOut)
		if err != nil {
			return err
		}
		defer func() {
			if s.handedOut {
				os.Remove(kubeconfig)
			}
		}()
		paths = append(paths, kubeconfig)
	}
	if s.guard, err = newGuard(o.Terminal, paths...); err != nil {
		return fmt.Errorf("the process that cleans up: %w", err)
	}
	defer s.guard.end()
	if s.live != nil {
		return s.runLive(ctx)
	}
	return s.run(ctx)
}

// read reads the manifests, and watches their files.
func (s *session) read(ctx context.Context) (*project, error) {
	p, err := readProject(s.Paths, s.Kustomizations, s.Kustomize, s.piped, s.manifests.reading)
	if err == nil && s.Chart != "" {
		err = p.readChart(ctx, s.Chart, s.Values, s.manifests.reading)
	}
	if err != nil {
		return nil, err
	}
	if err := p.choose(s.Service, s.Port, len(s.Command) > 0 || s.Live != nil); err != nil {
		return nil, err
	}
	p.leave(s.absent)
	for _, t := range p.targets {
		if port := s.settings(t, len(p.targets) == 1).Port; port != 0 && s.Port == 0 {
			t.port = port
		}
	}
	return p, nil
}

// places is the empty directory for subprocess.Places.
const places = "places"

// tryPlaces decides whether programs find their files at the paths of their containers.
func (s *session) tryPlaces() error {
	if !slices.ContainsFunc(s.programs, func(p *program) bool { return p.container != nil }) {
		return nil
	}
	root := filepath.Join(s.dir, places)
	if err := os.Mkdir(root, 0o700); err != nil {
		return err
	}
	err := subprocess.Places{Root: root}.Supports("/")
	if s.placing = err == nil; !s.placing {
		s.sayOnce("Files are not at the paths of the container, since this system permits no mount namespace (%v): these paths are replaced where arguments, variables and files name them, and $TMPDIR has the files below /tmp.", err)
		return nil
	}
	if !slices.ContainsFunc(s.programs, (*program).mountsTemporaries) {
		return nil
	}
	err = subprocess.Places{Root: root}.Supports(containerTmp)
	if s.placingTmp = err == nil; !s.placingTmp {
		s.sayOnce("Files below /tmp are not at the paths of the container (%v): $TMPDIR has them.", err)
	}
	return nil
}

// certify makes the directories of the programs with the serving certificate, and returns its authority.
func (s *session) certify(others ...string) (authority []byte, err error) {
	hosts := append(s.project.hosts(), others...)
	for i, p := range s.programs {
		if p.home = s.dir; i > 0 {
			p.home = filepath.Join(s.dir, "program-"+strconv.Itoa(i+1))
		}
		p.root, p.temporaries = filepath.Join(p.home, "root"), filepath.Join(p.home, "tmp")
		p.files, p.places, p.placing = filepath.Join(p.temporaries, certificates), filepath.Join(s.dir, places), s.placing
		p.placingTmp = s.placingTmp
		if err := os.MkdirAll(p.files, 0o700); err != nil {
			return nil, err
		}
		if i == 0 {
			authority, err = selfsigned.Write(p.files, hosts...)
		} else {
			for name, content := range certificateIn(s.programs[0].files) {
				err = errors.Join(err, store(filepath.Join(p.files, name), content))
			}
		}
		if err != nil {
			return nil, fmt.Errorf("the serving certificate: %w", err)
		}
	}
	return authority, nil
}

func (s *session) run(ctx context.Context) error {
	authority, err := s.certify()
	if err != nil {
		return err
	}
	if err := s.project.prepare(authority, certificateIn(s.programs[0].files)); err != nil {
		return err
	}
	s.sayRemarks()
	if err := s.open(ctx); err != nil {
		return err
	}
	defer s.stage.Close()
	at := s.stage.Address()
	if s.KubeconfigOut != "" {
		if err := copyNew(s.KubeconfigOut, at.Kubeconfig); err != nil {
			return fmt.Errorf("--kubeconfig-out: %w", err)
		}
		s.handedOut = true
	}
	if err := s.load(ctx); err != nil {
		return err
	}
	if err := s.describe(ctx); err != nil {
		return err
	}
	trusting, err := s.keepTrust(ctx, authority)
	if err != nil {
		return err
	}
	defer trusting()
	ready := false
	s.served = func(ctx context.Context) error {
		if ready {
			return nil
		}
		ready = true
		s.Ready(Ready{Address: s.stage.Address(), Webhooks: s.webhooks(), Port: s.programs[0].port, Certificates: s.programs[0].files})
		if err := s.apply(ctx, s.later); err != nil {
			s.Say("%v", err)
		}
		return nil
	}
	return s.loop(ctx, authority)
}

// copyNew copies a file to a new one, which only this user can read. It follows no link, which another user may have made.
func copyNew(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// loop runs the programs, and replaces them after changes.
func (s *session) loop(ctx context.Context, authority []byte) (err error) {
	if s.changes, err = s.watched(ctx); err != nil {
		return err
	}
	defer func() {
		if s.leaving != nil {
			s.leaving()
		}
		for _, p := range s.programs {
			p.process.Stop(endGrace)
		}
	}()
	// Controllers make requests, too, while the program is built.
	for _, p := range s.programs {
		p.gate.hold(0)
	}
	for changed := s.programs; ; {
		if len(changed) > 0 {
			if err := s.replace(ctx, changed); err != nil && ctx.Err() == nil {
				return err
			}
		}
		changed = s.programs
		select {
		case <-ctx.Done():
			return nil
		case e := <-s.gone:
			changed = nil
			if e.program.process != e.process {
				// The session replaced it.
				continue
			}
			end := e.process.State()
			e.process.Stop(0)
			e.program.process = nil
			if s.ended != nil {
				s.ended(ctx)
			}
			if e.process.Err == nil && e.program.restarts < mostRestarts {
				e.program.restarts++
				e.program.again = e.program.ran
				s.Say("The program ended without an error, and starts again, as in a cluster.")
				changed = []*program{e.program}
				continue
			}
			var again []string
			if s.changes != nil {
				again = append(again, "when a file changes")
			}
			if s.Restart != nil {
				again = append(again, "with the key r")
			}
			if s.explainEnd(e.program); again == nil {
				return fmt.Errorf("the program ended: %s", end)
			}
			s.Say("The program ended (%s). It starts again %s.", end, strings.Join(again, ", or "))
		case name := <-s.changes:
			s.Say("%s changed.", name)
		case <-s.Restart:
		case <-s.manifests.changed():
			restart, err := s.reapply(ctx, authority)
			if err != nil && ctx.Err() == nil {
				return err
			}
			if !restart {
				changed = nil
			}
		}
	}
}

// open starts the server.
func (s *session) open(ctx context.Context) error {
	var addresses []string
	for i, p := range s.programs {
		p.gate = gateOf(p, i == 0)
		for _, service := range p.services {
			addresses = append(addresses, service.String()+"="+p.address())
		}
	}
	var err error
	s.stage, err = stage.Open(ctx, stage.Options{
		Webhooks: true, MayConvert: stage.ConvertingAll, ServiceAddresses: addresses,
		Open: func(o *server.Options) {
			d := server.Defaults()
			o.DataDir = filepath.Join(s.dir, "server")
			if s.DataDir != "" {
				o.DataDir = s.DataDir
			}
			if o.Controllers, o.FakeNodes = d.Controllers, s.FakeNodes; s.FakeNodes > 0 {
				o.Controllers = append(o.Controllers, server.WorkloadControllers()...)
			}
			o.MaxRequestsInFlight, o.MaxMutatingRequestsInFlight = d.MaxRequestsInFlight, d.MaxMutatingRequestsInFlight
			o.AdmissionTraceBytes, o.Console = d.AdmissionTraceBytes, true
			o.WrapWebhook = func(next http.RoundTripper) http.RoundTripper {
				for _, p := range s.programs {
					next = p.gate.wrap(next)
				}
				return next
			}
			if s.AsServiceAccount || s.placing {
				o.OnForbidden = s.forbidden
			}
		},
	})
	return err
}

// load applies the objects of the project to the server, except objects that the program evaluates.
func (s *session) load(ctx context.Context) error {
	s.later = nil
	judging := order.Judging(s.project.objects)
	var before, registrations []*unstructured.Unstructured
	for _, u := range judging {
		if u.GroupVersionKind().Group == registration.GroupName {
			registrations = append(registrations, u)
		} else {
			before = append(before, u)
		}
	}
	if err := s.apply(ctx, before); err != nil {
		return err
	}
	if err := s.createPods(ctx); err != nil {
		return err
	}
	if err := s.apply(ctx, registrations); err != nil {
		return err
	}
	first := map[*unstructured.Unstructured]bool{}
	for _, u := range judging {
		first[u] = true
	}
	planner, err := s.stage.Planner(ctx)
	if err != nil {
		return err
	}
	hooks := map[string]bool{}
	converted := map[string]bool{}
	for _, u := range s.project.objects {
		for _, c := range clients(u) {
			if s.project.local(c) {
				hooks[fmt.Sprintf("%s/%s/%d", u.GetKind(), u.GetName(), c.index)] = true
				converted[text(u.Object, "spec", "group")+"/"+text(u.Object, "spec", "names", "kind")] = stage.Converts(u)
			}
		}
	}
	var now []*unstructured.Unstructured
	without := len(s.project.others)
	for _, u := range append(slices.Clone(s.project.objects), s.project.others...) {
		switch {
		case first[u]:
		case converted[u.GroupVersionKind().GroupKind().Group+"/"+u.GetKind()], s.judged(ctx, planner, hooks, u):
			s.later = append(s.later, u)
			if slices.Contains(s.project.others, u) {
				without--
			}
		case s.FakeNodes > 0 || !slices.Contains(s.project.others, u):
			now = append(now, u)
		}
	}
	if without > 0 && s.FakeNodes == 0 {
		s.sayOnce("Left out: %s, since there are no nodes; --fake-nodes 1 makes one.", report.Count(without, "object"))
	}
	return s.apply(ctx, now)
}

// judged reports whether the program is called for the creation of an object.
func (s *session) judged(ctx context.Context, planner *offline.World, hooks map[string]bool, u *unstructured.Unstructured) bool {
	kind := s.stage.Kinds().Of(u.GroupVersionKind())
	if kind.Guessed {
		return false
	}
	p, err := planner.Plan(ctx, &offline.Request{Operation: "CREATE", Kind: kind, Namespace: u.GetNamespace(), Name: u.GetName(), Object: u})
	if err != nil {
		// The server reports the error.
		return false
	}
	for step := range p.Acting() {
		if step.Entry != nil && hooks[fmt.Sprintf("%s/%s/%d", step.Entry.Kind, step.Entry.Configuration, step.Entry.Index)] {
			return true
		}
	}
	return false
}

// apply creates objects that the server does not have yet, and reports the rejected ones.
func (s *session) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	objects = slices.DeleteFunc(slices.Clone(objects), func(u *unstructured.Unstructured) bool {
		had := s.applied[keyOf(u)]
		return had != nil && equality.Semantic.DeepEqual(had.Object, u.Object)
	})
	refused, notes, err := s.stage.Load(ctx, metav1.FieldValidationStrict, objects)
	if err != nil {
		return err
	}
	without := map[*unstructured.Unstructured]bool{}
	for _, r := range refused {
		without[r.Object] = true
	}
	for _, u := range objects {
		if !without[u] {
			s.applied[keyOf(u)] = u
			s.made = append(s.made, titleOf(u))
		}
	}
	unserved := map[string]int{}
	for _, r := range refused {
		if r.Unserved {
			unserved[r.Object.GetAPIVersion()+" "+r.Object.GetKind()]++
			continue
		}
		s.Say("%s was not applied: %s", titleOf(r.Object), r.Status.Message)
	}
	for kind, n := range unserved {
		s.sayOnce("Left out: %d of the kind %s, which is unknown.", n, kind)
	}
	for _, note := range notes {
		s.Say("%s", note)
	}
	return nil
}

// watched starts to watch the source; nil if there is nothing to watch.
func (s *session) watched(ctx context.Context) (<-chan string, error) {
	patterns := s.Watch
	if len(patterns) == 0 {
		if _, err := os.Stat("go.mod"); err != nil && !slices.ContainsFunc(s.programs, func(p *program) bool { return p.recipe.pkg != nil }) {
			return nil, nil
		}
		patterns = goFiles
	}
	changes, err := watchSource(ctx, patterns)
	if err != nil {
		return nil, fmt.Errorf("--watch: %w", err)
	}
	return changes, nil
}

func (s *session) sayMistakes(ctx context.Context) {
	for _, mistake := range settled(ctx, s.mistakes) {
		s.sayOnce("%s", mistake)
	}
}

func (s *session) sayRemarks() {
	for _, remark := range s.project.remarks {
		s.sayOnce("%s", remark)
	}
}

// sayOnce reports a message once.
func (s *session) sayOnce(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.saying.Lock()
	first := !s.said[text]
	s.said[text] = true
	s.saying.Unlock()
	if first {
		s.Say("%s", text)
	}
}

// webhooks lists the webhooks of the manifests that the program serves.
func (s *session) webhooks() (names []string) {
	for _, u := range s.project.objects {
		for _, c := range clients(u) {
			switch {
			case !s.project.local(c):
			case registers(u):
				names = append(names, u.GetName()+"/"+text(c.hook, "name"))
			default:
				names = append(names, strings.ToLower(u.GetKind())+"/"+u.GetName())
			}
		}
	}
	return names
}
