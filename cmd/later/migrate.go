package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/laterq/later/store"
)

func (m *Main) migrateCommand() *cobra.Command {
	return m.group("migrate from-delayqueue|from-asynq|from-zset REDIS", "Take over the messages of another queue",
		`Migrate copies the live messages of another program's queue in Redis to the store, with their ids, payloads,
due times and attempts, as far as the other queue keeps them. REDIS is the URL of its database, as in --store.

Stop the programs that use the queue, look at the counts of --dry-run, migrate, and start the new programs. The source
is left as it is until --delete-source is given, with the first run or another one: then each page of messages is
removed once the store has it. A migration that failed or was stopped is continued by repeating the command: ids keep
live messages from being copied twice. But messages that the store's workers finished in between are delivered again if
they are still in the source, so start the store's workers after the migration.

A source that is in use is refused before anything is written, with exit code `+
			strconv.Itoa(exitCode(store.ErrLeased))+`, as far as that can be told; --force
migrates from it nevertheless. Messages that are over a limit stay in the source, and the exit code is `+
			strconv.Itoa(exitCode(store.ErrInvalid))+` or `+strconv.Itoa(exitCode(store.ErrTooLarge))+`; messages
with ids that the store has for other messages stay too, and the exit code is `+
			strconv.Itoa(exitCode(store.ErrDuplicate))+`.

Between two stores of Later use later copy.`,
		`  later migrate from-asynq redis://localhost:6379/0 --dry-run
  later migrate from-asynq redis://localhost:6379/0 --delete-source`,
		m.migrateFromDelayQueueCommand(), m.migrateFromAsynqCommand(), m.migrateFromZSetCommand())
}
