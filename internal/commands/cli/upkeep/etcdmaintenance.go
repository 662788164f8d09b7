package upkeep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/backup"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
)

// NewEtcd returns the command gatehouse etcd.
func NewEtcd(streams command.Streams) *cobra.Command {
	return interruptible(command.Group(&cobra.Command{
		Use:   "etcd",
		Short: "Operate the etcd of a server: status, defrag, alarms",
	},
		newEtcdCommand("status", "Show the members of the etcd, their databases and alarms", streams, (*maintenance).status),
		newEtcdCommand("defrag", "Shrink the database to the space in use", streams, (*maintenance).defrag),
		command.Group(&cobra.Command{Use: "alarm", Short: "List and disarm the alarms of an etcd"},
			newEtcdCommand("list", "List the alarms", streams, (*maintenance).listAlarms),
			newEtcdCommand("disarm", "Take back all alarms", streams, (*maintenance).disarm)),
		newEtcdCommand("endpoints", "Print the endpoints of the etcd, for etcdctl", streams, (*maintenance).endpoints)))
}

// maintenance is a command on an etcd.
type maintenance struct {
	dataDir string
	servers etcd.ClientOptions
	output  string

	client *clientv3.Client
	out    io.Writer
}

// maintenanceTimeout limits an operation on one member. Defragmenting a large database takes long.
const maintenanceTimeout = 10 * time.Minute

func newEtcdCommand(name, short string, streams command.Streams, run func(*maintenance, context.Context) error) *cobra.Command {
	m := &maintenance{out: streams.Out, output: "text"}
	cmd := &cobra.Command{Use: name, Short: short, Args: command.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("data-dir") && cmd.Flags().Changed("etcd-servers") {
			return command.Usagef("name one etcd: --data-dir or --etcd-servers")
		}
		end, err := m.open(cmd.Context())
		if err != nil {
			return err
		}
		defer end()
		return run(m, cmd.Context())
	}}
	command.AddSection(cmd, "Which etcd", func(f *pflag.FlagSet) {
		f.StringVar(&m.dataDir, "data-dir", command.DataDir(), "data directory of the server whose embedded etcd is meant")
		f.StringSliceVar(&m.servers.Endpoints, "etcd-servers", nil, "URLs of another etcd")
		f.StringVar(&m.servers.CAFile, "etcd-cafile", "", "PEM file with the CA of --etcd-servers")
		f.StringVar(&m.servers.CertFile, "etcd-certfile", "", "PEM file with the client certificate for --etcd-servers")
		f.StringVar(&m.servers.KeyFile, "etcd-keyfile", "", "PEM file with the key of --etcd-certfile")
	})
	if name == "status" {
		command.AddOutput(cmd, &m.output, "format: text or json", "text", "json")
	}
	return cmd
}

// open connects to the etcd.
func (m *maintenance) open(ctx context.Context) (end func(), err error) {
	command.QuietGRPC()
	if len(m.servers.Endpoints) > 0 {
		m.servers.CallTimeout = etcd.CommandTimeout
		c, err := etcd.NewClient(ctx, m.servers)
		if err != nil {
			return nil, err
		}
		m.client = c.Client
		return func() { c.Close() }, nil
	}
	source, end, err := backup.Connect(ctx, m.dataDir, "")
	if err != nil {
		return nil, err
	}
	m.client = source.Client
	return end, nil
}

