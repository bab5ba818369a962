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

func (m *Main) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a shell completion script",
		Long: `Completion prints a script that completes commands, flags and queue names in a shell. Queue names come from the
store. Load the script in the shell's start-up file:

  bash    source <(later completion bash)
  zsh     source <(later completion zsh)
  fish    later completion fish | source`,
		Example:   `  later completion bash > /etc/bash_completion.d/later`,
		Args:      cobra.MatchAll(arguments(1, 1), cobra.OnlyValidArgs),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			switch root := cmd.Root(); args[0] {
			case "bash":
				err = root.GenBashCompletionV2(m.Stdout, true)
			case "zsh":
				err = root.GenZshCompletion(m.Stdout)
			case "fish":
				err = root.GenFishCompletion(m.Stdout, true)
			}
			if err != nil {
				return &commandError{err}
			}
			return nil
		},
	}
}
