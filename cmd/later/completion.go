package main

import (
	"github.com/spf13/cobra"
)

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
