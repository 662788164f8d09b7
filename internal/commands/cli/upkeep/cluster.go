package upkeep

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/datalock"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/keys"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/backup"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/datadir"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/members"
)

// NewCluster returns the command gatehouse cluster.
func NewCluster(streams command.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Let servers join a cluster, and operate its members",
	}
	token := command.Group(&cobra.Command{Use: "token", Short: "Make, list and revoke the tokens by which servers join"},
		newClusterCommand("create", "Make a token by which servers join", streams, (*cluster).createToken),
		newClusterCommand("list", "List the tokens that are good", streams, (*cluster).listTokens),
		newClusterCommand("revoke ID", "End a token", streams, (*cluster).revoke))
	return interruptible(command.Group(cmd, token,
		newClusterCommand("status", "Show the members and how they are", streams, (*cluster).status),
		newClusterCommand("remove MEMBER", "Remove a member, also a dead one", streams, (*cluster).remove),
		newClusterCommand(rotateKeysUse, "Replace the keys of the cluster's CAs", streams, (*cluster).rotateKeys),
		newClusterRecover(streams)))
}

// cluster is a command on the members of an embedded etcd.
type cluster struct {
	maintenance
	prefix string
	uses   int
	errOut io.Writer
	// finish, endTokens and resume are the flags of rotate-keys.
	finish, endTokens, resume bool
}

func newClusterCommand(use, short string, streams command.Streams, run func(*cluster, context.Context, []string) error) *cobra.Command {
	c := &cluster{maintenance: maintenance{out: streams.Out, output: "text"}, uses: 1, errOut: streams.Err}
	timeout := clusterTimeout
	if use == rotateKeysUse {
		timeout = rotateTimeout
	}
	args := command.AtMost(0)
	if _, takes, ok := strings.Cut(use, " "); ok {
		args = command.Exactly(1, "one "+takes)
	}
	cmd := &cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
		if state, err := members.ReadState(c.dataDir); err != nil || state == nil {
			return cmp.Or(err, fmt.Errorf("data directory %s does not belong to a server of a cluster: start the server with --cluster or --join", c.dataDir))
		}
		end, err := c.open(cmd.Context())
		switch {
		case errors.Is(err, backup.ErrNotRunning):
			return err
		case err != nil:
			return c.withoutMajority(cmd.Context(), err)
		}
		defer end()
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		return run(c, ctx, args)
	}}
	command.AddSection(cmd, "Which server", func(f *pflag.FlagSet) {
		f.StringVar(&c.dataDir, "data-dir", command.DataDir(), "data directory of a server of the cluster on this machine")
		f.StringVar(&c.prefix, "etcd-prefix", server.Defaults().EtcdPrefix, "prefix of every key in etcd")
		if use == "create" {
			f.IntVar(&c.uses, "uses", 1, "number of servers that may join with the token")
		}
		if use == rotateKeysUse {
			f.BoolVar(&c.resume, "resume", false, "only continue a replacement that has begun")
			f.BoolVar(&c.finish, "finish", false, "also end the trust in the old keys: kubeconfigs with old certificates are refused")
			f.BoolVar(&c.endTokens, "end-tokens", false, "with --finish, end all tokens of service accounts that the old key has signed; otherwise they stay good until they expire")
		}
	})
	if use == "status" || use == "list" {
		command.AddOutput(cmd, &c.output, "format: text or json", "text", "json")
	}
	return cmd
}

// withoutMajority is the error of a cluster whose etcd does not respond. It lists the members that do not run,
// as far as the server of this machine knows them. A member that responds can come back, so a recovery would
// create a second cluster.
func (c *cluster) withoutMajority(ctx context.Context, err error) error {
	const majority = "a majority of the members must run"
	state, read := members.ReadState(c.dataDir)
	client, made := c.api()
	url := datalock.ServerURL(filepath.Join(c.dataDir, "etcd"))
	if read != nil || state == nil || made != nil || url == "" {
		return fmt.Errorf("%w: %s", err, majority)
	}
	status := askMember(ctx, client, url)
	if status == nil {
		return fmt.Errorf("%w: %s", err, majority)
	}
	others := slices.DeleteFunc(status.Members, func(p etcd.Peer) bool { return p.Name == state.Name })
	silent := make([]bool, len(others))
	var asking sync.WaitGroup
	for i, p := range others {
		asking.Go(func() { silent[i] = !etcd.Answers(ctx, p.Address) })
	}
	asking.Wait()
	var names []string
	for i, p := range others {
		if silent[i] {
			names = append(names, cmp.Or(p.Name, "a member")+" at "+p.Address)
		}
	}
	switch {
	case len(names) == 0:
		return fmt.Errorf("%w: %s and accept each other; all of them answer, and the log of the servers says why they do not work together", err, majority)
	case len(names) == len(others):
		return fmt.Errorf("%w: %s, and no other one answers: start %s; if these are lost for good, stop this server and run 'gatehouse cluster recover --from-this-member'", err, majority, strings.Join(names, ", "))
	}
	return fmt.Errorf("%w: %s: start %s", err, majority, strings.Join(names, ", "))
}

