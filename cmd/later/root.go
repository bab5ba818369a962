package main

import (
	"context"

	"github.com/spf13/cobra"
)

const overview = `Later is a reliable delay queue: a message is sent now and delivered when it falls due, at least once,
never early, and within about a millisecond.

  later demo                                   see it work; no setup needed
  later send mail 'hello' --in 30s             send a message
  later work mail                              print messages as they fall due
  later work mail --exec './send-mail.sh'      run a command for each
  later stats --watch                          watch the queues
  later problems                               list what needs a person, and what helps
  later events                                 watch the events of all processes
  later ui                                     see and change all of that in the browser; later demo --ui has a shop

Messages are kept in a store, which --store URL, LATER_STORE or REDIS_URL selects, in that order. The default is a
durable embedded store in your data directory (later version prints which). Processes of one machine share it.

  file:///var/lib/later                                     an embedded store; or a path: ./dir, ~/dir or /dir
  redis://user:password@host:6379/0                         Redis or Valkey, 7.0 or later
  rediss://host:6380                                        the same over TLS
  unix:///run/redis/redis.sock                              the same over a Unix socket
  redis+sentinel://host1:26379,host2:26379/mymaster         the primary that Sentinel monitors
  redis+cluster://host1:6379,host2:6379                     Redis Cluster
  https://later.example:7600                                a store that later serve shares; also http://. Its
                                                            token is in LATER_TOKEN, or https://:TOKEN@host
  mem://                                                    memory of this process, lost when it ends

The first message creates its queue. A message is scheduled until it falls due, then ready, and leased while a worker
holds it. An ack removes it. After its last failed attempt it is dead, and stays dead until it is replayed, cancelled
or purged. A message in any of these states, including dead, is live: its id is taken.`

// The groups of commands in the overview.
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
		Long:  overview + "\n\n" + exitCodesText(),
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
	root.PersistentFlags().StringVar(&m.storeURL, "store", "",
		"`URL` or directory of the store (default LATER_STORE, else REDIS_URL, else the embedded store)")
	root.PersistentFlags().BoolVar(&m.json, "json", false, "print JSON, one object per line")
	root.Flags().BoolVar(&version, "version", false, "print the version, like later version")
	root.SetFlagErrorFunc(similarFlag)
	root.AddGroup(
		&cobra.Group{ID: groupMessages, Title: "Send and handle messages:"},
		&cobra.Group{ID: groupLook, Title: "Inspect messages:"},
		&cobra.Group{ID: groupChange, Title: "Change messages:"},
		&cobra.Group{ID: groupQueues, Title: "Manage queues and stores:"},
		&cobra.Group{ID: groupProgram, Title: "About this program:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupMessages, m.demoCommand(), m.sendCommand(), m.workCommand(), m.forwardCommand(), m.topicCommand(),
		m.seriesCommand(), m.scheduleCommand())
	add(groupLook, m.problemsCommand(), m.statsCommand(), m.activityCommand(), m.eventsCommand(), m.listCommand(),
		m.findCommand(), m.searchCommand(), m.getCommand())
	add(groupChange, m.cancelCommand(), m.rescheduleCommand(), m.editCommand(), m.runNowCommand(), m.deadCommand())
	add(groupQueues, m.queuesCommand(), m.flowCommand(), m.keysCommand(), m.shardsCommand(), m.pauseCommand(),
		m.resumeCommand(), m.purgeCommand(), m.deleteCommand(), m.changesCommand(),
		m.copyCommand(), m.exportCommand(), m.importCommand(), m.migrateCommand(), m.backupCommand(), m.doctorCommand(),
		m.pingCommand(), m.workersCommand(), m.serveCommand(), m.uiCommand(), m.tokenCommand())
	add(groupProgram, m.benchCommand(), m.versionCommand(), m.completionCommand())
	root.SetHelpCommand(m.helpCommand())
	root.SetHelpCommandGroupID(groupProgram)
	return root
}
