package upkeep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/encryption"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/members"
)

// NewSecretsEncryption returns the command gatehouse secrets-encryption.
func NewSecretsEncryption(streams command.Streams) *cobra.Command {
	return interruptible(command.Group(&cobra.Command{
		Use:   "secrets-encryption",
		Short: "Encrypt the Secrets in the etcd of a server",
	},
		newSecretsEncryptionCommand("enable", "Encrypt all Secrets, and make a key if there is none", streams, (*secretsEncryption).enable),
		newSecretsEncryptionCommand("rotate", "Encrypt all Secrets with a new key", streams, (*secretsEncryption).rotate),
		newSecretsEncryptionCommand("status", "Show with which keys the Secrets are encrypted", streams, (*secretsEncryption).status)))
}

// secretsEncryption is a command on the encryption of the Secrets in an etcd.
type secretsEncryption struct {
	*maintenance
	prefix, file string
}

// waitForServers limits the time until all servers use a changed file: they read it at once, and also every
// minute.
const waitForServers = 2 * time.Minute

func newSecretsEncryptionCommand(name, short string, streams command.Streams, run func(*secretsEncryption, context.Context) error) *cobra.Command {
	o := &secretsEncryption{}
	cmd := newEtcdCommand(name, short, streams, func(m *maintenance, ctx context.Context) error {
		o.maintenance = m
		return run(o, ctx)
	})
	command.AddSection(cmd, "Which Secrets", func(f *pflag.FlagSet) {
		if name == "rotate" {
			f.StringVar(&o.file, "encryption-provider-config", "", "EncryptionConfiguration file of the servers, in place of the keys in the data directory")
		}
		f.StringVar(&o.prefix, "etcd-prefix", server.Defaults().EtcdPrefix, "prefix of every key in etcd")
	})
	return cmd
}

// ownKeys verifies that the server uses the keys of the data directory, and returns their names. No other
// process changes them until unlock is called.
func (o *secretsEncryption) ownKeys(ctx context.Context) (names []string, unlock func(), err error) {
	member, err := members.ReadState(o.dataDir)
	if err != nil {
		return nil, nil, err
	}
	if len(o.maintenance.servers.Endpoints) > 0 || member != nil {
		return nil, nil, command.UsageError{Err: errors.New("servers that share an etcd need the same keys: write an EncryptionConfiguration, start each server with --encryption-provider-config, and name that file to 'gatehouse secrets-encryption rotate', too")}
	}
	if unlock, err = encryption.Lock(o.dataDir); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	if names, err = encryption.KeyNames(o.dataDir); err != nil || len(names) > 0 {
		return names, unlock, err
	}
	servers, err := replicas.Encryptions(ctx, o.client, o.prefix)
	if err == nil && slices.ContainsFunc(servers, func(s replicas.Encrypting) bool { return s.Hash != nil && *s.Hash != "" }) {
		err = errors.New("the server takes its keys from the file of --encryption-provider-config: change that file, and name it to 'gatehouse secrets-encryption rotate'")
	}
	return nil, unlock, err
}

func (o *secretsEncryption) enable(ctx context.Context) error {
	names, unlock, err := o.ownKeys(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if len(names) == 0 {
		if err := o.addKey(nil); err != nil {
			return err
		}
	}
	return o.encrypt(ctx, encryption.OwnFile(o.dataDir))
}

func (o *secretsEncryption) rotate(ctx context.Context) error {
	if o.file != "" {
		return o.encrypt(ctx, o.file)
	}
	names, unlock, err := o.ownKeys(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if len(names) == 0 {
		return errors.New("the Secrets are not encrypted yet: run 'gatehouse secrets-encryption enable'")
	}
	counts, err := encryption.Count(ctx, o.client, o.prefix)
	if err != nil {
		return err
	}
	newest := encryption.Key{Provider: encryption.OwnProvider, Name: names[0]}
	total := 0
	for _, n := range counts {
		total += n
	}
	if counts[newest] < total {
		terminal.Fprintf(o.out, "completing the interrupted command: %s not encrypted with %s\n", report.Count(total-counts[newest], "Secret"), newest)
	} else if err := o.addKey(counts); err != nil {
		return err
	}
	return o.encrypt(ctx, encryption.OwnFile(o.dataDir))
}

// addKey creates a key. Keys in use by Secrets are kept.
func (o *secretsEncryption) addKey(counts map[encryption.Key]int) error {
	name, err := encryption.AddKey(o.dataDir, time.Now(), func(name string) bool {
		return counts[encryption.Key{Provider: encryption.OwnProvider, Name: name}] > 0
	})
	if err == nil {
		terminal.Fprintf(o.out, "made %s in %s: keep a copy of the file elsewhere\n", name, encryption.OwnFile(o.dataDir))
	}
	return err
}

// encrypt encrypts the Secrets according to a file, after all servers use the file.
func (o *secretsEncryption) encrypt(ctx context.Context, file string) error {
	values, err := encryption.Open(ctx, encryption.Options{File: file, Reload: true})
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, waitForServers)
	defer cancel()
	if err := replicas.AwaitEncryption(waiting, o.client, o.prefix, values.Hash()); err != nil {
		return err
	}
	n, err := values.Rewrite(ctx, o.client, o.prefix)
	if err != nil {
		return fmt.Errorf("after %s: %w; run the command again", report.Count(n, "Secret"), err)
	}
	terminal.Fprintf(o.out, "encrypted %s anew; the servers use %s\n", report.Count(n, "Secret"), file)
	return nil
}

// encryptionStatus is the output of status. Fields are only ever added.
type encryptionStatus struct {
	Secrets []encryptedSecrets    `json:"secrets"`
	Servers []replicas.Encrypting `json:"servers"`
}

// encryptedSecrets counts the Secrets that are encrypted with one key; without provider and key, the
// unencrypted Secrets.
type encryptedSecrets struct {
	Provider string `json:"provider,omitempty"`
	Key      string `json:"key,omitempty"`
	Count    int    `json:"count"`
}

func (o *secretsEncryption) status(ctx context.Context) error {
	counts, err := encryption.Count(ctx, o.client, o.prefix)
	if err != nil {
		return err
	}
	s := encryptionStatus{Secrets: []encryptedSecrets{}}
	for key, n := range counts {
		s.Secrets = append(s.Secrets, encryptedSecrets{key.Provider, key.Name, n})
	}
	slices.SortFunc(s.Secrets, func(a, b encryptedSecrets) int { return strings.Compare(b.Key, a.Key) })
	if s.Servers, err = replicas.Encryptions(ctx, o.client, o.prefix); err != nil {
		return err
	}
	if o.output == "json" {
		return writeJSON(o.out, s)
	}
	table := terminal.NewTable(terminal.Titles("SECRETS", "PROVIDER", "KEY")...)
	for _, one := range s.Secrets {
		if one.Provider == "" {
			table.Row(one.Count, terminal.Paint(terminal.Red, "in clear"), "")
			continue
		}
		table.Row(one.Count, one.Provider, one.Key)
	}
	if err := command.WriteTable(o.out, table); err != nil {
		return err
	}
	terminal.Fprintf(o.out, "\n")
	table = terminal.NewTable(terminal.Titles("SERVER", "ADDRESS", "CONFIGURATION")...)
	for _, one := range s.Servers {
		hash := "unknown"
		if one.Hash != nil {
			if hash = *one.Hash; hash == "" {
				hash = "none"
			}
		}
		table.Row(one.Name, one.Address, hash)
	}
	return command.WriteTable(o.out, table)
}