// clusterTimeout limits the queries of the members by one command.
const clusterTimeout = 30 * time.Second

func (c *cluster) tokens() *members.Tokens {
	return members.TokensOf(c.client, server.ClusterKeys(c.prefix))
}

func (c *cluster) createToken(ctx context.Context, _ []string) error {
	if c.uses < 1 || c.uses > members.MaxUses {
		return command.Usagef("--uses %d is not between 1 and %d", c.uses, members.MaxUses)
	}
	if f, ok := terminal.Exact(c.out).(*os.File); ok {
		if term.IsTerminal(int(f.Fd())) {
			return command.Usagef("the token lets its reader join and read everything, and is not shown on a terminal: write it to a file, as in 'gatehouse cluster token create > join.token'")
		}
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			if err := f.Chmod(0o600); err != nil {
				return fmt.Errorf("closing the file of the token for other users: %w", err)
			}
		}
	}
	authority, err := files.Read(filepath.Join(c.dataDir, "pki", "ca.crt"), files.Configuration)
	if err != nil {
		return err
	}
	text, made, err := c.tokens().Create(ctx, authority, c.uses)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(c.out, text+"\n"); err != nil {
		return err
	}
	terminal.Fprintf(c.errOut, "token %s: for %s, until %s\n", made.ID, report.Count(made.Uses, "server"), made.Expires.Local().Format(time.TimeOnly))
	return nil
}

func (c *cluster) listTokens(ctx context.Context, _ []string) error {
	all, err := c.tokens().List(ctx)
	if err != nil {
		return err
	}
	// The hash of a token is omitted: it has no use in the output.
	type shown struct {
		ID      string    `json:"id"`
		Expires time.Time `json:"expires"`
		Uses    int       `json:"uses"`
		Used    []string  `json:"used"`
	}
	list := []shown{}
	for _, t := range all {
		one := shown{t.ID, t.Expires, t.Uses, []string{}}
		for _, by := range t.Used {
			name, _, _ := strings.Cut(by, "/")
			one.Used = append(one.Used, name)
		}
		list = append(list, one)
	}
	if c.output == "json" {
		return writeJSON(c.out, list)
	}
	table := terminal.NewTable(terminal.Titles("TOKEN", "EXPIRES", "USES LEFT", "USED BY")...)
	for _, t := range list {
		table.Row(t.ID, t.Expires.Local().Format(time.TimeOnly), t.Uses-len(t.Used), strings.Join(t.Used, ", "))
	}
	return command.WriteTable(c.out, table)
}

func writeJSON(out io.Writer, value any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

func (c *cluster) revoke(ctx context.Context, args []string) error {
	there, err := c.tokens().Revoke(ctx, args[0])
	if err == nil && !there {
		err = fmt.Errorf("there is no token %s: 'gatehouse cluster token list' lists the valid tokens", args[0])
	}
	if err != nil {
		return err
	}
	terminal.Fprintf(c.out, "revoked %s; servers that have joined with it stay\n", args[0])
	return nil
}

// member is a member in the output of status. Fields are only ever added.
type member struct {
	Name    string `json:"name"`
	ID      string `json:"id"`
	Address string `json:"address"`
	// Role is member, or joining for a member without a vote.
	Role string `json:"role"`
	// Server is the URL of the member's API. It and Status are empty if no server responds for the member.
	Server string          `json:"server,omitempty"`
	Status *members.Status `json:"status,omitempty"`
}

// look returns the members with the status of each, as reported by its server.
func (c *cluster) look(ctx context.Context) ([]member, error) {
	list, err := c.client.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("the cluster has no majority that answers: %w", err)
	}
	servers, err := replicas.Encryptions(ctx, c.client, c.prefix)
	if err != nil {
		return nil, err
	}
	client, err := c.api()
	if err != nil {
		return nil, err
	}
	statuses := make([]*members.Status, len(servers))
	var asking sync.WaitGroup
	for i, s := range servers {
		asking.Go(func() { statuses[i] = askMember(ctx, client, s.Address) })
	}
	asking.Wait()
	var all []member
	for _, m := range list.Members {
		address := strings.TrimPrefix(strings.Join(m.PeerURLs, ","), "https://")
		one := member{Name: m.Name, ID: strconv.FormatUint(m.ID, 16), Address: address, Role: "member"}
		if m.IsLearner {
			one.Role = "joining"
		}
		if i := slices.IndexFunc(statuses, func(s *members.Status) bool { return s != nil && s.ID == one.ID }); i >= 0 {
			one.Server, one.Status = servers[i].Address, statuses[i]
		}
		all = append(all, one)
	}
	return all, nil
}

