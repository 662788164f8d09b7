package dev

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/internal/commands/dev/container"
	"github.com/gatehouse-dev/gatehouse/internal/commands/dev/image"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/selfsigned"
	"github.com/gatehouse-dev/gatehouse/internal/kit/subprocess"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// Program has the settings of one program. Zero values mean the settings of the manifests and of the Dockerfile.
type Program struct {
	// Service is the service of the program, as NAMESPACE/NAME. It may be empty if there is one program.
	Service string
	// Port is the port of the program.
	Port int
	// Directory is the working directory, Command the program with its arguments, and Build a shell command that builds
	// it. ${PORT}, ${CERT_DIR} and ${KUBECONFIG} in Command are replaced.
	Directory string
	Command   []string
	Build     string
	// Arguments replace the arguments of the container if they are not nil.
	Arguments []string
	// Environment is added to the environment of the container.
	Environment []corev1.EnvVar
}

// program is a running program of the session.
type program struct {
	*target
	settings Program
	// words are the command before it is filled.
	words  []string
	recipe *recipe
	// found describes how the command was found; empty for a given command. source are the files of the image that are
	// files of the project, and variables the environment of the image.
	found     string
	source    container.Paths
	variables []string
	// arguments are the arguments of the container or of the image, before paths are replaced.
	arguments []string
	// notes are sentences about decisions before the start.
	notes []string
	// pod is the pod of the program as the downward API shows it, with its owners; nil without a workload. created reports
	// whether the server has them.
	pod     *corev1.Pod
	owners  []*unstructured.Unstructured
	created bool
	// home is the directory of the program, root the directory with the files of the container, temporaries the directory
	// for temporary files, files the directory of the serving certificate, and places an empty directory.
	home, root, temporaries, files, places string
	// placing reports whether the program finds its files at the paths of the container, and placingTmp whether also below
	// /tmp.
	placing, placingTmp bool
	gate                *gate
	env                 []string
	// command is the command line for the user.
	command []string
	process *subprocess.Process
	// ran is the command line of the last start, and again the command line of the next start; nil if it needs a build.
	ran, again []string
	// restarts counts the restarts after an end without an error.
	restarts int
	output   io.Writer
	// printed has the last lines of the program's output.
	printed    *subprocess.Tail
	kubeconfig string

	// mu guards the files of the container. described is the description that the program was started with.
	mu        sync.Mutex
	described *described
}

// newProgram decides how a program is built and started.
func newProgram(t *target, settings Program, paths []string) (*program, error) {
	p := &program{target: t, settings: settings, printed: &subprocess.Tail{}}
	var command []string
	if c := t.container; c != nil {
		merged := c.DeepCopy()
		for _, v := range settings.Environment {
			merged.Env = slices.DeleteFunc(merged.Env, func(other corev1.EnvVar) bool { return other.Name == v.Name })
			merged.Env = append(merged.Env, v)
		}
		p.target = &target{t.services, t.port, t.workload, t.template, merged}
		p.pod, p.owners = p.ownPod()
	}
	dir := settings.Directory
	switch {
	case len(settings.Command) > 0:
		command = settings.Command
		if p.container != nil {
			p.arguments = forProgram(command, p.container)
		}
	case p.container == nil:
		return nil, errors.New("the manifests have no Deployment behind the service of the webhooks: name the program after --, gatehouse dev -f FILE -- COMMAND")
	default:
		found, err := image.Find(cmp.Or(dir, "."), image.Container{Image: p.container.Image, Command: p.container.Command, Manifests: paths})
		if err != nil {
			return nil, fmt.Errorf("the program of %s: %w", titleOf(t.workload), err)
		}
		base := dir
		command, dir, p.found, p.variables = found.Command, filepath.Join(dir, found.Dir), found.Found, found.Environment
		p.arguments = slices.Concat(found.Entry, found.Arguments)
		if p.container.Args != nil {
			p.arguments = slices.Concat(found.Entry, p.container.Args)
		}
		for _, f := range found.Files {
			here, err := filepath.Abs(filepath.Join(base, f.Source))
			if err != nil {
				return nil, err
			}
			p.source = append(p.source, container.Path{Container: f.Image, Here: here})
		}
	}
	if settings.Arguments != nil {
		p.arguments = settings.Arguments
	}
	var left []string
	if p.arguments, left = container.WithoutElection(p.arguments); len(left) > 0 {
		p.notes = append(p.notes, strings.Join(left, " ")+": one process runs here, and the namespace of its lease would be a file of the pod")
	}
	var err error
	p.words = slices.Clone(command)
	if p.recipe, err = newRecipe(slices.Clone(command), settings.Build); err != nil {
		return nil, err
	}
	if p.recipe.dir = dir; p.recipe.build == nil {
		if p.recipe.run[0], err = p.executable(p.recipe.run[0]); err != nil {
			return nil, fmt.Errorf("the program: %w", err)
		}
	}
	return p, nil
}

