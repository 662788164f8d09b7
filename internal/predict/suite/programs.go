package suite

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/internal/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/scratch"
	"github.com/gatehouse-dev/gatehouse/internal/selfsigned"
	"github.com/gatehouse-dev/gatehouse/internal/subprocess"
)

// programPatience is how long a program may take to listen: it may have to be compiled.
const programPatience = 3 * time.Minute

// programEnd is how long a program may take to end before it is killed.
const programEnd = 5 * time.Second

// running are the webhooks that were started for tests.
type running struct {
	// services are those whose webhooks were started, as NAMESPACE/NAME.
	services map[string]bool

	dir      *scratch.Dir
	programs []*process
}

// process is one program.
type process struct {
	*subprocess.Process
	program
	file    string
	address string
	output  subprocess.Tail
}

// startPrograms starts the programs of suites. Registrations and definitions with their services get the
// authority of the certificates that the programs were given.
func startPrograms(ctx context.Context, suites []*Suite, set *worldSet, o *stage.Options) (_ *running, err error) {
	r := &running{services: map[string]bool{}}
	defer func() {
		if err != nil {
			r.stop()
		}
	}()
	for _, s := range suites {
		for _, p := range s.programs {
			if r.dir == nil {
				if r.dir, err = scratch.New(); err != nil {
					return nil, err
				}
			}
			one, authority, err := r.start(ctx, s, p)
			if err != nil {
				return nil, &FileError{s.File, p.line, fmt.Sprintf("the program %s: %v", strings.Join(p.command, " "), err)}
			}
			r.services[p.service] = true
			o.ServiceAddresses = append(o.ServiceAddresses, p.service+"="+one.address)
			for i, object := range set.Objects {
				if changed := trusting(object.Content, p.service, authority); changed != nil {
					set.Objects[i] = object.With(changed)
				}
			}
		}
	}
	return r, nil
}

// notStarted is why the tests of a file with programs are not judged: the author of the file would
// choose what runs here (S24.18).
func notStarted(file string, p *program) error {
	return &FileError{file, p.line, fmt.Sprintf("the file names a program (%s), which runs with --start-programs only: name that flag if you trust the file", strings.Join(p.command, " "))}
}

// trusting is a registration, or a definition with a conversion, whose webhooks behind a service trust an
// authority; nil when nothing changes.
func trusting(content map[string]any, service string, authority []byte) map[string]any {
	copied := runtime.DeepCopyJSON(content)
	var hooks []any
	switch kind := at(content, "kind"); {
	case strings.HasSuffix(kind, "WebhookConfiguration"):
		hooks, _ = copied["webhooks"].([]any)
	case kind == "CustomResourceDefinition":
		hooks = []any{walk(copied, "spec", "conversion", "webhook")}
	}
	changed := false
	for _, h := range hooks {
		to, _ := walk(h, "clientConfig").(map[string]any)
		if at(to, "service", "namespace")+"/"+at(to, "service", "name") != service || at(to, "caBundle") != "" {
			continue
		}
		to["caBundle"] = base64.StdEncoding.EncodeToString(authority)
		changed = true
	}
	if !changed {
		return nil
	}
	return copied
}

// start starts one program, with a certificate for its service and a free port.
func (r *running) start(ctx context.Context, s *Suite, p program) (*process, []byte, error) {
	dir := filepath.Join(r.dir.Path(), strconv.Itoa(len(r.programs)))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, nil, err
	}
	namespace, name, _ := strings.Cut(p.service, "/")
	authority, err := selfsigned.Write(dir, name+"."+namespace+".svc")
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	address := listener.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	listener.Close()
	values := map[string]string{"PORT": port, "CERT_DIR": dir}
	expand := func(text string) string {
		return os.Expand(text, func(name string) string {
			if value, ok := values[name]; ok {
				return value
			}
			return "${" + name + "}"
		})
	}
	args := make([]string, len(p.command))
	for i, arg := range p.command {
		args[i] = expand(arg)
	}
	one := &process{program: p, file: s.File, address: address}
	env := append(os.Environ(), "PORT="+port, "CERT_DIR="+dir)
	for name, value := range p.env {
		env = append(env, name+"="+expand(value))
	}
	if one.Process, err = subprocess.Start(args, env, filepath.Dir(s.File), &one.output, nil); err != nil {
		return nil, nil, err
	}
	r.programs = append(r.programs, one)
	return one, authority, nil
}

// await returns when all programs listen.
func (r *running) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, programPatience)
	defer cancel()
	for _, p := range r.programs {
		if err := p.await(ctx); err != nil {
			text := p.output.String()
			if text != "" {
				text = "; it printed: " + text
			}
			return &FileError{p.file, p.line, fmt.Sprintf("the program %s does not listen on port %s: %v%s", strings.Join(p.command, " "), p.address, err, text)}
		}
	}
	return nil
}

func (p *process) await(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	dialer := net.Dialer{Timeout: time.Second}
	for {
		if c, err := dialer.DialContext(ctx, "tcp", p.address); err == nil {
			c.Close()
			return nil
		}
		select {
		case <-p.Gone:
			return fmt.Errorf("it ended: %w", errors.Join(p.Err, errEnded))
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

var errEnded = errors.New("before it listened")

// stop ends the programs.
func (r *running) stop() {
	var stopping sync.WaitGroup
	for _, p := range r.programs {
		stopping.Go(func() { p.Stop(programEnd) })
	}
	stopping.Wait()
	if r.dir != nil {
		r.dir.Remove()
	}
}