// api returns a client for all servers of the cluster, with the administrator's credentials.
func (c *cluster) api() (*http.Client, error) {
	// The files are read here: a transport that is cached by file name would keep using certificates after
	// their replacement.
	at := func(name string) ([]byte, error) {
		return files.Read(filepath.Join(c.dataDir, "pki", name), files.Configuration)
	}
	trust, err := at(keys.TrustName)
	if errors.Is(err, fs.ErrNotExist) {
		trust, err = at("ca.crt")
	}
	cert, certErr := at("admin.crt")
	key, keyErr := at("admin.key")
	if err := errors.Join(err, certErr, keyErr); err != nil {
		return nil, err
	}
	return rest.HTTPClientFor(&rest.Config{Timeout: memberTimeout, TLSClientConfig: rest.TLSClientConfig{
		CAData: trust, ServerName: members.ServerName, CertData: cert, KeyData: key,
	}})
}

// askMember returns the status of a member from its server; nil without a response.
func askMember(ctx context.Context, client *http.Client, address string) *members.Status {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+server.MemberPath, nil)
	if err != nil {
		return nil
	}
	res, err := client.Do(req)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	status := &members.Status{}
	if res.StatusCode != http.StatusOK || json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(status) != nil {
		return nil
	}
	return status
}

func (c *cluster) status(ctx context.Context, _ []string) error {
	all, err := c.look(ctx)
	if err != nil {
		return err
	}
	if c.output == "json" {
		err = writeJSON(c.out, all)
	} else {
		err = c.print(all)
	}
	return cmp.Or(err, errSilent(all, func(m member) bool { return m.Status == nil }))
}

// errSilent is the error of members that do not respond; nil if all respond.
func errSilent[M any](all []M, silent func(M) bool) error {
	answering := slices.DeleteFunc(slices.Clone(all), silent)
	if len(answering) == len(all) {
		return nil
	}
	return fmt.Errorf("%d of %s do not answer", len(all)-len(answering), report.Count(len(all), "member"))
}

func (c *cluster) print(all []member) error {
	table := terminal.NewTable(terminal.Titles("MEMBER", "ADDRESS", "STATE", "BEHIND", "SIZE", "REGISTRATIONS")...)
	voters := 0
	var last uint64
	for _, m := range all {
		if m.Status != nil {
			last = max(last, m.Status.Applied)
		}
	}
	for _, m := range all {
		if m.Role == "member" {
			voters++
		}
		switch s := m.Status; {
		case s == nil && m.Role != "member":
			table.Row(m.name(), m.Address, m.Role, "", "", "")
		case s == nil:
			table.Row(m.name(), m.Address, terminal.Paint(terminal.Red, "down"), "", "", "")
		default:
			state := m.Role
			if s.Leader {
				state = "leader"
			}
			if len(s.Problems) > 0 {
				state += ": " + strings.Join(s.Problems, ", ")
			}
			table.Row(m.name(), m.Address, state, s.Behind+last-s.Applied, bytesOf(s.SizeBytes), s.Registrations)
		}
	}
	if err := command.WriteTable(c.out, table); err != nil {
		return err
	}
	now := time.Now()
	for _, m := range all {
		if m.Status == nil {
			continue
		}
		for _, expiring := range m.Status.Certificates {
			terminal.Fprintf(c.out, "\n%s: %s\n", m.name(), expiring.Text(now))
		}
	}
	if i := slices.IndexFunc(all, func(m member) bool { return m.Status != nil && m.Status.Keys != nil && m.Status.Keys.Rotation != "" }); i >= 0 {
		_, phase, _ := strings.Cut(all[i].Status.Keys.Rotation, "/")
		terminal.Fprintf(c.out, "\nThe keys of the cluster are being replaced, in phase %s: run 'gatehouse cluster rotate-keys --resume'.\n", phases[keys.Phase(phase)])
	}
	if voters%2 == 0 {
		terminal.Fprintf(c.out, "\n%d members tolerate no more failed members than %d: let another server join, or remove one.\n", voters, voters-1)
	}
	return nil
}

// name is the name of a member, or its ID before it has reported a name.
func (m *member) name() string { return cmp.Or(m.Name, m.ID) }