// members returns the endpoints of the members: from etcd if it knows them, otherwise the endpoints of the
// client.
func (m *maintenance) members(ctx context.Context) ([]string, error) {
	if len(m.servers.Endpoints) == 0 {
		return m.client.Endpoints(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	list, err := m.client.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, member := range list.Members {
		if len(member.ClientURLs) > 0 {
			all = append(all, member.ClientURLs[0])
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no member of the etcd says where clients find it")
	}
	return all, nil
}

// memberTimeout limits the status query of a member.
const memberTimeout = 5 * time.Second

// memberStatus is the status of a member. Fields are only ever added.
type memberStatus struct {
	Endpoint string `json:"endpoint"`
	// Error is the reason why the member does not respond; other fields are empty then.
	Error     string   `json:"error,omitempty"`
	Version   string   `json:"version,omitempty"`
	Leader    bool     `json:"leader"`
	SizeBytes int64    `json:"sizeBytes"`
	InUse     int64    `json:"inUseBytes"`
	Quota     int64    `json:"quotaBytes"`
	Revision  int64    `json:"revision"`
	Alarms    []string `json:"alarms,omitempty"`
	// Problems are the problems that the member reports about itself.
	Problems []string `json:"problems,omitempty"`
}

func (m *maintenance) status(ctx context.Context) error {
	endpoints, err := m.members(ctx)
	if err != nil {
		return err
	}
	alarms, err := m.alarms(ctx)
	if err != nil {
		return err
	}
	var all []memberStatus
	for _, endpoint := range endpoints {
		all = append(all, m.statusOf(ctx, endpoint, alarms))
	}
	if m.output == "json" {
		err = writeJSON(m.out, all)
	} else {
		err = printMembers(m.out, all)
	}
	return cmp.Or(err, errSilent(all, func(s memberStatus) bool { return s.Error != "" }))
}

func (m *maintenance) statusOf(ctx context.Context, endpoint string, alarms map[uint64][]string) memberStatus {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	r, err := m.client.Status(ctx, endpoint)
	if err != nil {
		return memberStatus{Endpoint: endpoint, Error: err.Error()}
	}
	return memberStatus{
		Endpoint: endpoint, Version: r.Version, Leader: r.Leader == r.Header.MemberId,
		SizeBytes: r.DbSize, InUse: r.DbSizeInUse, Quota: r.DbSizeQuota, Revision: r.Header.Revision,
		Alarms: alarms[r.Header.MemberId], Problems: r.Errors,
	}
}

func printMembers(out io.Writer, all []memberStatus) error {
	columns := terminal.Titles("ENDPOINT", "VERSION", "SIZE", "IN USE", "QUOTA", "REVISION", "LEADER", "ALARMS")
	columns[0].Below = true
	table := terminal.NewTable(columns...)
	for _, s := range all {
		if s.Error != "" {
			table.Row(s.Endpoint, terminal.Paint(terminal.Red, "down"), "", "", "", "", "", s.Error)
			continue
		}
		table.Row(s.Endpoint, s.Version, bytesOf(s.SizeBytes), bytesOf(s.InUse), bytesOf(s.Quota), s.Revision, s.Leader,
			terminal.Paint(terminal.Red, strings.Join(slices.Concat(s.Alarms, s.Problems), ", ")))
	}
	return command.WriteTable(out, table)
}

// alarms returns the names of the alarms of each member.
func (m *maintenance) alarms(ctx context.Context) (map[uint64][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	r, err := m.client.AlarmList(ctx)
	if err != nil {
		return nil, err
	}
	all := map[uint64][]string{}
	for _, a := range r.Alarms {
		all[a.MemberID] = append(all[a.MemberID], a.Alarm.String())
	}
	return all, nil
}

func (m *maintenance) defrag(ctx context.Context) error {
	endpoints, err := m.members(ctx)
	if err != nil {
		return err
	}
	for _, endpoint := range endpoints {
		before := m.statusOf(ctx, endpoint, nil)
		if before.Error != "" {
			return fmt.Errorf("%s: %s; the members after it were left as they are", endpoint, before.Error)
		}
		bounded, cancel := context.WithTimeout(ctx, maintenanceTimeout)
		begun := time.Now()
		_, err := m.client.Defragment(bounded, endpoint)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w; the members after it were left as they are", endpoint, err)
		}
		took := time.Since(begun).Round(time.Millisecond)
		terminal.Fprintf(m.out, "%s: %s, %s before, in %s\n", endpoint, bytesOf(m.statusOf(ctx, endpoint, nil).SizeBytes), bytesOf(before.SizeBytes), took)
	}
	return nil
}

func (m *maintenance) listAlarms(ctx context.Context) error {
	alarms, err := m.alarms(ctx)
	if err != nil {
		return err
	}
	if len(alarms) == 0 {
		terminal.Fprintf(m.out, "no alarms\n")
	}
	for id, names := range alarms {
		terminal.Fprintf(m.out, "member %x: %s\n", id, strings.Join(names, ", "))
	}
	return nil
}

func (m *maintenance) disarm(ctx context.Context) error {
	if err := m.listAlarms(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	r, err := m.client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	if err != nil {
		return err
	}
	if len(r.Alarms) > 0 {
		terminal.Fprintf(m.out, "taken back\n")
	}
	return nil
}

func (m *maintenance) endpoints(ctx context.Context) error {
	endpoints, err := m.members(ctx)
	if err == nil {
		terminal.Fprintf(m.out, "%s\n", strings.Join(endpoints, ","))
	}
	return err
}
