package serving

import (
	"bytes"
	"sync"

	"github.com/spf13/pflag"
)

// keptLog is half of the largest size of the log in memory, in bytes. At least that much is kept, if the server
// logged as much.
const keptLog = 256 << 10

// latestLog keeps the latest records of a log. Each call of Write writes one record. It is safe for concurrent
// use; the zero value is empty and takes no memory.
type latestLog struct {
	mu sync.Mutex
	// newer grows to keptLog and then becomes older.
	older, newer []byte
}

// Write implements io.Writer.
func (l *latestLog) Write(record []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.newer) > 0 && len(l.newer)+len(record) > keptLog {
		l.older, l.newer = l.newer, nil
	}
	l.newer = append(l.newer, record[:min(len(record), keptLog)]...)
	return len(record), nil
}

// Bytes returns the kept records, the oldest first.
func (l *latestLog) Bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Join([][]byte{l.older, l.newer}, nil)
}

// shownFlags are the flags on the page /flagz.
type shownFlags struct{ flags *pflag.FlagSet }

// GetFlagz implements flagz.Reader. The flags do not change while a server runs.
func (s shownFlags) GetFlagz() map[string]string {
	values := map[string]string{}
	s.flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Value != nil {
			values[f.Name] = f.Value.String()
		}
	})
	return values
}