// executable returns the path of a program: of a virtual environment or node_modules of the working directory, or else of
// the PATH.
func (p *program) executable(name string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(p.recipe.dir, name)
		}
		if absolute, err := filepath.Abs(name); err == nil {
			name = absolute
		}
		_, err := exec.LookPath(name)
		return name, err
	}
	for _, dir := range p.prepared() {
		if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return found, nil
		}
	}
	_, err := exec.LookPath(name)
	return name, err
}

// prepared returns the directories with the programs of installed dependencies.
func (p *program) prepared() (found []string) {
	for _, base := range []string{p.recipe.dir, "."} {
		for _, name := range []string{".venv/bin", "venv/bin", "node_modules/.bin"} {
			dir, err := filepath.Abs(filepath.Join(base, name))
			if info, failed := os.Stat(dir); err == nil && failed == nil && info.IsDir() && !slices.Contains(found, dir) {
				found = append(found, dir)
			}
		}
	}
	return found
}

// shells run a script, which arguments of a container do not fit.
var shells = []string{"sh", "bash", "ash", "dash", "zsh"}

// forProgram returns the arguments of a container that are added to a given program. Flags that the program has already
// are left out.
func forProgram(command []string, c *corev1.Container) []string {
	args := slices.Clone(c.Args)
	if len(c.Command) > 0 {
		if slices.Contains(shells, filepath.Base(c.Command[0])) {
			return nil
		}
		// The rest of a command of flags alone belongs to the program.
		if rest := c.Command[1:]; !slices.ContainsFunc(rest, func(word string) bool { return !strings.HasPrefix(word, "-") }) {
			args = append(slices.Clone(rest), args...)
		}
	}
	if slices.Contains(shells, filepath.Base(command[0])) {
		return nil
	}
	given := map[string]bool{}
	for _, word := range command[1:] {
		if name, ok := flagName(word); ok {
			given[name] = true
		}
	}
	var rest []string
	for i := 0; i < len(args); i++ {
		name, ok := flagName(args[i])
		if !ok || !given[name] {
			rest = append(rest, args[i])
			continue
		}
		// The value of a flag may be the next word.
		if !strings.Contains(args[i], "=") && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			i++
		}
	}
	return rest
}

// flagName returns the name of a flag.
func flagName(word string) (name string, ok bool) {
	if !strings.HasPrefix(word, "-") || strings.Trim(word, "-") == "" {
		return "", false
	}
	name, _, _ = strings.Cut(strings.TrimLeft(word, "-"), "=")
	return name, true
}

