package engines

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/kit/scratch"
	"github.com/gatehouse-dev/gatehouse/internal/kit/selfsigned"
	"github.com/gatehouse-dev/gatehouse/internal/kit/subprocess"
)

// end is the time that a program may take to end before it is killed.
const end = 5 * time.Second

// Seat is the environment of a program that serves the webhooks of a service.
type Seat struct {
	// Address is the address at which the program must listen, and Authority the CA of its certificate, in PEM.
	Address   string
	Authority []byte

	root    *scratch.Dir
	service string
	values  map[string]string
	program *subprocess.Process
	output  subprocess.Tail
}

// NewSeat makes a seat for the program of a service, NAMESPACE/NAME. The caller must stop it.
func NewSeat(service string) (*Seat, error) {
	dir, err := scratch.New()
	if err != nil {
		return nil, err
	}
	s := &Seat{root: dir, service: service, values: map[string]string{"CERT_DIR": filepath.Join(dir.Path(), "certificates"), "TMPDIR": filepath.Join(dir.Path(), "tmp")}}
	for _, name := range []string{"CERT_DIR", "TMPDIR"} {
		if err == nil {
			err = os.Mkdir(s.values[name], 0o700)
		}
	}
	if err == nil {
		namespace, name, _ := strings.Cut(service, "/")
		s.Authority, err = selfsigned.Write(s.values["CERT_DIR"], name+"."+namespace+".svc")
	}
	for _, name := range []string{"PORT", "HEALTH_PORT"} {
		if err == nil {
			s.values[name], err = freePort()
		}
	}
	if err != nil {
		dir.Remove()
		return nil, err
	}
	s.Address = net.JoinHostPort("127.0.0.1", s.values["PORT"])
	return s, nil
}

// freePort returns a port that no program listens on.
func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, err
}

// Set sets a value for ${NAME} in the program's command and environment.
func (s *Seat) Set(name, value string) { s.values[name] = value }

// Expand replaces ${NAME} with the values of the seat, and keeps other names.
func (s *Seat) Expand(text string) string {
	return os.Expand(text, func(name string) string {
		if value, ok := s.values[name]; ok {
			return value
		}
		return "${" + name + "}"
	})
}

// ServiceAddress returns the address of the service, in the form of stage.Options.
func (s *Seat) ServiceAddress() string { return s.service + "=" + s.Address }

// Start starts the program in a directory. The values of the seat are in its environment.
func (s *Seat) Start(command []string, env map[string]string, dir string) error {
	args := make([]string, len(command))
	for i := range command {
		args[i] = s.Expand(command[i])
	}
	all := os.Environ()
	for _, name := range slices.Sorted(maps.Keys(s.values)) {
		all = append(all, name+"="+s.values[name])
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		all = append(all, name+"="+s.Expand(env[name]))
	}
	program, err := subprocess.Start(args, all, dir, &s.output, &s.output, nil)
	if err == nil {
		s.program = program
	}
	return err
}

// Await waits until the program listens.
func (s *Seat) Await(ctx context.Context) error {
	dialer := net.Dialer{Timeout: time.Second}
	return s.until(ctx, func() (bool, error) {
		c, err := dialer.DialContext(ctx, "tcp", s.Address)
		if err == nil {
			c.Close()
		}
		return err == nil, nil
	})
}

// errEnded reports that the program ended before it was ready.
var errEnded = errors.New("before it was ready")

// until waits until so returns true or an error, or the program has ended.
func (s *Seat) until(ctx context.Context, so func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := so(); ok || err != nil {
			return err
		}
		select {
		case <-s.program.Gone:
			return fmt.Errorf("it ended: %w", errors.Join(s.program.Err, errEnded))
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// Printed returns the last output of the program; empty if there is none.
func (s *Seat) Printed() string {
	if text := s.output.String(); text != "" {
		return "; it printed: " + text
	}
	return ""
}

// Stop ends the program and its child processes.
func (s *Seat) Stop() {
	s.program.Stop(end)
	s.root.Remove()
}
