package operations

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// secretsEncryption runs gatehouse secrets-encryption on the data of a server.
func secretsEncryption(t *testing.T, s *harness.Server, args ...string) string {
	t.Helper()
	r := harness.Run(t, append([]string{"secrets-encryption", args[0], "--data-dir", s.DataDir}, args[1:]...)...)
	if r.Code != 0 {
		t.Fatalf("%q: %d %s", args, r.Code, r.Err)
	}
	return r.Out
}

// encryptedWith counts the Secrets of a server by the name of their encryption key; "" means unencrypted.
func encryptedWith(t *testing.T, s *harness.Server) map[string]int {
	t.Helper()
	var status struct {
		Secrets []struct {
			Key   string
			Count int
		}
		Servers []struct{ Hash *string }
	}
	// A killed server is listed until its lease expires.
	harness.Eventually(t, "one server", func() error {
		if err := json.Unmarshal([]byte(secretsEncryption(t, s, "status", "-o", "json")), &status); err != nil {
			return err
		}
		if len(status.Servers) != 1 || status.Servers[0].Hash == nil {
			return fmt.Errorf("servers: %+v", status.Servers)
		}
		return nil
	})
	counts := map[string]int{}
	for _, one := range status.Secrets {
		counts[one.Key] = one.Count
	}
	return counts
}

// S29.7, S29.8, S29.9: one command encrypts the Secrets of a running server, one rotates the key, and one
// shows the status. A backup is restored with its key; without the key, the error names it.
func TestSecretsEncryption(t *testing.T) {
	t.Parallel()
	const section = "Encryption at rest"
	a := harness.NewAdministrator(t)
	s := harness.StartOn(t, filepath.Join(a.Dir, "gatehouse.data"))
	s.HTTP(t, nil).Must(http.StatusCreated, "POST", secrets, marked("Secret", "v1", "before", "was-in-clear", ""))
	before := encryptedWith(t, s)
	if len(before) != 1 || before[""] == 0 {
		t.Errorf("before: %v", before)
	}
	if r := harness.Run(t, "secrets-encryption", "rotate", "--data-dir", s.DataDir); r.Code != 1 || !strings.Contains(r.Err, "secrets-encryption enable") {
		t.Errorf("rotating what is not encrypted: %d %s", r.Code, r.Err)
	}
	if out := a.Follow(t, section, "secrets-encryption enable"); !strings.Contains(out, "encrypted "+strconv.Itoa(before[""])+" Secret") {
		t.Error(out)
	}
	s.HTTP(t, nil).Must(http.StatusCreated, "POST", secrets, marked("Secret", "v1", "after", "never-in-clear", ""))
	enabled := encryptedWith(t, s)
	if len(enabled) != 1 || enabled[""] != 0 {
		t.Errorf("after enable: %v", enabled)
	}
	if found := holding(t, "never-in-clear", s.DataDir); len(found) > 0 {
		t.Errorf("in clear in %q", found)
	}
	file := filepath.Join(s.DataDir, "encryption", "config.yaml")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	plain, withKey := filepath.Join(a.Dir, "plain.tar"), filepath.Join(a.Dir, "with-key.tar")
	backUp(t, s.DataDir, plain)
	a.Follow(t, section, "--with-encryption-key")
	a.Follow(t, section, "secrets-encryption rotate")
	if out := a.Follow(t, section, "secrets-encryption status"); !strings.Contains(out, "secretbox") || strings.Contains(out, "in clear") {
		t.Error(out)
	}
	rotated := encryptedWith(t, s)
	for key := range enabled {
		if rotated[key] != 0 || len(rotated) != 1 {
			t.Errorf("after rotate: %v, and before %v", rotated, enabled)
		}
		if r := backups(t, filepath.Join(a.Dir, "another"), "restore", plain); r.Code != 0 || !strings.Contains(r.Out, fmt.Sprintf("key %q of provider secretbox", key)) {
			t.Errorf("a restore without the key: %d %s%s", r.Code, r.Out, r.Err)
		}
	}
	if out := harness.Refuses(t, "--data-dir", filepath.Join(a.Dir, "another")); !strings.Contains(out, "config.yaml, is missing: put it back") {
		t.Error(out)
	}
	// The previous key is still available.
	s.Stop(t)
	if r := backups(t, s.DataDir, "restore", plain); r.Code != 0 || strings.Contains(r.Out, "of provider") {
		t.Errorf("a restore with the key of before: %d %s%s", r.Code, r.Out, r.Err)
	}
	if speed.IsLong() {
		s.Restart(t)
		s.HTTP(t, nil).Get(secrets + "/after")
	}
	if r := backups(t, filepath.Join(a.Dir, "third"), "restore", withKey); r.Code != 0 || strings.Contains(r.Out, "of provider") {
		t.Errorf("a restore with the key: %d %s%s", r.Code, r.Out, r.Err)
	}
	if !speed.IsLong() {
		return
	}
	third := harness.StartOn(t, filepath.Join(a.Dir, "third"))
	third.HTTP(t, nil).Get(secrets + "/before")
	third.HTTP(t, nil).Get(secrets + "/after")
}

