package members

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/keys"
)

// State is the membership of a server, as stored in its data directory.
type State struct {
	// Name is the name of the member. No other member has it.
	Name string `json:"name"`
	// Address is the HOST:PORT at which the other members reach this member, and Listen the IP:PORT at which it
	// listens.
	Address string `json:"address"`
	Listen  string `json:"listen"`
}

func stateFile(dataDir string) string { return filepath.Join(dataDir, "cluster", "member.json") }

// ReadState reads the state in a data directory. It returns nil for the directory of a server
// alone.
func ReadState(dataDir string) (*State, error) {
	data, err := files.Read(stateFile(dataDir), files.Configuration)
	// A file in place of the directory is reported by the code that needs the directory.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	s := &State{}
	if err == nil {
		err = json.Unmarshal(data, s)
	}
	if err == nil && (s.Name == "" || s.Address == "" || s.Listen == "") {
		err = errors.New("the name or the address of the member is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("--data-dir: %s: %w", stateFile(dataDir), err)
	}
	return s, nil
}

// Write writes the state into a data directory.
func (s *State) Write(to keys.Files, dataDir string) error {
	if err := os.MkdirAll(filepath.Dir(stateFile(dataDir)), 0o700); err != nil {
		return err
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return to.Write(stateFile(dataDir), append(data, '\n'), 0o600)
}

// NewName returns a name for a member on this machine that no other member has.
func NewName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "gatehouse"
	}
	// etcd separates members and addresses by these.
	host = strings.Map(func(r rune) rune {
		if strings.ContainsRune(",=/ ", r) {
			return '-'
		}
		return r
	}, strings.ToLower(host))
	return host[:min(len(host), 60)] + "-" + strings.ToLower(rand.Text()[:5])
}

// CheckAddress returns an error for an address that is not HOST:PORT with a port that others can reach.
func CheckAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		if _, err = net.LookupPort("tcp", port); err == nil && (host == "" || port == "0" || strings.ContainsAny(host, ",=/@ ?#")) {
			err = errors.New("the name or the port is missing")
		}
	}
	if err != nil {
		return fmt.Errorf("%q is not the HOST:PORT at which others reach this server: %w", address, err)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("%q is not an address at which others reach this server", address)
	}
	return nil
}
