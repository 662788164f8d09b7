package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// progressAfter is how long a command works before it shows its progress.
var progressAfter = 2 * time.Second

// progressEvery is how often a command shows its progress from then on.
const progressEvery = 200 * time.Millisecond

// progress shows on a terminal how far a command is: one line, which it writes over, and which is
// gone at the end. The zero progress shows nothing.
type progress struct {
	out io.Writer

	mu    sync.Mutex
	text  string
	width int
	// stop ends the goroutine that shows, and stopped is closed when it has ended.
	stop, stopped chan struct{}
	once          sync.Once
}

// newProgress returns a progress that shows itself after some time, until its end, with what is
// done first. It shows nothing when out is not a terminal.
func newProgress(out io.Writer, text string) *progress {
	// A return to the begin of the line is meant.
	file, ok := terminal.Exact(out).(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return &progress{}
	}
	p := &progress{out: file, text: text, stop: make(chan struct{}), stopped: make(chan struct{})}
	go p.show(progressAfter)
	return p
}

// set says what is done now. The text is the program's own.
func (p *progress) set(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = text
}

func (p *progress) show(after time.Duration) {
	defer close(p.stopped)
	next := time.NewTimer(after)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			p.mu.Lock()
			text := p.text
			p.mu.Unlock()
			fmt.Fprintf(p.out, "\r%-*s", p.width, text)
			p.width = max(p.width, len(text))
			next.Reset(progressEvery)
		case <-p.stop:
			if p.width > 0 {
				fmt.Fprintf(p.out, "\r%s\r", strings.Repeat(" ", p.width))
			}
			return
		}
	}
}

// end takes the line away. It may be called again.
func (p *progress) end() {
	if p.stop == nil {
		return
	}
	p.once.Do(func() { close(p.stop) })
	<-p.stopped
}