func (c *cluster) remove(ctx context.Context, args []string) error {
	all, err := c.look(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(m member) bool { return m.Name == args[0] || m.ID == args[0] || m.Address == args[0] })
	if i < 0 {
		return fmt.Errorf("the cluster has no member %s: 'gatehouse cluster status' lists them", args[0])
	}
	gone, voters, answer := all[i], 0, 0
	for j, m := range all {
		if j == i || m.Role != "member" {
			continue
		}
		if voters++; m.Status != nil {
			answer++
		}
	}
	if voters == 0 {
		return fmt.Errorf("%s is the only member: a cluster needs one", gone.name())
	}
	if gone.Role == "member" && answer <= voters/2 {
		return fmt.Errorf("without %s, %d of %s would answer, less than a majority: start the others first, or remove a stopped one", gone.name(), answer, report.Count(voters, "member"))
	}
	id, err := strconv.ParseUint(gone.ID, 16, 64)
	if err != nil {
		return err
	}
	if _, err := c.client.MemberRemove(ctx, id); err != nil {
		return err
	}
	// The members reject the keys of a removed member even if the record remains.
	if err := etcd.DeleteIdentity(ctx, c.client.KV, server.ClusterKeys(c.prefix), gone.Name); err != nil {
		return fmt.Errorf("%s is removed, and the record of its key could not be deleted: %w", gone.name(), err)
	}
	terminal.Fprintf(c.out, `removed %s; its server ends if it runs, and the others refuse its keys.
Its disk still has all objects, and in pki the keys of the cluster's CAs: %s.
If the disk leaves your hands, replace these keys: gatehouse cluster rotate-keys --finish --end-tokens
`, gone.name(), strings.Join(diskKeys, ", "))
	return nil
}

// diskKeys are the files below pki with the keys shared by all servers of a cluster.
var diskKeys = []string{"ca.key", "service-account.key", "front-proxy-ca.key", "peer-ca.key"}

func newClusterRecover(streams command.Streams) *cobra.Command {
	var dataDir string
	var this, yes bool
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Continue with one member when a majority is lost for good",
		Args:  command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !this {
				return command.Usagef("say --from-this-member, if the cluster should continue with the data in %s", dataDir)
			}
			return recoverCluster(cmd.Context(), dataDir, yes, streams)
		},
	}
	command.AddSection(cmd, "Which server", func(f *pflag.FlagSet) {
		f.StringVar(&dataDir, "data-dir", command.DataDir(), "data directory of the member")
		f.BoolVar(&this, "from-this-member", false, "continue with the data of this member, and without the others")
		f.BoolVar(&yes, "yes", false, "do not ask")
	})
	return cmd
}

func recoverCluster(ctx context.Context, dataDir string, yes bool, streams command.Streams) error {
	state, err := members.ReadState(dataDir)
	if err != nil || state == nil {
		return cmp.Or(err, fmt.Errorf("data directory %s does not belong to a server of a cluster", dataDir))
	}
	dir := filepath.Join(dataDir, "etcd")
	if !etcd.HasData(dir) {
		return fmt.Errorf("data directory %s has no data of a member: restore a backup, or recover on the server of another member", dataDir)
	}
	// The lock is held from the first read of the data to the last write.
	lock, err := etcd.TakeLock(dir)
	if err != nil {
		return stopFirst(err)
	}
	defer lock.Close()
	if several, err := lock.Several(); err != nil || !several {
		return cmp.Or(err, errors.New("the cluster has this member only: start its server"))
	}
	if !yes {
		terminal.Fprintf(streams.Err, "The cluster will have the member %s only, with the data in %s.\nWhat only other members have is lost, and they must not come back.\nType the name of the member to continue: ", state.Name, dataDir)
		answer, _ := bufio.NewReader(io.LimitReader(streams.In, 200)).ReadString('\n')
		if strings.TrimSpace(answer) != state.Name {
			return errors.New("nothing was changed: that is not the name of the member")
		}
	}
	kept := filepath.Join(dataDir, "before-recover-"+time.Now().UTC().Format("20060102T150405Z"), "etcd")
	if err := lock.Copy(kept); err != nil {
		return err
	}
	// After a command of root, the files belong to the user of the server.
	err = errors.Join(lock.Alone(ctx), datadir.Own(dataDir, dir, filepath.Dir(kept)))
	if err != nil {
		return fmt.Errorf("%w; a copy of the data of before is in %s", err, kept)
	}
	terminal.Fprintf(streams.Out, "the cluster has the member %s only; the data of before are in %s\n", state.Name, filepath.Dir(kept))
	return nil
}
