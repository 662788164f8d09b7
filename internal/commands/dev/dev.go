package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/scratch"
	"github.com/gatehouse-dev/gatehouse/internal/kit/selfsigned"
	"github.com/gatehouse-dev/gatehouse/internal/kit/subprocess"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/internal/server"
)

// Options are the options of a session.
type Options struct {
	// Paths and Kustomizations are the manifests; Stdin is read for the path "-".
	Paths, Kustomizations []string
	Stdin                 io.Reader
	// Command is the program with its arguments. ${PORT}, ${CERT_DIR} and ${KUBECONFIG} in it are replaced.
	Command []string
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
	// Output receives the output of the program.
	Output io.Writer
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
)

// session is one run.
type session struct {
	Options
	project *project
	stage   *stage.Stage
	gate    *gate
	guard   *guard
	recipe  *recipe
	// dir is the temporary directory.
	dir     string
	env     []string
	program *subprocess.Process
	// printed has the last lines of the program's output.
	printed *subprocess.Tail
	// said are the mistakes that were reported.
	said map[string]bool
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
	s := &session{Options: o, said: map[string]bool{}, applied: map[string]*unstructured.Unstructured{}, printed: &subprocess.Tail{}}
	var err error
	if slices.Contains(o.Paths, manifests.Stdin) {
		if s.piped, err = files.ReadFrom(o.Stdin, files.Objects); err != nil {
			return fmt.Errorf("standard input: %w", err)
		}
	}
	if o.Live == nil && len(o.Paths)+len(o.Kustomizations) > 0 {
		if s.manifests, err = watchManifests(ctx); err != nil {
			return fmt.Errorf("watching the manifests: %w", err)
		}
	}
	if s.project, err = s.read(); err != nil {
		return err
	}
	if s.recipe, err = newRecipe(o.Command, o.Build); err != nil {
		return err
	}
	if s.recipe.build == nil {
		if _, err := exec.LookPath(s.recipe.run[0]); err != nil {
			return fmt.Errorf("the program: %w", err)
		}
	}
	if o.KubeconfigOut != "" {
		if _, err := os.Lstat(o.KubeconfigOut); err == nil {
			return fmt.Errorf("--kubeconfig-out %s: the file is there, and 'gatehouse dev' removes its file at the end: name another one", o.KubeconfigOut)
		}
	}
	if err := s.free(); err != nil {
		return err
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
	paths := []string{s.dir}
	if o.KubeconfigOut != "" {
		kubeconfig, err := filepath.Abs(o.KubeconfigOut)
		if err != nil {
			return err
		}
		defer os.Remove(kubeconfig)
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
func (s *session) read() (*project, error) {
	p, err := readProject(s.Paths, s.Kustomizations, s.piped, s.manifests.reading)
	if err != nil {
		return nil, err
	}
	return p, p.choose(s.Service, s.Port)
}

// free returns an error if another process listens on the port of the program.
func (s *session) free() error {
	if s.project.port == 0 {
		return nil
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(localhost, strconv.Itoa(s.project.port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("port %d is in use by another process: end that process, or have the program listen elsewhere and say where by --webhook-port", s.project.port)
	}
	if err == nil {
		listener.Close()
	}
	// Another error is the program's to report.
	return nil
}

// address returns the address of the program.
func (s *session) address() string {
	return net.JoinHostPort(localhost, strconv.Itoa(s.project.port))
}

// certify makes the serving certificate in a directory for temporary files of the program.
func (s *session) certify(others ...string) (files, temporaries string, err error) {
	temporaries = filepath.Join(s.dir, "tmp")
	files = filepath.Join(temporaries, certificates)
	if err := os.MkdirAll(files, 0o700); err != nil {
		return "", "", err
	}
	if _, err := selfsigned.Write(files, append(s.project.hosts(), others...)...); err != nil {
		return "", "", fmt.Errorf("the serving certificate: %w", err)
	}
	return files, temporaries, nil
}

// setEnvironment sets the environment of the program.
func (s *session) setEnvironment(kubeconfig, temporaries, files string) {
	values := map[string]string{"KUBECONFIG": kubeconfig, "TMPDIR": temporaries, "CERT_DIR": files, "PORT": strconv.Itoa(s.project.port)}
	s.env = os.Environ()
	for name, value := range values {
		s.env = append(s.env, name+"="+value)
	}
	s.recipe.fill(values)
}

func (s *session) run(ctx context.Context) error {
	files, temporaries, err := s.certify()
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(filepath.Join(files, selfsigned.AuthorityFile))
	if err != nil {
		return err
	}
	if err := s.project.prepare(authority, files); err != nil {
		return err
	}
	s.sayRemarks()
	if err := s.open(ctx); err != nil {
		return err
	}
	defer s.stage.Close()
	at := s.stage.Address()
	if s.KubeconfigOut != "" {
		data, err := os.ReadFile(at.Kubeconfig)
		if err == nil {
			err = os.WriteFile(s.KubeconfigOut, data, 0o600)
		}
		if err != nil {
			return fmt.Errorf("--kubeconfig-out: %w", err)
		}
	}
	s.setEnvironment(at.Kubeconfig, temporaries, files)
	if err := s.load(ctx); err != nil {
		return err
	}
	trusting, err := s.keepTrust(ctx, authority, files)
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
		s.Ready(Ready{Address: s.stage.Address(), Webhooks: s.webhooks(), Port: s.project.port, Certificates: files})
		if err := s.apply(ctx, s.later); err != nil {
			s.Say("%v", err)
		}
		return nil
	}
	return s.loop(ctx, authority, files)
}

// loop runs the program, and replaces it after changes.
func (s *session) loop(ctx context.Context, authority []byte, files string) (err error) {
	if s.changes, err = s.watched(ctx); err != nil {
		return err
	}
	defer func() {
		if s.leaving != nil {
			s.leaving()
		}
		s.program.Stop(endGrace)
	}()
	// Controllers make requests, too, while the program is built.
	s.gate.hold(0)
	for changed := true; ; {
		if changed {
			if err := s.replace(ctx, files); err != nil && ctx.Err() == nil {
				return err
			}
		}
		changed = true
		var gone chan struct{}
		if s.program != nil {
			gone = s.program.Gone
		}
		select {
		case <-ctx.Done():
			return nil
		case <-gone:
			changed = false
			end := s.program.State()
			s.program.Stop(0)
			s.program = nil
			if s.ended != nil {
				s.ended(ctx)
			}
			var again []string
			if s.changes != nil {
				again = append(again, "when a file changes")
			}
			if s.Restart != nil {
				again = append(again, "with the key r")
			}
			if s.explainEnd(); again == nil {
				return fmt.Errorf("the program ended: %s", end)
			}
			s.Say("The program ended (%s). It starts again %s.", end, strings.Join(again, ", or "))
		case name := <-s.changes:
			s.Say("%s changed.", name)
		case <-s.Restart:
		case <-s.manifests.changed():
			changed = false
			if err := s.again(ctx, authority, files); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// open starts the server.
func (s *session) open(ctx context.Context) error {
	hosts := s.project.hosts()
	s.gate = &gate{local: func(host string) bool { return slices.Contains(hosts, host) }}
	var addresses []string
	for _, service := range s.project.services {
		addresses = append(addresses, service.String()+"="+s.address())
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
			o.WrapWebhook = s.gate.wrap
		},
	})
	return err
}

// load applies the objects of the project to the server, except objects that the program evaluates.
func (s *session) load(ctx context.Context) error {
	s.later = nil
	judging := stage.Judging(s.project.objects)
	if err := s.apply(ctx, judging); err != nil {
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
	for _, u := range s.project.programs {
		s.sayOnce("Left out: %s, which is the program.", titleOf(u))
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
		if _, err := os.Stat("go.mod"); err != nil && s.recipe.pkg == nil {
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

// replace builds the program, and starts it in place of the running one. Requests wait meanwhile.
func (s *session) replace(ctx context.Context, files string) error {
	began := time.Now()
	idle := func() {}
	if s.program == nil && s.Busy != nil && s.recipe.build != nil {
		idle = s.Busy("Building the program")
	}
	args, err := s.recipe.make(ctx, s.guard, os.Environ(), s.dir, s.Output)
	idle()
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		serves := ": the program before serves on."
		if s.program == nil {
			serves = "."
			s.gate.release()
		}
		s.Say("%v%s", err, serves)
		return nil
	}
	s.gate.hold(grace)
	defer s.gate.release()
	restarts := s.program != nil
	s.program.Stop(grace)
	s.program = nil
	if restarts {
		s.recipe.clean(s.dir)
	}
	s.printed.Reset()
	output := io.MultiWriter(s.Output, s.printed)
	if s.program, err = subprocess.Start(args, s.env, "", output, output, s.guard.set); err != nil {
		s.program = nil
		s.Say("The program does not start: %v.", err)
		return nil
	}
	if !s.listening(ctx, files) {
		return nil
	}
	s.gate.release()
	if restarts {
		s.Say("The new program serves, after %s.", time.Since(began).Round(10*time.Millisecond))
	}
	s.sayMistakes(ctx, files)
	return s.served(ctx)
}

func (s *session) sayMistakes(ctx context.Context, files string) {
	for _, mistake := range s.mistakes(ctx, files) {
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
	if text := fmt.Sprintf(format, args...); !s.said[text] {
		s.said[text] = true
		s.Say("%s", text)
	}
}

// listening reports whether the program listens, and tells the user if not. files is the directory of the certificate.
func (s *session) listening(ctx context.Context, files string) bool {
	if s.project.port == 0 {
		return true
	}
	soon, cancel := context.WithTimeout(ctx, listenSoon)
	defer cancel()
	interrupted := func() bool { return len(s.changes) > 0 || len(s.Restart) > 0 }
	err := listens(soon, s.program, s.address(), interrupted)
	if refused := (*handshakeError)(nil); errors.As(err, &refused) && ctx.Err() == nil {
		s.Say("The program accepts connections on port %d, and no TLS handshake succeeds: %v. Have it serve TLS with tls.crt and tls.key of %s.", s.project.port, refused.cause, files)
	} else if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		s.Say("The program does not listen on port %d yet. %s", s.project.port, elsewhere(s.project.port, portsOf(s.program.Group())))
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		late, cancel := context.WithTimeout(ctx, listenLate)
		defer cancel()
		err = listens(late, s.program, s.address(), interrupted)
	}
	// The end of the program is reported elsewhere.
	return err == nil
}

// elsewhere returns a remedy for a program that listens on other ports than the expected one.
func elsewhere(port int, ports []int) string {
	if len(ports) == 0 {
		return "If it listens elsewhere, name its port with --webhook-port."
	}
	if slices.Contains(ports, port) {
		return "It has this port open at another address than localhost: have it listen there, too."
	}
	names := make([]string, len(ports))
	for i, other := range ports {
		names[i] = strconv.Itoa(other)
	}
	return fmt.Sprintf("It listens on port %s: if that is for the webhook, say so with --webhook-port.", strings.Join(names, ", "))
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
