package upkeep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/backup"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/encryption"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
)

// NewBackup returns the command gatehouse backup.
func NewBackup(streams command.Streams) *cobra.Command {
	return interruptible(command.Group(&cobra.Command{
		Use:   "backup",
		Short: "Save and restore the data of a server with an embedded etcd",
	}, newBackupSave(streams), newBackupList(streams), newBackupPrune(streams), newBackupVerify(streams), newBackupRestore(streams)))
}

// backupOptions are the common options of the subcommands of backup.
type backupOptions struct {
	dataDir, backupDir string
	output             string
	keep               int
	withKey            bool
}

// place adds the flags for the directories of the server and of its backups.
func (o *backupOptions) place(cmd *cobra.Command, withBackups bool) {
	command.AddSection(cmd, "Where", func(f *pflag.FlagSet) {
		f.StringVar(&o.dataDir, "data-dir", command.DataDir(), "data directory of the server")
		if withBackups {
			f.StringVar(&o.backupDir, "backup-dir", "", "directory with backups (default backups in the data directory)")
		}
	})
}

// backups is the directory with backups.
func (o *backupOptions) backups() string {
	if o.backupDir != "" {
		return o.backupDir
	}
	return server.BackupDir(o.dataDir)
}

// find returns the path of a backup: a path, or the name of a file in the backup directory.
func (o *backupOptions) find(argument string) string {
	if filepath.Base(argument) == argument && argument != "-" {
		if _, err := os.Lstat(argument); errors.Is(err, os.ErrNotExist) {
			if there := filepath.Join(o.backups(), argument); files.Check(there, 1<<62) == nil {
				return there
			}
		}
	}
	return argument
}

// oneFile requires exactly one file on the command line.
var oneFile = command.Exactly(1, "one backup: a file, the name of one in the backup directory, or - for standard input")

func newBackupSave(streams command.Streams) *cobra.Command {
	o := &backupOptions{}
	cmd := &cobra.Command{
		Use:   "save [FILE]",
		Short: "Save the data of a server to a file",
		Args:  command.AtMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := backup.NewPath(o.backups())
			if len(args) > 0 {
				file = args[0]
			}
			return o.save(cmd.Context(), file, streams)
		},
	}
	o.place(cmd, true)
	command.AddSection(cmd, "What", func(f *pflag.FlagSet) {
		f.BoolVar(&o.withKey, "with-encryption-key", false, "put the keys of 'gatehouse secrets-encryption' into the backup; the file then gives access to its Secrets")
	})
	return cmd
}

func (o *backupOptions) save(ctx context.Context, file string, streams command.Streams) error {
	command.QuietGRPC()
	source, end, err := backup.Open(ctx, o.dataDir, command.CurrentVersion().Version)
	if err != nil {
		return err
	}
	defer end()
	source.WithEncryptionKey = o.withKey
	if file == "-" {
		_, err := source.Write(ctx, terminal.Exact(streams.Out), nil)
		return err
	}
	saved, err := source.Save(ctx, file, etcd.DefaultMinFree)
	if err != nil {
		return err
	}
	terminal.Fprintf(streams.Out, "saved %s: %s at revision %d, %s\n", saved.File, report.Count(int(saved.Keys), "key"), saved.Revision, bytesOf(saved.Size))
	return nil
}

// bytesOf formats a size for people.
func bytesOf(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

func newBackupList(streams command.Streams) *cobra.Command {
	o := &backupOptions{}
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the backups in the backup directory",
		Args:    command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return o.list(streams.Out)
		},
	}
	o.place(cmd, true)
	command.AddOutput(cmd, &o.output, "format: text or json", "text", "json")
	return cmd
}

