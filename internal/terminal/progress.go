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

// progressEvery is how often a command shows its progress from then on.
const progressEvery = 200 * time.Millisecond

// Progress shows on a terminal how far a command is: one line, which it writes over, and which is
// gone at the end. The zero Progress shows nothing.
type Progress struct {
	out *os.File

	mu    sync.Mutex
	text  string
	width int
	// stop ends the goroutine that shows, and stopped is closed when it has ended.
	stop, stopped chan struct{}
	once          sync.Once
}

// NewProgress returns a Progress that shows itself after some time, until its End, with what is
// done first. Without a time, it has shown itself when NewProgress returns. It shows nothing when
// out is not a terminal.
func NewProgress(out io.Writer, text string, after time.Duration) *Progress {
	// A return to the begin of the line is meant.
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

// Set says what is done now. The text is the program's own. It is shortened to the width of the
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

// write writes the line as it is now.
func (p *Progress) write() {
	p.mu.Lock()
	text := p.text
	p.mu.Unlock()
	// A longer line could not be written over.
	if columns, _, err := term.GetSize(int(p.out.Fd())); err == nil && columns > 1 && Columns(text) >= columns {
		text = text[:breakAt(text, columns-1)]
	}
	fmt.Fprintf(p.out, "\r%-*s", p.width, text)
	p.width = max(p.width, len(text))
}

// End takes the line away. It may be called again.
func (p *Progress) End() {
	if p.stop == nil {
		return
	}
	p.once.Do(func() { close(p.stop) })
	<-p.stopped
}
