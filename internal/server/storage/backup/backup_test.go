package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/keys"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/datadir"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/encryption"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
)

// newDir makes a data directory in which the key "state" and the CA have a value.
func newDir(t *testing.T, value string) string {
	t.Helper()
	// An etcd that ends may still be preparing the next log file.
	dir, err := os.MkdirTemp("", "backup-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for os.RemoveAll(dir) != nil {
		}
	})
	if err := errors.Join(datadir.Prepare(keys.Files{}, dir), os.Mkdir(filepath.Join(dir, keysName), 0o700),
		os.WriteFile(filepath.Join(dir, keysName, "ca.crt"), []byte(value), 0o644)); err != nil {
		t.Fatal(err)
	}
	serve(t, dir, func(s *Source) {
		if _, err := s.Client.Put(t.Context(), "state", value); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// serve runs an etcd on a data directory while do runs.
func serve(t *testing.T, dir string, do func(*Source)) {
	t.Helper()
	server, err := etcd.Start(t.Context(), etcd.Options{Dir: filepath.Join(dir, "etcd"), MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	s, end, err := connect(t.Context(), dir, "v1", server.Endpoint(), func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	do(s)
}

// state returns the values in a data directory, and the revision of its etcd.
func state(t *testing.T, dir string) (stored, authority string, revision int64) {
	t.Helper()
	serve(t, dir, func(s *Source) {
		r, err := s.Client.Get(t.Context(), "state")
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range r.Kvs {
			stored = string(kv.Value)
		}
		revision = r.Header.Revision
	})
	ca, err := os.ReadFile(filepath.Join(dir, keysName, "ca.crt"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return stored, string(ca), revision
}

// made returns a backup of a data directory.
func made(t *testing.T, dir string) []byte { return madeWith(t, dir, false) }

func madeWith(t *testing.T, dir string, key bool) []byte {
	t.Helper()
	s, end, err := Open(t.Context(), dir, "v1")
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	s.WithEncryptionKey = key
	var b bytes.Buffer
	if _, err := s.Write(t.Context(), &b, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sumOf is a checksum over the names and contents of a tree. Locks do not count.
func sumOf(t *testing.T, dir string) string {
	t.Helper()
	sum := sha256.New()
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || e.Name() == "lock" {
			return err
		}
		content, err := os.ReadFile(path)
		fmt.Fprintf(sum, "%s %d ", path, len(content))
		sum.Write(content)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// A backup of a running server and a backup of its data after it has ended have the same content. A
// backup without a server does not change the data.
func TestABackupHasEverything(t *testing.T) {
	dir := newDir(t, "old")
	before := sumOf(t, dir)
	stopped := made(t, dir)
	if sumOf(t, dir) != before {
		t.Error("the data of a server that does not run have changed")
	}
	var running []byte
	serve(t, dir, func(*Source) { running = made(t, dir) })
	for name, data := range map[string][]byte{"stopped": stopped, "running": running} {
		to := filepath.Join(t.TempDir(), "new")
		r, err := Restore(to, bytes.NewReader(data))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r.Replaced != "" || r.Version != "v1" || r.Format != 1 || r.Keys != 1 || r.Revision < 2 {
			t.Errorf("%s: replaced %q, version %s, format %d, %d keys, revision %d", name, r.Replaced, r.Version, r.Format, r.Keys, r.Manifest.Revision)
		}
		if stored, authority, _ := state(t, to); stored != "old" || authority != "old" {
			t.Errorf("%s: stored %q, authority %q", name, stored, authority)
		}
	}
}

// S29.9: a backup has encrypted values unchanged, and the key only on request. Without the key, a
// restore names the key that the data need, unless the data directory has it. Older releases refuse the
// format of the backup.
func TestTheKeyOfABackup(t *testing.T) {
	dir := newDir(t, "old")
	key, err := encryption.AddKey(dir, time.Unix(1, 0), nil)
	if err != nil {
		t.Fatal(err)
	}
	values, err := encryption.Open(t.Context(), encryption.Options{File: encryption.OwnFile(dir)})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, dir, func(s *Source) {
		for _, name := range []string{"/registry/secrets/a/kept", "/registry/secrets/a/gone"} {
			if _, err := s.Client.Put(t.Context(), name, "a secret"); err != nil {
				t.Error(err)
			}
		}
		if _, err := values.Rewrite(t.Context(), s.Client, "/registry"); err != nil {
			t.Error(err)
		}
		// Deleted values need no key.
		if _, err := s.Client.Put(t.Context(), "/registry/secrets/a/gone", "k8s:enc:kms:v2:lost:x"); err != nil {
			t.Error(err)
		}
		if _, err := s.Client.Delete(t.Context(), "/registry/secrets/a/gone"); err != nil {
			t.Error(err)
		}
	})
	secret, err := os.ReadFile(encryption.OwnFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, with := range []bool{false, true} {
		data := madeWith(t, dir, with)
		if got := bytes.Contains(data, secret); got != with {
			t.Errorf("with %t: the backup has the key: %t", with, got)
		}
		to := filepath.Join(t.TempDir(), "new")
		r, err := Restore(to, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		needed := []encryption.Key{{Provider: encryption.OwnProvider, Name: key}}
		if with {
			needed = nil
		}
		if r.Format != datadir.Format || !slices.Equal(r.Needed, needed) {
			t.Errorf("with %t: format %d, needs %v", with, r.Format, r.Needed)
		}
		if format, err := datadir.Has(to); err != nil || format != datadir.Format {
			t.Errorf("with %t: the directory has format %d, %v", with, format, err)
		}
	}
	if r, err := Restore(dir, bytes.NewReader(madeWith(t, dir, false))); err != nil || len(r.Needed) > 0 {
		t.Errorf("onto a directory with the key: %v, %v", r, err)
	}
}

// damages are files that are not backups, with the errors about them.
func damages(t *testing.T, good []byte) map[string]struct {
	data []byte
	want string
} {
	t.Helper()
	all := map[string]struct {
		data []byte
		want string
	}{
		"empty":            {nil, "is not a backup"},
		"text":             {[]byte("hello"), "is not a backup"},
		"zeros":            {make([]byte, 4096), "is not a backup"},
		"another archive":  {repacked(t, good, func(h *tar.Header, b []byte) []byte { h.Name = "x" + h.Name; return b }), "is not a backup"},
		"a newer format":   {repacked(t, good, replaceIn(manifestName, `"format": 1`, `"format": 3`)), "this version does not know"},
		"another kind":     {repacked(t, good, replaceIn(manifestName, `"Backup"`, `"Other"`)), `has kind "Other"`},
		"another database": {repacked(t, good, replaceIn(databaseName, "old", "new")), "etcd.db does not have its checksum"},
		"another manifest": {repacked(t, good, replaceIn(manifestName, `"v1"`, `"v2"`)), "backup.json does not have its checksum"},
		"another key":      {repacked(t, good, replaceIn("pki/ca.crt", "old", "new")), "pki/ca.crt does not have its checksum"},
		"a path that leads up": {repacked(t, good, func(h *tar.Header, b []byte) []byte {
			h.Name = strings.Replace(h.Name, "pki/", "pki/../../", 1)
			return b
		}), "which no backup has"},
		"a link":      {repacked(t, good, func(h *tar.Header, b []byte) []byte { return linked(h, b) }), "is not a file"},
		"no database": {repacked(t, good, func(h *tar.Header, b []byte) []byte { return without(h, b, databaseName) }), "etcd.db is missing"},
		"no keys":     {repacked(t, good, func(h *tar.Header, b []byte) []byte { return without(h, b, "pki/ca.crt") }), "pki/ca.crt is missing"},
	}
	// The last blocks of an archive are empty.
	for i := range 20 {
		n := (len(good) - 2048) * (i + 1) / 21
		all[fmt.Sprintf("cut off after %d bytes", n)] = struct {
			data []byte
			want string
		}{good[:n], ""}
	}
	return all
}

// repacked returns an archive with changed files. A file without a content is left out.
func repacked(t *testing.T, archive []byte, change func(*tar.Header, []byte) []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	r, w := tar.NewReader(bytes.NewReader(archive)), tar.NewWriter(&b)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if content = change(h, content); content == nil {
			continue
		}
		h.Size = int64(len(content))
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func replaceIn(name, old, new string) func(*tar.Header, []byte) []byte {
	return func(h *tar.Header, b []byte) []byte {
		if h.Name == name {
			return bytes.Replace(b, []byte(old), []byte(new), 1)
		}
		return b
	}
}

func without(h *tar.Header, b []byte, name string) []byte {
	if h.Name == name {
		return nil
	}
	return b
}

func linked(h *tar.Header, b []byte) []byte {
	if h.Name != "pki/ca.crt" {
		return b
	}
	h.Typeflag, h.Linkname = tar.TypeSymlink, "/etc/passwd"
	return []byte{}
}

// A restore from a file that is not a backup, or is damaged, returns an error with this reason, and
// changes nothing.
func TestABadFileChangesNothing(t *testing.T) {
	good := made(t, newDir(t, "old"))
	dir := newDir(t, "present")
	before := sumOf(t, dir)
	for name, tt := range damages(t, good) {
		t.Run(name, func(t *testing.T) {
			_, err := Restore(dir, bytes.NewReader(tt.data))
			if !errors.As(err, new(Bad)) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if sumOf(t, dir) != before {
				t.Error("the data directory has changed")
			}
		})
	}
	if _, err := Verify(bytes.NewReader(good)); err != nil {
		t.Errorf("the good one: %v", err)
	}
	if _, err := Restore(dir, bytes.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	if stored, authority, _ := state(t, dir); stored != "old" || authority != "old" {
		t.Errorf("stored %q, authority %q", stored, authority)
	}
}

// While a server runs, its data are not restored.
func TestARunningServerIsNotRestored(t *testing.T) {
	dir := newDir(t, "old")
	data := made(t, dir)
	serve(t, dir, func(*Source) {
		if _, err := Restore(dir, bytes.NewReader(data)); !errors.Is(err, etcd.ErrInUse) {
			t.Errorf("got %v", err)
		}
	})
}

// The replaced data stay, and an administrator can restore them by two moves.
func TestReplacedDataStay(t *testing.T) {
	data := made(t, newDir(t, "old"))
	dir := newDir(t, "present")
	r, err := Restore(dir, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if left := exists(filepath.Join(dir, staged)); left {
		t.Error("what was made ready is left behind")
	}
	// Neither has keys of Secrets.
	for _, part := range parts[:2] {
		if err := errors.Join(os.RemoveAll(filepath.Join(dir, part)), os.Rename(filepath.Join(r.Replaced, part), filepath.Join(dir, part))); err != nil {
			t.Fatal(err)
		}
	}
	if stored, authority, _ := state(t, dir); stored != "present" || authority != "present" {
		t.Errorf("stored %q, authority %q", stored, authority)
	}
}

// A restore that was killed between any two of its moves is completed, and until then every
// version refuses the directory.
func TestAnInterruptedRestoreIsCompleted(t *testing.T) {
	old := newDir(t, "old")
	if _, err := encryption.AddKey(old, time.Unix(1, 0), nil); err != nil {
		t.Fatal(err)
	}
	names, _ := encryption.KeyNames(old)
	data := madeWith(t, old, true)
	// The moves of a restore, in order: the current part, then the restored part.
	moves := 2 * len(parts)
	for done := range moves + 1 {
		t.Run(fmt.Sprintf("after %d moves", done), func(t *testing.T) {
			dir := newDir(t, "present")
			if _, err := encryption.AddKey(dir, time.Unix(2, 0), nil); err != nil {
				t.Fatal(err)
			}
			if _, err := stage(filepath.Join(dir, staged), "", bytes.NewReader(data)); err != nil {
				t.Fatal(err)
			}
			const replaced = replacedPrefix + "x"
			if err := datadir.MarkRestoring(keys.Files{}, dir, datadir.Format, replaced); err != nil {
				t.Fatal(err)
			}
			for i := range done {
				part := parts[i/2]
				from, to := filepath.Join(dir, part), filepath.Join(dir, replaced, part)
				if i%2 == 1 {
					from, to = filepath.Join(dir, staged, part), from
				}
				if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.Rename(from, to)); err != nil {
					t.Fatal(err)
				}
			}
			if err := datadir.Prepare(keys.Files{}, dir); err == nil {
				t.Error("a server would serve it")
			}
			if completed, err := Finish(dir); err != nil || !completed {
				t.Fatalf("%t, %v", completed, err)
			}
			if err := datadir.Prepare(keys.Files{}, dir); err != nil {
				t.Error(err)
			}
			if stored, authority, _ := state(t, dir); stored != "old" || authority != "old" {
				t.Errorf("stored %q, authority %q", stored, authority)
			}
			if got, err := encryption.KeyNames(dir); err != nil || !slices.Equal(got, names) {
				t.Errorf("keys %q, %v, want %q", got, err, names)
			}
			if completed, err := Finish(dir); err != nil || completed {
				t.Errorf("again: %t, %v", completed, err)
			}
		})
	}
}

// Finish does not change a directory whose file FORMAT names a path that no restore writes.
func TestFinishDoesNotFollowStrangePaths(t *testing.T) {
	dir := newDir(t, "present")
	for _, name := range []string{"../x", "pki", "before-restore-/../../x"} {
		if err := datadir.MarkRestoring(keys.Files{}, dir, 1, name); err != nil {
			t.Fatal(err)
		}
		if _, err := Finish(dir); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// After every restore, also of the same backup and over damaged data, revisions are above all
// revisions that a client may have seen, and earlier revisions are compacted.
func TestRevisionsOnlyRise(t *testing.T) {
	dir := newDir(t, "old")
	data := made(t, dir)
	_, _, seen := state(t, dir)
	for _, damage := range []bool{false, false, true} {
		if damage {
			if err := os.WriteFile(filepath.Join(dir, parts[0], "snap", "db"), []byte("damaged"), 0o600); err != nil {
				t.Fatal(err)
			}
			// Only the clock bounds the revision now. The restores of this test take less time than
			// the time that their additional revisions account for.
			seen -= 2 * moreRevisions
		}
		if _, err := Restore(dir, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		serve(t, dir, func(s *Source) {
			r, err := s.Client.Put(t.Context(), "next", "1")
			if err != nil {
				t.Fatal(err)
			}
			if r.Header.Revision <= seen {
				t.Errorf("revision %d, after %d was seen", r.Header.Revision, seen)
			}
			if _, err := s.Client.Get(t.Context(), "state", clientv3.WithRev(seen)); err == nil || !strings.Contains(err.Error(), "compacted") {
				t.Errorf("reading revision %d: %v", seen, err)
			}
			seen = r.Header.Revision
		})
	}
	// A server writes as fast as possible for a day after a restore, and loses its data.
	now := time.Now()
	first := revision("", now)(7)
	written := first + 24*3600*revisionsPerSecond
	if again := revision("", now.Add(24*time.Hour+time.Second))(7); again <= written {
		t.Errorf("revision %d, after %d was written", again, written)
	}
}

// A backup that cannot be written leaves no file, and an existing backup stays.
func TestSaveLeavesNoPart(t *testing.T) {
	dir := newDir(t, "old")
	serve(t, dir, func(s *Source) {
		at := t.TempDir()
		pipe := filepath.Join(at, "pipe")
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		kept := filepath.Join(at, "kept.tar")
		if _, err := s.Save(t.Context(), kept, 0); err != nil {
			t.Fatal(err)
		}
		before := sumOf(t, at)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, tt := range []struct {
			name, file, want string
			ctx              context.Context
			reserve          int64
		}{
			{"no space", "new.tar", "MiB free, and the backup needs", t.Context(), math.MaxInt64 / 2},
			{"a file that exists", "kept.tar", "exists", t.Context(), 0},
			{"a named pipe", "pipe", "is not a regular file", t.Context(), 0},
			{"a directory", ".", "is a directory", t.Context(), 0},
			{"the user gives up", "new.tar", "context canceled", ended, 0},
			{"a file as directory", "kept.tar/new.tar", "not a directory", t.Context(), 0},
		} {
			if _, err := s.Save(tt.ctx, filepath.Join(at, tt.file), tt.reserve); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
			}
			if sumOf(t, at) != before {
				t.Errorf("%s: something has changed", tt.name)
			}
		}
		if info, err := os.Stat(kept); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("others may read the keys: %v, %v", info, err)
		}
	})
}

// Pruning keeps the latest backups that can be read, and touches no other file.
func TestPrune(t *testing.T) {
	dir, at := newDir(t, "old"), t.TempDir()
	data := made(t, dir)
	files := map[string][]byte{
		"gatehouse-20260101T000000.000Z.tar":      data,
		"gatehouse-20260102T000000.000Z.tar":      data,
		"gatehouse-20260103T000000.000Z.tar":      data,
		"gatehouse-20260104T000000.000Z.tar":      []byte("damaged"),
		"gatehouse-20260105T000000.000Z.tar.part": data,
		"mine.tar":                data,
		"gatehouse-of-my-own.tar": data,
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(at, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := List(at)
	if err != nil || len(list) != 4 || list[0].Error == "" || list[1].Manifest == nil {
		t.Errorf("%+v, %v", list, err)
	}
	// Another process writes this one.
	writing, err := openPart(filepath.Join(at, "gatehouse-20260106T000000.000Z.tar.part"))
	if err != nil {
		t.Fatal(err)
	}
	defer writing.Close()
	if _, err := Prune(at, 2); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, _ := os.ReadDir(at)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	want := []string{
		"gatehouse-20260102T000000.000Z.tar", "gatehouse-20260103T000000.000Z.tar", "gatehouse-20260104T000000.000Z.tar",
		"gatehouse-20260106T000000.000Z.tar.part", "gatehouse-of-my-own.tar", "mine.tar",
	}
	if !slices.Equal(left, want) {
		t.Errorf("got  %q\nwant %q", left, want)
	}
	if list, err := List(filepath.Join(at, "none")); err != nil || len(list) > 0 {
		t.Errorf("no directory: %v, %v", list, err)
	}
}

// soon is a schedule with n times, all of them now.
type soon struct{ n int }

func (s *soon) Next(now time.Time) time.Time {
	if s.n--; s.n < 0 {
		return now.Add(time.Hour)
	}
	return now
}

// A schedule makes backups and keeps the latest; a failure does not end it.
func TestSchedule(t *testing.T) {
	dir, at := newDir(t, "old"), filepath.Join(t.TempDir(), "backups")
	serve(t, dir, func(s *Source) {
		run := func(done func() bool) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				(&Schedule{Source: *s, Times: &soon{n: 4}, Dir: at, Keep: 2}).Run(ctx)
			}()
			for begun := time.Now(); !done(); time.Sleep(time.Millisecond) {
				if time.Since(begun) > time.Minute {
					t.Fatal("nothing comes of the schedule")
				}
			}
			cancel()
			<-ended
		}
		seen := map[string]bool{}
		run(func() bool {
			list, _ := List(at)
			for _, e := range list {
				seen[e.File] = true
			}
			return len(seen) >= 3 && len(list) == 2
		})
		for _, e := range must(List(at)) {
			if e.Manifest == nil || e.Manifest.Keys != 1 {
				t.Errorf("%+v", e)
			}
		}
		// The directory cannot be made: each backup fails, and the schedule continues.
		if err := errors.Join(os.RemoveAll(at), os.WriteFile(at, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		scheduled := &Schedule{Source: *s, Dir: at, Keep: 2}
		scheduled.make(t.Context())
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
		scheduled.make(t.Context())
		if list := must(List(at)); len(list) != 1 {
			t.Errorf("after a failure: %+v", list)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestSchedules(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 34, 56, 0, time.Local)
	for _, text := range []string{"0 */6 * * *", "@daily", "@every 90m", "TZ=UTC 0 3 * * 1-5"} {
		if times, err := ParseSchedule(text); err != nil || !times.Next(now).After(now) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		"":           "is not a schedule such as",
		"daily":      "is not a schedule such as",
		"* * *":      "is not a schedule such as",
		"TZ=UTC":     "is not a schedule such as",
		"0 0 30 2 *": "never comes",
		"61 * * * *": "is not a schedule such as",
	} {
		if _, err := ParseSchedule(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// Open returns an error for a directory that does not have the data of a server.
func TestOpenSaysWhatIsThere(t *testing.T) {
	empty, external, other := t.TempDir(), t.TempDir(), t.TempDir()
	if err := errors.Join(datadir.Prepare(keys.Files{}, external), os.WriteFile(filepath.Join(other, "FORMAT"), []byte("another"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{empty: "no such file", external: "--etcd-servers", other: "another version"} {
		before := sumOf(t, dir)
		if _, _, err := Open(t.Context(), dir, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if sumOf(t, dir) != before {
			t.Errorf("%s has changed", dir)
		}
	}
	if _, _, err := Connect(t.Context(), newDir(t, "old"), ""); !errors.Is(err, ErrNotRunning) {
		t.Errorf("got %v", err)
	}
}