// S29.8: the commands refuse to create keys for servers that share an etcd. The Secrets are re-encrypted when all servers use the new file.
func TestSecretsEncryptionOfServersThatShareAnEtcd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	etcd := harness.StartEtcd(t)
	file := encryptionConfiguration(t, filepath.Join(dir, "encryption.yaml"), "secrets", secretbox("one"), unencrypted)
	flags := []string{"--etcd-servers", etcd.URL, "--encryption-provider-config", file, "--encryption-provider-config-automatic-reload"}
	a := harness.StartOn(t, filepath.Join(dir, "a"), flags...)
	b := harness.StartOn(t, filepath.Join(dir, "b"), flags...)
	for _, command := range []string{"enable", "rotate"} {
		if r := harness.Run(t, "secrets-encryption", command, "--etcd-servers", etcd.URL); r.Code != 2 || !strings.Contains(r.Err, "--encryption-provider-config") {
			t.Errorf("%s: %d %s", command, r.Code, r.Err)
		}
	}
	a.HTTP(t, nil).Must(http.StatusCreated, "POST", secrets, marked("Secret", "v1", "kept", "x", ""))
	encryptionConfiguration(t, file, "secrets", secretbox("two"), secretbox("one"), unencrypted)
	if r := harness.Run(t, "secrets-encryption", "rotate", "--etcd-servers", etcd.URL, "--encryption-provider-config", file); r.Code != 0 {
		t.Fatalf("%d %s", r.Code, r.Err)
	}
	r := harness.Run(t, "secrets-encryption", "status", "--etcd-servers", etcd.URL)
	if lines := strings.Split(r.Out, "\n"); r.Code != 0 || strings.Contains(r.Out, "one") || !strings.Contains(r.Out, "two") || len(lines) != 7 {
		t.Errorf("%d %s%s", r.Code, r.Out, r.Err)
	}
	// The old key is no longer needed, not even for the shared certificate authority.
	encryptionConfiguration(t, file, "secrets", secretbox("two"))
	if speed.IsLong() {
		a.Stop(t)
		a.Restart(t)
	}
	for _, s := range []*harness.Server{a, b} {
		s.HTTP(t, nil).Get(secrets + "/kept")
	}
}

// S29.8: a rotation is killed at twenty moments, half of them with the server, while clients write. After
// each kill, all Secrets are readable, no acknowledged write is lost, and only writes to the killed server
// fail. GATEHOUSE_ROTATED_SECRETS is the number of Secrets.
func TestAKilledRotation(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	stored := 500
	if n, err := strconv.Atoi(os.Getenv("GATEHOUSE_ROTATED_SECRETS")); err == nil {
		stored = n
	}
	s := harness.StartOn(t, filepath.Join(t.TempDir(), "data"))
	var filling sync.WaitGroup
	for worker := range 8 {
		h := s.HTTP(t, nil)
		filling.Go(func() {
			for i := worker; i < stored; i += 8 {
				if code, err := h.Try(t.Context(), "POST", secrets, marked("Secret", "v1", fmt.Sprintf("stored-%d", i), "x", "")); err != nil || code != http.StatusCreated {
					t.Errorf("%d, %v", code, err)
				}
			}
		})
	}
	filling.Wait()
	secretsEncryption(t, s, "enable")

	// A client writes until it is stopped. acknowledged counts its writes. None may fail while the server
	// runs.
	var attempts, acknowledged atomic.Int64
	write := func() (stop func()) {
		h := s.HTTP(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var writing sync.WaitGroup
		writing.Go(func() {
			for tick := time.NewTicker(10 * time.Millisecond); ctx.Err() == nil; {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
				next := attempts.Add(1)
				code, err := h.Try(ctx, "POST", secrets, marked("Secret", "v1", fmt.Sprintf("written-%d", next), "x", ""))
				switch {
				case ctx.Err() != nil:
					return
				case err != nil || code != http.StatusCreated:
					t.Errorf("write %d: %d, %v", next, code, err)
				default:
					acknowledged.Add(1)
				}
			}
		})
		return func() {
			cancel()
			writing.Wait()
		}
	}
	readable := func(when string) {
		t.Helper()
		h := s.HTTP(t, nil)
		if n := len(harness.Names(h.Get(secrets))); n < stored+int(acknowledged.Load()) {
			t.Fatalf("%s: %d Secrets, want %d", when, n, stored+int(acknowledged.Load()))
		}
	}
	begun := time.Now()
	stop := write()
	secretsEncryption(t, s, "rotate")
	takes := time.Since(begun)
	stop()
	t.Logf("a rotation of %d Secrets with writes took %s; %d writes", stored, takes, acknowledged.Load())
	readable("after a rotation")
	const moments = 20
	for moment := range moments {
		withServer := moment%2 == 1
		stop := write()
		cmd := exec.Command(harness.Binary(t), "secrets-encryption", "rotate", "--data-dir", s.DataDir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(takes * time.Duration(moment) / moments)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		stop()
		if withServer {
			// Another rotation starts, and the end of the server interrupts it.
			cmd := exec.Command(harness.Binary(t), "secrets-encryption", "rotate", "--data-dir", s.DataDir)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(takes * time.Duration(moment) / moments)
			s.Kill(t)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			s.Restart(t)
		}
		readable(fmt.Sprintf("after the kill at moment %d", moment))
	}
	// The first command completes an interrupted rotation.
	secretsEncryption(t, s, "rotate")
	if counts := encryptedWith(t, s); len(counts) != 1 || counts[""] != 0 {
		t.Errorf("in the end: %v", counts)
	}
	readable("in the end")
}
