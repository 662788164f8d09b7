package suite

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite/engines"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite/recipe"
)

// programPatience is the time that a program may take to listen: it may have to be compiled.
const programPatience = 3 * time.Minute

// running are the programs that were started for tests.
type running struct {
	// services are the services whose webhooks were started, as NAMESPACE/NAME.
	services map[string]bool

	programs []*process
	engines  []*engines.Engine
}

// process is one program.
type process struct {
	*engines.Seat
	program
	file string
}

// startPrograms starts the programs of suites, and makes the seats of engines. Webhook configurations and CRDs that
// refer to the services of programs get the CA of the programs' certificates.
func startPrograms(suites []*Suite, recipes []*recipe.Recipe, set *worldSet, o *stage.Options) (_ *running, err error) {
	r := &running{services: map[string]bool{}}
	defer func() {
		if err != nil {
			r.stop()
		}
	}()
	for _, one := range recipes {
		e, err := engines.Prepare(one)
		if err != nil {
			return nil, err
		}
		r.engines, r.services[one.Service] = append(r.engines, e), true
		o.ServiceAddresses = append(o.ServiceAddresses, e.ServiceAddress())
	}
	for _, s := range suites {
		for _, p := range s.programs {
			one, err := r.start(s, p)
			if err != nil {
				return nil, &FileError{s.File, p.line, fmt.Sprintf("the program %s: %v", strings.Join(p.command, " "), err)}
			}
			r.services[p.service] = true
			o.ServiceAddresses = append(o.ServiceAddresses, one.ServiceAddress())
			for i, object := range set.Objects {
				if changed := engines.Trusting(object.Content, p.service, one.Authority); changed != nil {
					set.Objects[i] = object.With(changed)
				}
			}
		}
	}
	return r, nil
}

// notStarted is the error of tests in a file with programs that may not be started: otherwise the author of the file
// would choose the programs that run on this machine (S24.18).
func notStarted(file string, p *program) error {
	return &FileError{file, p.line, fmt.Sprintf("the file names a program (%s), which runs with --start-programs only: name that flag if you trust the file", strings.Join(p.command, " "))}
}

// start starts one program.
func (r *running) start(s *Suite, p program) (*process, error) {
	seat, err := engines.NewSeat(p.service)
	if err != nil {
		return nil, err
	}
	one := &process{seat, p, s.File}
	r.programs = append(r.programs, one)
	return one, seat.Start(p.command, p.env, filepath.Dir(s.File))
}

// await waits until all programs listen.
func (r *running) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, programPatience)
	defer cancel()
	for _, p := range r.programs {
		if err := p.Await(ctx); err != nil {
			return &FileError{p.file, p.line, fmt.Sprintf("the program %s does not listen on port %s: %v%s", strings.Join(p.command, " "), p.Address, err, p.Printed())}
		}
	}
	return nil
}

// stop ends the programs and engines.
func (r *running) stop() {
	var stopping sync.WaitGroup
	for _, p := range r.programs {
		stopping.Go(p.Stop)
	}
	for _, e := range r.engines {
		stopping.Go(e.Stop)
	}
	stopping.Wait()
}
