package manifests

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/admission/plugin/manifest/metrics"
	"k8s.io/apiserver/pkg/util/filesystem"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/exclusion"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

const (
	// lookEvery is how often Run checks the names, sizes and times of files, in addition to the
	// events of the file system (D67).
	lookEvery = time.Second
	// settle is the time between the two reads that must agree (D66).
	settle = 100 * time.Millisecond
	// recent is the age below which the time of a file proves nothing: a later write may have
	// the same time.
	recent = 2 * time.Second
	// tryAgain is the time after which Run reads a bad set again, and counts it again, if no file
	// has changed. It is upstream's interval (S21.22).
	tryAgain = time.Minute
)

// Options configure a Source.
type Options struct {
	// Directories are the directories of plugins, by the plugins' names.
	Directories map[string]string
	// ServerID names the server in metrics.
	ServerID string
	// Exclusions are the rules that are active until SetExclusions is called.
	Exclusions *exclusion.Rules
	// Changed, if set, is called when another set has taken effect.
	Changed func()
}

// Source has the registrations of manifest files. It is safe for concurrent use, except that
// Run must be called once.
type Source struct {
	options     Options
	directories []*directory
	current     atomic.Pointer[content]

	// mu is held while the sets are put together. It guards exclusions.
	mu         sync.Mutex
	exclusions *exclusion.Rules
}

// content has the registrations of all directories at one time. It is immutable.
type content struct {
	local  *snapshot.Local
	places func() manifests.Places
}

// directory is the directory of one plugin.
type directory struct {
	source *Source
	plugin string
	path   string
	// set is the set in use.
	set *set
	// Only the goroutine of Run uses the following fields.

	// stamps are the stamps of the files at the last attempt; nil when the files must be read
	// again.
	stamps []stamp
	// hash is the hash of the last set that was read. bad reports whether that set could not be
	// used, and when is the time at which the server last reported so.
	hash string
	bad  bool
	when time.Time
	// said is the last error that was logged, and refused the last logged error about ignored
	// files.
	said, refused string
}

// stamp has the facts of a file that change with most of its changes.
type stamp struct {
	name string
	size int64
	time time.Time
}

// Open reads all directories. The error names the bad file, and ends the start of a server
// (S21.21).
func Open(o Options) (*Source, error) {
	s := &Source{options: o, exclusions: o.Exclusions}
	if len(o.Directories) > 0 {
		metrics.RegisterMetrics()
	}
	for _, plugin := range slices.Sorted(maps.Keys(o.Directories)) {
		d := &directory{source: s, plugin: plugin, path: o.Directories[plugin]}
		var err error
		if d.set, err = load(plugin, d.path); err != nil {
			return nil, d.failure(err)
		}
		d.hash = d.set.hash
		s.directories = append(s.directories, d)
	}
	if err := s.assemble(); err != nil {
		return nil, err
	}
	for _, d := range s.directories {
		klog.InfoS("Read manifest files", "plugin", d.plugin, "directory", d.path, "objects", len(d.set.manifests))
		metrics.RecordAutomaticReloadSuccess(metrics.ManifestType(d.plugin), o.ServerID, d.set.hash)
	}
	return s, nil
}

// failure returns the error that fails the start.
func (d *directory) failure(err error) error {
	what := "webhook"
	if strings.HasSuffix(d.plugin, "Policy") {
		what = "policy"
	}
	return fmt.Errorf("failed to load static %s manifests from %q: %w", what, d.path, err)
}

// Local returns the registrations of the files.
func (s *Source) Local() *snapshot.Local { return s.current.Load().local }

// SetExclusions replaces the exclusion rules.
func (s *Source) SetExclusions(rules *exclusion.Rules) error {
	s.mu.Lock()
	s.exclusions = rules
	s.mu.Unlock()
	if err := s.assemble(); err != nil {
		return err
	}
	if s.options.Changed != nil {
		s.options.Changed()
	}
	return nil
}

// Locate returns the place in the files of a rule, or of the entry when rule is nil; nil
// when the entry is not in the files.
func (s *Source) Locate(e *plan.Entry, rule *int) *plan.Location {
	if c := s.current.Load(); e.Source != "" && c.places != nil {
		return c.places().Locate(e, rule)
	}
	return nil
}

