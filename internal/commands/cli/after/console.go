package after

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/server/console"
)

type consoleOptions struct {
	cluster   *command.Cluster
	port      int
	noBrowser bool
	// open opens a URL in a browser.
	open func(address string) error
}

// NewConsole returns the command gatehouse console.
func NewConsole(streams command.Streams) *cobra.Command {
	return newConsoleCommand(func(ctx context.Context, o *consoleOptions) error { return o.run(ctx, streams) })
}

func newConsoleCommand(run func(context.Context, *consoleOptions) error) *cobra.Command {
	o := &consoleOptions{open: openBrowser}
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Look at admission in the browser",
		Args:  command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.port < 0 || o.port > 65535 {
				return command.Usagef("--port %d is not a port", o.port)
			}
			return run(cmd.Context(), o)
		},
	}
	command.AddSection(cmd, "Page", func(f *pflag.FlagSet) {
		f.IntVar(&o.port, "port", 0, "port on 127.0.0.1; 0 means any free port")
		f.BoolVar(&o.noBrowser, "no-browser", false, "print the address, and open no browser")
	})
	o.cluster = command.NewCluster(cmd)
	cmd.Flags().Lookup("namespace").Hidden = true
	return cmd
}

func (o *consoleOptions) run(ctx context.Context, streams command.Streams) error {
	config, err := o.cluster.Open()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port)))
	if err != nil {
		return fmt.Errorf("--port %d: %w", o.port, err)
	}
	gate, err := console.NewGate(config, listener.Addr().String())
	if err != nil {
		listener.Close()
		return err
	}
	server := &http.Server{Handler: gate, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	address := "http://" + listener.Addr().String() + console.Prefix + "#token=" + gate.Token()
	terminal.Fprintf(streams.Out, "The console is at %s\nThe address works once. Ctrl-C ends the console.\n", address)
	if !o.noBrowser {
		if err := o.open(address); err != nil {
			terminal.Fprintf(streams.Err, "Cannot open a browser: %v. Open the address by hand.\n", err)
		}
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// Close also ends watches, which have no end of their own.
	return server.Close()
}

// openBrowser opens a URL in the browser of the desktop.
func openBrowser(address string) error {
	name, args := "xdg-open", []string{address}
	if runtime.GOOS == "darwin" {
		name = "open"
	}
	cmd := exec.Command(name, args...)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }()
	return nil
}
