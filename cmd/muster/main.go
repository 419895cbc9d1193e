// Command muster is Muster's one program: functions on a NATS, and the tools to use them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit codes, the same for every command.
const (
	exitOK          = 0
	exitUsage       = 2
	exitRefused     = 3   // 4xx other than 409
	exitConflict    = 4   // 409
	exitUnavailable = 5   // 503, 504, no responders, not connected
	exitFault       = 6   // 500, and anything unexpected
	exitInterrupted = 130 // as shells have it
)

// exitCodes says the same to users.
const exitCodes = "Exit codes: 0 success, 2 usage, 3 refused, 4 conflict, 5 unavailable or timed out, 6 server fault or anything unexpected."

type cli struct {
	Up       up       `cmd:"" help:"Run everything on this machine: a NATS server, all functions, demo sleds and hives."`
	Serve    serve    `cmd:"" help:"Run functions on an existing NATS."`
	Sled     sleds    `cmd:"" help:"Run on a sled: its part in the rack's trust quorum, its start and its network."`
	Hive     hives    `cmd:"" help:"Run on a hive: carry out its declaration and report."`
	Call     call     `cmd:"" help:"Send one request and print the reply."`
	Watch    watch    `cmd:"" help:"Show progress as it happens."`
	Dead     dead     `cmd:"" help:"List, show and replay triggers that failed for good."`
	AsyncAPI asyncapi `cmd:"" name:"asyncapi" help:"Print the AsyncAPI document of all subjects."`
	Perms    perms    `cmd:"" help:"Print or make NATS users with exact permissions."`
	Topology topology `cmd:"" help:"Print the buckets and streams that Muster keeps, as files for nats stream add."`
	Certs    certs    `cmd:"" help:"Make a certificate authority and a server certificate for NATS."`
	Bench    bench    `cmd:"" help:"Measure the functions beside what NATS itself does."`
}

// exit is an error that ends the program with a code.
type exit struct {
	code int
	err  error // nil when everything was said
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// streams are what a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "serve" { // here and not in the command, since it is the process's
		shareCores()
	}
	os.Exit(run(os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
}

func run(args []string, std streams) int {
	// The first signal asks to stop; a second one ends the program at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return command(ctx, args, std)
}

// command runs what args say, until it is done or ctx asks it to stop.
func command(ctx context.Context, args []string, std streams) int {
	var c cli
	code := -1
	parser, err := kong.New(&c, kong.Name("muster"),
		kong.Description("A control plane for a fleet, made of stateless functions on NATS. To see it work: muster up.\n\n"+exitCodes),
		kong.Writers(std.out, std.err),
		kong.Exit(func(n int) { code = n }), kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.Help(help))
	if err != nil {
		fmt.Fprintln(std.err, "muster:", err)
		return exitFault
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	k, err := parser.Parse(args)
	if code >= 0 { // --help
		return code
	}
	if err != nil {
		fmt.Fprintf(std.err, "muster: %v\nSee: %s --help\n", err, commandOf(err))
		return exitUsage
	}
	k.BindTo(ctx, (*context.Context)(nil))
	k.Bind(std)
	err = k.Run()
	if e, ok := errors.AsType[*exit](err); ok {
		if e.err != nil {
			fmt.Fprintln(std.err, "muster:", e.err)
		}
		return e.code
	}
	if err != nil {
		fmt.Fprintln(std.err, "muster:", err)
		return exitFault
	}
	return exitOK
}

// help prints a command's help. One that runs alone although it has subcommands shows the flags of that, too.
func help(o kong.HelpOptions, ctx *kong.Context) error {
	if cmd := ctx.Selected(); cmd != nil && cmd.DefaultCmd != nil {
		alone := *cmd.DefaultCmd
		cmd.Flags = append(slices.Clone(cmd.Flags), alone.Flags...)
		cmd.Detail = alone.Detail
	}
	if ctx.Selected() == nil {
		for _, cmd := range ctx.Model.Children {
			if cmd.DefaultCmd != nil { // only the subcommands would be listed
				cmd.DefaultCmd.Name, cmd.DefaultCmd.Help, cmd.DefaultCmd.Hidden = "", cmd.Help, false
			}
		}
	}
	return kong.DefaultHelpPrinter(o, ctx)
}

// commandOf is the command that a usage error belongs to.
func commandOf(err error) string {
	if e, ok := errors.AsType[*kong.ParseError](err); ok && e.Context != nil {
		if cmd := e.Context.Selected(); cmd != nil {
			if cmd.Hidden { // it is what its parent alone does
				cmd = cmd.Parent
			}
			return cmd.FullPath()
		}
	}
	return "muster"
}