// assemble puts the sets of all directories into use.
func (s *Source) assemble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &content{}
	var all []snapshot.Manifest
	hashes := map[string]string{}
	texts := map[string][]byte{}
	for _, d := range s.directories {
		all = append(all, d.set.manifests...)
		hashes[d.plugin] = d.set.hash
		maps.Copy(texts, d.set.texts)
	}
	if len(s.directories) > 0 {
		var err error
		if c.local, err = snapshot.NewLocal(all, hashes); err != nil {
			return err
		}
	}
	if s.exclusions != nil {
		c.local = c.local.WithExclusions(s.exclusions)
	}
	c.places = sync.OnceValue(func() manifests.Places { return manifests.PlacesIn(texts) })
	s.current.Store(c)
	return nil
}

// Run follows changes of the files until ctx ends.
func (s *Source) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, d := range s.directories {
		all.Go(func() {
			filesystem.WatchUntil(ctx, lookEvery, d.path, func() { d.look(ctx) }, func(err error) {
				klog.V(1).InfoS("Cannot watch manifest files; looking at them every second", "plugin", d.plugin, "directory", d.path, "err", err)
			})
		})
	}
}

// look puts a changed set into use, or logs why it cannot be used (S21.22).
func (d *directory) look(ctx context.Context) {
	now := time.Now()
	stamps, err := stampsOf(d.path)
	if err == nil && d.stamps != nil && slices.Equal(stamps, d.stamps) && !(d.bad && now.Sub(d.when) >= tryAgain) {
		return
	}
	d.stamps = nil
	r, err := readFiles(d.path, d.set.texts)
	for err == nil && r.hash != d.hash {
		// A file may be half written: a set is used only if it stays the same (D66).
		select {
		case <-ctx.Done():
			return
		case <-time.After(settle):
		}
		last := r.hash
		if r, err = readFiles(d.path, d.set.texts); err == nil && r.hash == last {
			break
		}
	}
	if err != nil {
		d.fail(now, err)
		return
	}
	// Files that were written just now may be written again with the same times.
	if !slices.ContainsFunc(stamps, func(s stamp) bool { return now.Sub(s.time) < recent }) {
		d.stamps = stamps
	}
	defer func() { d.refuse(r.refused) }()
	if r.hash == d.hash && !(d.bad && now.Sub(d.when) >= tryAgain) {
		return
	}
	d.hash, d.refused = r.hash, ""
	next, err := r.decode(d.plugin)
	if err == nil {
		err = d.use(next)
	}
	if err != nil {
		d.bad = true
		d.fail(now, err)
		return
	}
	d.bad, d.said = false, ""
	klog.InfoS("Manifest files have changed and are in use", "plugin", d.plugin, "directory", d.path, "objects", len(next.manifests), "hash", next.hash)
	metrics.RecordAutomaticReloadSuccess(metrics.ManifestType(d.plugin), d.source.options.ServerID, next.hash)
	if d.source.options.Changed != nil {
		d.source.options.Changed()
	}
}

// use puts a set into use.
func (d *directory) use(next *set) error {
	last := d.swap(next)
	err := d.source.assemble()
	if err != nil {
		d.swap(last)
	}
	return err
}

func (d *directory) swap(next *set) *set {
	d.source.mu.Lock()
	defer d.source.mu.Unlock()
	last := d.set
	d.set = next
	return last
}

// fail counts a set that cannot be used. The set in use is kept.
func (d *directory) fail(now time.Time, err error) {
	d.when = now
	metrics.RecordAutomaticReloadFailure(metrics.ManifestType(d.plugin), d.source.options.ServerID)
	if d.said != err.Error() {
		d.said = err.Error()
		klog.ErrorS(err, "Cannot use the manifest files; the earlier files stay active", "plugin", d.plugin, "directory", d.path)
	}
}

// refuse logs and counts the ignored files, if these have changed or another set has taken effect.
func (d *directory) refuse(err error) {
	if err == nil {
		d.refused = ""
		return
	}
	if d.refused == err.Error() {
		return
	}
	d.refused = err.Error()
	metrics.RecordAutomaticReloadFailure(metrics.ManifestType(d.plugin), d.source.options.ServerID)
	klog.ErrorS(err, "Cannot read some manifest files; their earlier content stays active, and the other files are read", "plugin", d.plugin, "directory", d.path)
}

// stampsOf returns the stamps of the files of a directory, by name.
func stampsOf(dir string) ([]stamp, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	stamps := []stamp{}
	for _, e := range entries {
		if !isManifest(e) {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		stamps = append(stamps, stamp{e.Name(), info.Size(), info.ModTime()})
	}
	slices.SortFunc(stamps, func(a, b stamp) int { return cmp.Compare(a.name, b.name) })
	return stamps, nil
}