func (o *backupOptions) list(out io.Writer) error {
	list, err := backup.List(o.backups())
	if err != nil {
		return err
	}
	if o.output == "json" {
		return writeJSON(out, list)
	}
	if len(list) == 0 {
		terminal.Fprintf(out, "no backups in %s\n", o.backups())
		return nil
	}
	table := terminal.NewTable(terminal.Titles("NAME", "CREATED", "SIZE", "KEYS", "REVISION", "VERSION")...)
	for _, e := range list {
		name := filepath.Base(e.File)
		if m := e.Manifest; m != nil {
			table.Row(name, m.Created.UTC().Format("2006-01-02 15:04:05Z"), bytesOf(e.Size), m.Keys, m.Revision, m.Version)
			continue
		}
		table.Row(name, terminal.Paint(terminal.Red, "cannot be read"), bytesOf(e.Size), "", "", e.Error)
	}
	return command.WriteTable(out, table)
}

func newBackupPrune(streams command.Streams) *cobra.Command {
	o := &backupOptions{}
	cmd := &cobra.Command{
		Use:   "prune --keep N",
		Short: "Remove all but the latest backups from the backup directory",
		Args:  command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("keep") || o.keep < 0 {
				return command.Usagef("say how many backups stay: --keep N")
			}
			removed, err := backup.Prune(o.backups(), o.keep)
			for _, file := range removed {
				terminal.Fprintf(streams.Out, "removed %s\n", file)
			}
			return err
		},
	}
	o.place(cmd, true)
	command.AddSection(cmd, "Which", func(f *pflag.FlagSet) {
		f.IntVar(&o.keep, "keep", 0, "number of the latest backups that stay")
	})
	return cmd
}

func newBackupVerify(streams command.Streams) *cobra.Command {
	o := &backupOptions{}
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Check that a backup can be restored",
		Args:  oneFile,
		RunE: func(_ *cobra.Command, args []string) error {
			return o.read(args[0], streams, func(from io.Reader) error {
				m, err := backup.Verify(from)
				if err == nil {
					terminal.Fprintf(streams.Out, "%s is a good backup: made %s by version %s, %s at revision %d\n",
						nameOf(o.find(args[0])), m.Created.UTC().Format("2006-01-02 15:04:05Z"), m.Version, report.Count(int(m.Keys), "key"), m.Revision)
				}
				return err
			})
		},
	}
	o.place(cmd, true)
	return cmd
}

// read opens the backup of an argument. Errors name the file.
func (o *backupOptions) read(argument string, streams command.Streams, do func(io.Reader) error) error {
	file, from := o.find(argument), streams.In
	if file != "-" {
		if err := files.CheckArgument(file, 1<<62); err != nil {
			return err
		}
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		from = f
	}
	command.QuietGRPC()
	err := do(from)
	if errors.As(err, new(backup.Bad)) {
		return fmt.Errorf("%s %w", nameOf(file), err)
	}
	return err
}

// nameOf returns the name of a file for people.
func nameOf(file string) string {
	if file == "-" {
		return "standard input"
	}
	return file
}

func newBackupRestore(streams command.Streams) *cobra.Command {
	o := &backupOptions{}
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Replace the data of a server by a backup",
		Args:  oneFile,
		RunE: func(_ *cobra.Command, args []string) error {
			return o.read(args[0], streams, func(from io.Reader) error { return o.restore(from, streams.Out) })
		},
	}
	o.place(cmd, true)
	return cmd
}

func (o *backupOptions) restore(from io.Reader, out io.Writer) error {
	restored, err := backup.Restore(o.dataDir, from)
	if err != nil {
		return stopFirst(err)
	}
	terminal.Fprintf(out, "restored %s to the data of %s: %s\n", o.dataDir, restored.Created.UTC().Format("2006-01-02 15:04:05Z"), report.Count(int(restored.Keys), "key"))
	if restored.Replaced != "" {
		terminal.Fprintf(out, "the data of before are in %s; remove them when you do not need them\n", restored.Replaced)
	}
	for _, key := range restored.Needed {
		terminal.Fprintf(out, "the data are encrypted with %s, which the backup does not have: put it into %s, or into the file of --encryption-provider-config, before you start the server\n", key, encryption.OwnFile(o.dataDir))
	}
	terminal.Fprintf(out, `Start the server now. Its clients read everything again by themselves.
Servers that keep data derived from this one, such as aggregated API servers and
controllers with stored state, may have to be restored or restarted.
`)
	return nil
}
