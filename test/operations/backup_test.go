package operations

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// After a restore, the server has exactly the objects of the time of the backup, including registrations and
// credentials. The backup is made while the server runs. A client that has seen later changes must list
// again.
func TestBackUpAndRestore(t *testing.T) {
	t.Parallel()
	const section = "Back up and restore"
	a := harness.NewAdministrator(t)
	s := harness.StartOn(t, filepath.Join(a.Dir, "gatehouse.data"))
	in := fmt.Sprintf(configMaps, "default")
	create(t, s, http.StatusCreated, in, named("before"))
	hooks := harness.NewWebhookServer(t, nil)
	register(t, s, validating, "policy", hooks.Hook("/", harness.Deny(map[string]any{"message": "no"})).ClientConfig())
	kubeconfig, err := os.ReadFile(s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}

	if out := a.Follow(t, section, "save before.tar"); !strings.Contains(out, "is a good backup") {
		t.Error(out)
	}
	s.HTTP(t, nil).Must(http.StatusOK, "DELETE", registrations+"validatingwebhookconfigurations/policy", "")
	harness.Eventually(t, "the webhook is gone", func() error {
		if code, err := s.HTTP(t, nil).Try(harness.Context(t), "POST", in, named("after")); err != nil || code != http.StatusCreated {
			return fmt.Errorf("%d, %v", code, err)
		}
		return nil
	})
	s.HTTP(t, nil).Must(http.StatusOK, "DELETE", in+"/before", "")
	seen := s.HTTP(t, nil).Get(in).Text("metadata", "resourceVersion")
	if r := harness.Run(t, "backup", "restore", "--data-dir", s.DataDir, filepath.Join(a.Dir, "before.tar")); r.Code != 1 || !strings.Contains(r.Err, "stop it first") {
		t.Errorf("restoring while the server runs: %d %s", r.Code, r.Err)
	}

	s.Stop(t)
	a.Follow(t, section, "backup restore before.tar")
	s.Restart(t)
	h := s.HTTP(t, nil)
	h.Get(in + "/before")
	h.Must(http.StatusNotFound, "GET", in+"/after", "")
	h.Must(http.StatusBadRequest, "POST", in, named("denied"))
	if again, err := os.ReadFile(s.Kubeconfig); err != nil || string(again) != string(kubeconfig) {
		t.Errorf("the kubeconfig is another: %v", err)
	}
	h.Must(http.StatusGone, "GET", in+"?resourceVersionMatch=Exact&resourceVersion="+seen, "")
	// The response to a watch starts before the watch fails.
	if event := h.Get(in + "?watch=1&timeoutSeconds=10&resourceVersion=" + seen); event.Text("type") != "ERROR" || !strings.Contains(string(event.Raw), `"code":410`) {
		t.Errorf("a watch from before: %s", event.Raw)
	}
}

// backups runs gatehouse backup on a data directory.
func backups(t *testing.T, dir string, args ...string) harness.Result {
	t.Helper()
	return harness.Run(t, append([]string{"backup", args[0], "--data-dir", dir}, args[1:]...)...)
}

// backUp saves the data of a server to a file.
func backUp(t *testing.T, dir, file string) {
	t.Helper()
	if r := backups(t, dir, "save", file); r.Code != 0 {
		t.Fatal(r.Err)
	}
}

// A restore is killed at twenty moments. The next server has either all old data or all data of the backup.
func TestAKilledRestore(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	dir := t.TempDir()
	s := harness.StartOn(t, filepath.Join(dir, "data"))
	in := fmt.Sprintf(configMaps, "default")
	old, present := filepath.Join(dir, "old.tar"), filepath.Join(dir, "present.tar")
	for i := range 50 {
		create(t, s, http.StatusCreated, in, named(fmt.Sprintf("old-%d", i)))
	}
	backUp(t, s.DataDir, old)
	for i := range 50 {
		s.HTTP(t, nil).Must(http.StatusOK, "DELETE", in+fmt.Sprintf("/old-%d", i), "")
		create(t, s, http.StatusCreated, in, named(fmt.Sprintf("present-%d", i)))
	}
	s.Stop(t)
	backUp(t, s.DataDir, present)
	begun := time.Now()
	if r := backups(t, s.DataDir, "restore", present); r.Code != 0 {
		t.Fatal(r.Err)
	}
	takes := time.Since(begun)

	there := func(path string) func() bool {
		return func() bool { return glob(t, filepath.Join(s.DataDir, path)) }
	}
	says := func() bool {
		text, err := os.ReadFile(filepath.Join(s.DataDir, "FORMAT"))
		return err == nil && strings.Contains(string(text), "being restored")
	}
	moments := []struct {
		name string
		come func() bool
	}{
		{"the data are unpacked", there("restored/etcd.db")},
		{"the keys are unpacked", there("restored/pki/ca.key")},
		{"etcd writes its database", there("restored/etcd/member/snap/db")},
		{"etcd writes its log", there("restored/etcd/member/wal")},
		{"the directory says so", says},
		{"the present data are moved", there("before-restore-*/etcd/member")},
		{"the restored data are in place", func() bool {
			return there("before-restore-*/etcd/member")() && !there("restored/etcd/member")()
		}},
		{"the present keys are moved", there("before-restore-*/pki")},
		{"the restored keys are in place", func() bool { return there("before-restore-*/pki")() && !there("restored")() }},
		{"it is nearly over", func() bool { return there("before-restore-*")() && !says() }},
	}
	const times = 10
	for i := range times {
		after := takes * time.Duration(i+1) / (times + 1)
		moments = append(moments, struct {
			name string
			come func() bool
		}{fmt.Sprintf("%d/%d of the time", i+1, times+1), func() bool { return time.Since(begun) >= after }})
	}
	ends := map[string]int{}
	for _, m := range moments {
		removeReplaced(t, s.DataDir)
		cmd := exec.Command(harness.Binary(t), "backup", "restore", "--data-dir", s.DataDir, old)
		begun = time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		var err error
		for over := false; !over && !m.come(); {
			select {
			case err = <-ended:
				over = true
			default:
			}
		}
		if killed := cmd.Process.Kill(); killed == nil {
			err = <-ended
		}
		how := "completed"
		if err != nil {
			how = "killed"
		}

		s.Restart(t)
		names := map[string]int{}
		for _, name := range regexp.MustCompile(`"name":"(old|present)-\d+"`).FindAllStringSubmatch(string(s.HTTP(t, nil).Get(in).Raw), -1) {
			names[name[1]]++
		}
		s.Stop(t)
		switch {
		case names["old"] == 50 && names["present"] == 0:
			ends[how+", the data of the backup"]++
			if r := backups(t, s.DataDir, "restore", present); r.Code != 0 {
				t.Fatal(r.Err)
			}
		case names["present"] == 50 && names["old"] == 0 && how == "killed":
			ends[how+", the data of before"]++
		default:
			t.Fatalf("%s: %s, and then there are %v", m.name, how, names)
		}
	}
	t.Logf("%v", ends)
	if ends["killed, the data of before"] == 0 || ends["killed, the data of the backup"] == 0 {
		t.Errorf("no kill in one of the halves: %v", ends)
	}
}

