package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// progressEvery is the interval between updates of the progress.
const progressEvery = 200 * time.Millisecond

// Progress shows the progress of a command on a terminal, in one line that it overwrites and
// removes at the end. The zero Progress shows nothing.
type Progress struct {
	out *os.File

	mu    sync.Mutex
	text  string
	width int
	// stop ends the goroutine that writes, and stopped is closed when it has ended.
	stop, stopped chan struct{}
	once          sync.Once
}

// NewProgress returns a Progress that becomes visible after some time, with text as its first
// state, until its End. If after is 0, it is visible when NewProgress returns. It shows nothing if
// out is not a terminal.
func NewProgress(out io.Writer, text string, after time.Duration) *Progress {
	// The carriage return must reach the terminal.
	file, ok := Exact(out).(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return &Progress{}
	}
	p := &Progress{out: file, text: text, stop: make(chan struct{}), stopped: make(chan struct{})}
	if after <= 0 {
		p.write()
		after = progressEvery
	}
	go p.show(after)
	return p
}

// Set sets the current activity. The text is the program's own. It is shortened to the width of the
// terminal.
func (p *Progress) Set(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = text
}

func (p *Progress) show(after time.Duration) {
	defer close(p.stopped)
	next := time.NewTimer(after)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			p.write()
			next.Reset(progressEvery)
		case <-p.stop:
			if p.width > 0 {
				fmt.Fprintf(p.out, "\r%s\r", strings.Repeat(" ", p.width))
			}
			return
		}
	}
}

// write writes the current line.
func (p *Progress) write() {
	p.mu.Lock()
	text := p.text
	p.mu.Unlock()
	// A longer line would wrap, and could not be overwritten.
	if columns, _, err := term.GetSize(int(p.out.Fd())); err == nil && columns > 1 && Columns(text) >= columns {
		text = text[:breakAt(text, columns-1)]
	}
	fmt.Fprintf(p.out, "\r%-*s", p.width, text)
	p.width = max(p.width, len(text))
}

// End removes the line. It may be called again.
func (p *Progress) End() {
	if p.stop == nil {
		return
	}
	p.once.Do(func() { close(p.stop) })
	<-p.stopped
}