// free returns an error if another process listens on the port of the program.
func (p *program) free() error {
	if p.port == 0 {
		return nil
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(localhost, strconv.Itoa(p.port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("port %d is in use by another process: end that process, or have the program listen elsewhere and say where by --webhook-port", p.port)
	}
	if err == nil {
		listener.Close()
	}
	// Another error is the program's to report.
	return nil
}

// address returns the address of the program.
func (p *program) address() string { return net.JoinHostPort(localhost, strconv.Itoa(p.port)) }

// certificateIn returns the files of the serving certificate by name. The session wrote them into dir.
func certificateIn(dir string) map[string][]byte {
	found := map[string][]byte{}
	for _, name := range []string{selfsigned.CertificateFile, selfsigned.KeyFile, selfsigned.AuthorityFile} {
		found[name], _ = os.ReadFile(filepath.Join(dir, name))
	}
	return found
}

// containerTmp is the directory of a container for temporary files.
const containerTmp = "/tmp"

// hostPath returns the path on this machine of a path of the container.
func (p *program) hostPath(name string) string {
	if inTemporaries(name) {
		return filepath.Join(p.temporaries, filepath.FromSlash(strings.TrimPrefix(name, containerTmp)))
	}
	return filepath.Join(p.root, filepath.FromSlash(name))
}

// inTemporaries reports whether a path of the container is its directory for temporary files or below it.
func inTemporaries(name string) bool {
	return name == containerTmp || strings.HasPrefix(name, containerTmp+"/")
}

// mountsTemporaries reports whether the container has a volume below its directory for temporary files.
func (p *program) mountsTemporaries() bool {
	return p.container != nil && slices.ContainsFunc(p.container.VolumeMounts, func(m corev1.VolumeMount) bool {
		return strings.HasPrefix(path.Clean(m.MountPath), containerTmp+"/")
	})
}

// placed reports whether the program finds the files of a mount at its path. The directory for temporary files is this
// machine's, and the files of the session and of the project stay visible.
func (p *program) placed(name string) bool {
	return p.placing && !p.hides(name) && (!inTemporaries(name) || name != containerTmp && p.placingTmp)
}

// hides reports whether a mount at a path of this machine would hide the session or the working directory.
func (p *program) hides(name string) bool {
	here, _ := filepath.Abs(p.recipe.dir)
	below := strings.TrimSuffix(name, "/") + "/"
	return slices.ContainsFunc([]string{p.home, here}, func(dir string) bool { return strings.HasPrefix(dir+"/", below) })
}

// inProject returns the path in the project at which the program finds a placed mount, too; empty for none. The image has
// files of the project there, and the program may name the mount relative to its working directory.
func (p *program) inProject(name string) string {
	here, from := p.source.Value(name)
	if from == "" || here == name || p.hides(here) {
		return ""
	}
	return here
}

// described is a program with its files and its environment.
type described struct {
	*container.Description
	// paths are replaced, and places are at the paths of the container.
	paths  container.Paths
	places subprocess.Places
	// replaced are the arguments, variables and files in which a path was replaced, by the path of the container.
	replaced map[string][]string
}

// describe describes the container of a program, and writes its files. tokens returns a token of the service account.
func (p *program) describe(data container.Data, tokens func(audience string) ([]byte, error)) (*described, error) {
	d := &described{Description: &container.Description{}, replaced: map[string][]string{}}
	if p.container != nil {
		shown := p.pod.DeepCopy()
		shown.Status.PodIP, shown.Status.HostIP = ownIP, ownIP
		d.Description = container.Describe(shown, p.container, data, certificateIn(p.files))
		d.Mounts = append(d.Mounts, p.serviceAccount(data, tokens != nil)...)
	}
	for _, m := range d.Mounts {
		below := func(other container.Mount) bool {
			return p.placed(other.Path) && strings.HasPrefix(m.Path, other.Path+"/")
		}
		switch {
		case !p.placed(m.Path):
			d.paths = append(d.paths, container.Path{Container: m.Path, Here: p.hostPath(m.Path)})
		case !slices.ContainsFunc(d.Mounts, below):
			for _, there := range []string{m.Path, p.inProject(m.Path)} {
				if there != "" {
					d.places.Here, d.places.There = append(d.places.Here, p.hostPath(m.Path)), append(d.places.There, there)
				}
			}
		}
	}
	d.places.Root = p.places
	d.paths = append(d.paths, p.source...)
	for _, m := range d.Mounts {
		if err := p.write(d, m, tokens); err != nil {
			return nil, fmt.Errorf("the files of %s: %w", m.Path, err)
		}
	}
	return d, nil
}

// serviceAccount returns the files that a pod has from its service account.
func (p *program) serviceAccount(data container.Data, hasTokens bool) []container.Mount {
	if auto := p.template.Spec.AutomountServiceAccountToken; auto != nil && !*auto || !hasTokens {
		return nil
	}
	m := container.Mount{Path: container.ServiceAccountPath, Secret: true, From: "the service account", Files: map[string][]byte{"namespace": []byte(p.pod.Namespace)},
		Tokens: map[string]corev1.ServiceAccountTokenProjection{"token": {}}}
	if content, ok := data("ConfigMap", authorityConfigMap); ok {
		m.Files["ca.crt"] = content["ca.crt"]
	}
	return []container.Mount{m}
}

// write writes the files of a mount. Files that have the content already, and tokens, stay.
func (p *program) write(d *described, m container.Mount, tokens func(audience string) ([]byte, error)) error {
	here := p.hostPath(m.Path)
	if _, single := m.Files[""]; !single {
		if err := os.MkdirAll(here, 0o700); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Files)) {
		content := m.Files[name]
		if name != "" && !filepath.IsLocal(name) {
			return fmt.Errorf("the path %q leads out of the volume", name)
		}
		if !m.Secret {
			var from []string
			content, from = d.paths.Text(content)
			for _, path := range from {
				d.note(path, filepath.Join(m.Path, name))
			}
		}
		if err := store(filepath.Join(here, filepath.FromSlash(name)), content); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Tokens)) {
		file := filepath.Join(here, filepath.FromSlash(name))
		if _, err := os.Stat(file); err == nil || tokens == nil || !filepath.IsLocal(name) {
			continue
		}
		token, err := tokens(m.Tokens[name].Audience)
		if err == nil {
			err = store(file, token)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// store writes a file that has another content.
func store(name string, content []byte) error {
	if had, err := os.ReadFile(name); err == nil && string(had) == string(content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	return files.Replace(name, content, 0o600, false)
}

// note records that a path was replaced in a place.
func (d *described) note(path, place string) {
	if !slices.Contains(d.replaced[path], place) {
		d.replaced[path] = append(d.replaced[path], place)
	}
}

// inCluster is the prefix of the variables by which a pod finds its server. In a pod, the variables of this process name the
// server of another cluster.
const inCluster = "KUBERNETES_SERVICE_"

// set sets the environment and the command line. filled are the variables of the session, which the program gets, and
// which are replaced in a given command.
func (p *program) set(d *described, filled map[string]string) {
	p.env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, inCluster) })
	if dirs := p.prepared(); len(dirs) > 0 {
		p.env = append(p.env, "PATH="+strings.Join(append(dirs, os.Getenv("PATH")), string(filepath.ListSeparator)))
	}
	for _, v := range p.variables {
		name, value, _ := strings.Cut(v, "=")
		value, from := d.paths.Value(value)
		if from != "" {
			d.note(from, "$"+name)
		}
		p.env = append(p.env, name+"="+value)
	}
	for _, v := range d.Environment {
		value, from := d.paths.Value(v.Value)
		if from != "" {
			d.note(from, "$"+v.Name)
		}
		p.env = append(p.env, v.Name+"="+value)
	}
	for _, name := range slices.Sorted(maps.Keys(filled)) {
		if (name == "PORT" || name == "CERT_DIR") && slices.ContainsFunc(d.Environment, func(v container.Variable) bool { return v.Name == name }) {
			continue
		}
		p.env = append(p.env, name+"="+filled[name])
	}
	values := map[string]string{}
	for _, v := range d.Environment {
		values[v.Name] = v.Value
	}
	p.command = slices.Concat(p.recipe.given, p.recipe.fill(filled, nil), p.argumentsHere(d, p.arguments))
	p.recipe.fill(filled, p.argumentsHere(d, container.Expand(p.arguments, values)))
}

// argumentsHere returns arguments with the paths of this machine.
func (p *program) argumentsHere(d *described, arguments []string) []string {
	arguments = slices.Clone(arguments)
	script := false
	for i, a := range arguments {
		var from []string
		if script {
			var text []byte
			text, from = d.paths.Text([]byte(a))
			arguments[i] = string(text)
		} else if value, path := d.paths.Argument(a); path != "" {
			arguments[i], from = value, []string{path}
		}
		for _, path := range from {
			name, ok := flagName(a)
			if !ok {
				name = "the arguments"
			} else {
				name = "--" + name
			}
			d.note(path, name)
		}
		script = a == "-c"
	}
	return arguments
}

// commandLine returns the command line for the user. References to variables, which may have secrets, are not replaced.
func (p *program) commandLine() string { return strings.Join(p.command, " ") }

// start starts the program.
func (p *program) start(args []string, g *guard) (err error) {
	p.printed.Reset()
	output := io.MultiWriter(p.output, p.printed)
	if p.process, err = p.described.places.Start(args, p.env, p.recipe.dir, output, output, g.set); err != nil {
		p.process = nil
	}
	return err
}

// interrupted reports whether a source file has changed, or the user wants another start.
func (s *session) interrupted() bool { return len(s.changes) > 0 || len(s.Restart) > 0 }

// listening reports whether the program listens, and tells the user if not.
func (s *session) listening(ctx context.Context, p *program) bool {
	if p.port == 0 {
		return true
	}
	soon, cancel := context.WithTimeout(ctx, listenSoon)
	defer cancel()
	err := listens(soon, p.process, p.address(), s.interrupted)
	if refused := (*handshakeError)(nil); errors.As(err, &refused) && ctx.Err() == nil {
		s.Say("The program accepts connections on port %d, and no TLS handshake succeeds: %v. Have it serve TLS with tls.crt and tls.key of %s.", p.port, refused.cause, p.files)
	} else if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		s.Say("The program does not listen on port %d yet. %s", p.port, elsewhere(p.port, portsOf(p.process.Group())))
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		late, cancel := context.WithTimeout(ctx, listenLate)
		defer cancel()
		err = listens(late, p.process, p.address(), s.interrupted)
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

// replace builds programs, and starts them in place of the running ones. Requests wait meanwhile.
func (s *session) replace(ctx context.Context, programs []*program) error {
	began := time.Now()
	var built []*program
	commands := map[*program][]string{}
	for _, p := range programs {
		idle := func() {}
		if p.process == nil && p.again == nil && s.Busy != nil && p.recipe.build != nil {
			idle = s.Busy("Building the program")
		}
		args, err := p.again, error(nil)
		if p.again = nil; args == nil {
			args, err = p.recipe.make(ctx, s.guard, os.Environ(), p.home, p.output, s.interrupted)
		}
		idle()
		if ctx.Err() != nil || errors.Is(err, errInterrupted) {
			return nil
		}
		if err != nil {
			serves := ": the program before serves on."
			if p.process == nil {
				serves = "."
				p.gate.release()
			}
			s.Say("%v%s", err, serves)
			continue
		}
		built = append(built, p)
		commands[p] = args
	}
	restarts := false
	var started []*program
	for _, p := range built {
		p.gate.hold(grace)
		defer p.gate.release()
		restarts = restarts || p.process != nil
		p.process.Stop(grace)
		if p.process != nil {
			p.process = nil
			p.recipe.clean(p.home)
		}
		if err := p.start(commands[p], s.guard); err != nil {
			s.Say("The program does not start: %v.", err)
			continue
		}
		p.ran = commands[p]
		started = append(started, p)
		go s.await(ctx, p, p.process)
	}
	serves := false
	for _, p := range started {
		if s.listening(ctx, p) {
			serves = true
			p.gate.release()
		}
	}
	if !serves {
		return nil
	}
	if restarts {
		s.Say("The new program serves, after %s.", time.Since(began).Round(10*time.Millisecond))
	}
	s.sayMistakes(ctx)
	return s.served(ctx)
}

// ended is a program whose process has ended by itself.
type ended struct {
	program *program
	process *subprocess.Process
}

// await reports the end of a process.
func (s *session) await(ctx context.Context, p *program, process *subprocess.Process) {
	select {
	case <-process.Gone:
		select {
		case s.gone <- ended{p, process}:
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
}

// Explain returns the programs that a session would run with the settings that it would use, without starting anything.
// References to ConfigMaps and Secrets are not resolved.
func Explain(ctx context.Context, o Options) ([]Program, error) {
	s := &session{Options: o}
	s.Output = func(string) io.Writer { return io.Discard }
	var err error
	if slices.Contains(o.Paths, manifests.Stdin) {
		if s.piped, err = files.ReadFrom(o.Stdin, files.Objects); err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
	}
	if s.project, err = s.read(ctx); err != nil {
		return nil, err
	}
	if s.programs, err = s.choosePrograms(); err != nil {
		return nil, err
	}
	var found []Program
	for _, p := range s.programs {
		one := Program{Port: p.port, Directory: p.recipe.dir, Command: p.words, Build: p.settings.Build, Arguments: p.arguments}
		if len(p.services) > 0 {
			one.Service = p.services[0].String()
		}
		if p.container != nil {
			one.Environment = p.container.Env
		}
		found = append(found, one)
	}
	return found, nil
}