func glob(t *testing.T, pattern string) bool {
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Error(err)
	}
	return len(found) > 0
}

// removeReplaced removes the old data that restores kept.
func removeReplaced(t *testing.T, dir string) {
	t.Helper()
	kept, err := filepath.Glob(filepath.Join(dir, "before-restore-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range kept {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
}

// The server creates backups on its schedule, keeps the latest, and lists them.
func TestScheduledBackups(t *testing.T) {
	t.Parallel()
	at := filepath.Join(t.TempDir(), "backups")
	s := harness.Start(t, "--backup-schedule", "@every 1s", "--backup-keep", "2", "--backup-dir", at)
	first := ""
	harness.Eventually(t, "the third backup replaces the first", func() error {
		found, err := filepath.Glob(filepath.Join(at, "*.tar"))
		if err != nil || len(found) == 0 {
			return errors.Join(err, errors.New("none"))
		}
		if first == "" {
			first = found[0]
		}
		if len(found) > 3 || found[0] == first {
			return fmt.Errorf("%q", found)
		}
		return nil
	})
	if r := backups(t, s.DataDir, "ls", "--backup-dir", at); r.Code != 0 || strings.Count(r.Out, "\n") < 3 || strings.Contains(r.Out, "cannot") {
		t.Errorf("%s %s", r.Out, r.Err)
	}
	if text := string(s.HTTP(t, nil).Get("/metrics").Raw); !strings.Contains(text, `gatehouse_backup_scheduled_total{result="success"}`) {
		t.Error("the backups are not counted")
	}
	if said := harness.Refuses(t, "--backup-schedule", "sometimes"); !strings.Contains(said, `--backup-schedule: "sometimes" is not a schedule`) {
		t.Error(said)
	}
	if said := harness.Refuses(t, "--backup-schedule", "@daily", "--etcd-servers", "http://127.0.0.1:1"); !strings.Contains(said, "--backup-schedule is for the embedded etcd") {
		t.Error(said)
	}
}

// A wrong argument causes a one-sentence error, and changes nothing.
func TestBackupArguments(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	dir := t.TempDir()
	pipe, good := filepath.Join(dir, "pipe"), filepath.Join(dir, "good.tar")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.WriteFile(filepath.Join(dir, "text.tar"), []byte("text"), 0o600)); err != nil {
		t.Fatal(err)
	}
	backUp(t, s.DataDir, good)
	for _, tt := range speed.Some(t, 4, []struct {
		args []string
		code int
		want string
	}{
		{[]string{"save", good}, 1, "exists"},
		{[]string{"save", pipe}, 1, "is not a regular file"},
		{[]string{"save", os.DevNull}, 1, "is not a regular file"},
		{[]string{"save", good, "another"}, 2, "unexpected argument"},
		{[]string{"verify", pipe}, 1, "is a named pipe"},
		{[]string{"verify", "/dev/zero"}, 1, "is a device"},
		{[]string{"verify", filepath.Join(dir, "text.tar")}, 1, "text.tar is not a backup"},
		{[]string{"verify", filepath.Join(dir, "none.tar")}, 1, "no such file"},
		{[]string{"verify"}, 2, "name one backup"},
		{[]string{"restore"}, 2, "name one backup"},
		{[]string{"prune"}, 2, "--keep N"},
		{[]string{"ls", "-o", "xml"}, 2, "is not one of"},
	}) {
		r := backups(t, s.DataDir, tt.args...)
		text, _, _ := strings.Cut(r.Err, "\nRun 'gatehouse")
		if r.Code != tt.code || r.Out != "" || !strings.Contains(text, tt.want) || strings.Count(strings.TrimSpace(text), "\n") > 0 {
			t.Errorf("%q: %d %q", tt.args, r.Code, r.Err)
		}
	}
	if r := harness.Run(t, "backup", "save", "--data-dir", dir); r.Code != 1 || !strings.Contains(r.Err, "no such file") {
		t.Errorf("no data directory: %d %q", r.Code, r.Err)
	}
}
