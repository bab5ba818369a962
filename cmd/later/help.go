package main

import (
	"github.com/spf13/cobra"
)

// helpCommand replaces cobra's help command, which prints the overview for an unknown command.
func (m *Main) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Print help for a command",
		Long:    `Help prints the help page of a command, like COMMAND --help. Without a command it prints the overview.`,
		Example: `  later help dead list`,
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err == nil {
				err = knownCommand(found, rest)
			}
			if err != nil {
				return &commandError{usageError(found, err)}
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if found, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
				for _, sub := range found.Commands() {
					if sub.IsAvailableCommand() {
						names = append(names, sub.Name())
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}
