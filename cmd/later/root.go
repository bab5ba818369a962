package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laterq/later/store"
)

const overview = `Later is a reliable delay queue: a message is sent now and delivered when it falls due, at least once,
never early, and within about a millisecond.

  later demo                                   see it work; needs nothing
  later send mail 'hello' --in 30s             send a message
  later work mail                              print messages as they fall due
  later work mail --exec './send-mail.sh'      run a command for each
  later stats --watch                          watch the queues

The store, where the messages are, is named by --store URL, else by LATER_STORE, else by REDIS_URL. Without all
of them it is the embedded store, durable and in a directory of yours (later version tells which). One process at
a time has an embedded store open, so to send while a worker runs, use a Redis.

  file:///var/lib/later                                     an embedded store; ./dir, ~/dir and /dir name one too
  redis://user:password@host:6379/0                         Redis or Valkey, 7.0 or later
  rediss://host:6380                                        the same over TLS
  unix:///run/redis/redis.sock                              the same by its socket
  redis+sentinel://host1:26379,host2:26379/mymaster         the primary that Sentinels name
  redis+cluster://host1:6379,host2:6379                     a Cluster
  mem://                                                    this process's memory: gone when it ends

A queue is made by its first message. A message is scheduled until it falls due, then ready, leased while a
worker holds it, and gone when it is done; after its last failed attempt it is dead, where it stays until it
is replayed or purged.`

// exitKinds are the kinds of error with an exit code of their own, in the order of their codes.
var exitKinds = []*store.Error{
	store.ErrInvalid, store.ErrTooLarge, store.ErrNotFound, store.ErrDuplicate, store.ErrLeased, store.ErrDead,
	store.ErrLeaseLost, store.ErrFull, store.ErrNotDurable, store.ErrUnavailable, store.ErrUnsupported,
	store.ErrCorrupt, store.ErrClosed,
}

// exitCodes is the part of the overview about them.
func exitCodes() string {
	var b strings.Builder
	b.WriteString("Exit codes, and the names that they have with --json:\n\n")
	fmt.Fprintf(&b, "   0              done\n  %2d  %-11s  any other error\n", store.Internal.Exit, store.Internal.Name)
	for _, kind := range exitKinds {
		fmt.Fprintf(&b, "  %2d  %-11s  %v\n", kind.Code.Exit, kind.Code.Name, kind)
	}
	b.WriteString(" 130              stopped by Ctrl-C before it was done; 143 by SIGTERM. For later work that drains, and\n" +
		"                  for later stats --watch, to be stopped is to be done: 0\n\n")
	b.WriteString("With --json each result is one JSON object a line on standard output, and an error is\n" +
		`{"error":{"code":"not_found","message":"..."}} on standard error.`)
	return b.String()
}

// The groups in which the overview lists the commands.
const (
	groupMessages = "messages"
	groupLook     = "look"
	groupChange   = "change"
	groupQueues   = "queues"
	groupProgram  = "program"
)

func (m *Main) rootCommand() *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   "later",
		Short: "A reliable delay queue",
		Long:  overview + "\n\n" + exitCodes(),
		Args:  knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return run(func(context.Context, []string) error { return m.printVersion() })(cmd, nil)
			}
			return cmd.Help()
		},

		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.PersistentFlags().StringVar(&m.storeURL, "store", "", "`URL` or directory of the store (default LATER_STORE, else REDIS_URL, else the embedded store)")
	root.PersistentFlags().BoolVar(&m.json, "json", false, "print JSON, one object a line")
	root.Flags().BoolVar(&version, "version", false, "tell the version, as later version does")
	root.SetFlagErrorFunc(similarFlag)
	root.AddGroup(
		&cobra.Group{ID: groupMessages, Title: "Send and handle messages:"},
		&cobra.Group{ID: groupLook, Title: "Look at messages:"},
		&cobra.Group{ID: groupChange, Title: "Change messages:"},
		&cobra.Group{ID: groupQueues, Title: "Look after queues:"},
		&cobra.Group{ID: groupProgram, Title: "About this program:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupMessages, m.demoCommand(), m.sendCommand(), m.workCommand())
	add(groupLook, m.statsCommand(), m.listCommand(), m.getCommand())
	add(groupChange, m.cancelCommand(), m.rescheduleCommand(), m.runNowCommand(), m.deadCommand())
	add(groupQueues, m.queuesCommand(), m.pauseCommand(), m.resumeCommand(), m.purgeCommand(), m.deleteCommand(), m.copyCommand(),
		m.exportCommand(), m.importCommand(), m.backupCommand(), m.doctorCommand())
	add(groupProgram, m.benchCommand(), m.versionCommand(), m.completionCommand())
	root.SetHelpCommand(m.helpCommand())
	root.SetHelpCommandGroupID(groupProgram)
	return root
}

// knownCommand refuses what is no command of cmd, and says which one may have been meant.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unknown command %q%s", args[0], didYouMean(cmd, "", args[0]))
}

// similarFlag says of an unknown flag which one may have been meant.
func similarFlag(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	named := &cobra.Command{} // commands of the flags' names: it is for those that cobra finds similar ones
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		named.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	return fmt.Errorf("%w%s", err, didYouMean(named, "--", unknown.GetSpecifiedName()))
}

// didYouMean names the commands of cmd that are similar to what was typed, each after the prefix.
func didYouMean(cmd *cobra.Command, prefix, typed string) string {
	cmd.SuggestionsMinimumDistance = 2
	similar := cmd.SuggestionsFor(typed)
	if len(similar) == 0 {
		return ""
	}
	return "; did you mean " + prefix + strings.Join(similar, " or "+prefix) + "?"
}
