package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/nearest"
)

// command returns a command. Its usage says which arguments it takes and completes.
func (m *Main) command(usage, short, long, example string, run func(*cobra.Command, []string) error) *cobra.Command {
	words, least, most := parseUsage(usage)
	return &cobra.Command{
		Use: usage, Short: short, Long: long, Example: example, Args: arguments(least, most), RunE: run,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) >= most {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return m.complete(cmd, words[min(len(args), len(words)-1)], args, typed)
		},
	}
}

// group returns a command that only has commands below it.
func (m *Main) group(usage, short, long, example string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: usage, Short: short, Long: long, Example: example, Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(commands...)
	return cmd
}

// unlimited means no limit on the number of arguments.
const unlimited = math.MaxInt

var (
	usageFlag     = regexp.MustCompile(`--[a-z-]+ [A-Z=]+`)
	usageArgument = regexp.MustCompile(`([\[(]?)([A-Z]+)(?:\|-)?(\.\.\.)?`)
)

// parseUsage returns the words for the arguments in a command's usage, such as QUEUE, and how many there may be. An
// argument in brackets can be left out, also for a flag.
func parseUsage(usage string) (words []string, least, most int) {
	for _, argument := range usageArgument.FindAllStringSubmatch(usageFlag.ReplaceAllString(usage, ""), -1) {
		words = append(words, argument[2])
		if argument[1] == "" {
			least++
		}
		if most++; argument[3] != "" {
			return words, least, unlimited
		}
	}
	return words, least, most
}

// arguments requires between least and most arguments.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		usage := fmt.Sprintf("usage: %s %s", strings.TrimSuffix(cmd.CommandPath(), " "+cmd.Name()), cmd.Use)
		switch {
		case len(args) > most && most > 0:
			return fmt.Errorf("%q is one argument too many, perhaps part of one that needs quotes; %s",
				args[most], usage)
		case len(args) < least || len(args) > most:
			return errors.New(usage)
		}
		return nil
	}
}

// complete completes an argument, for which the word stands in a command's usage. It leaves out names that are among
// the arguments.
func (m *Main) complete(cmd *cobra.Command, word string, args []string, typed string) (
	[]string, cobra.ShellCompDirective,
) {
	var list func(*later.Client, context.Context) ([]string, error)
	switch in := cmd.Parent().Name(); {
	case word == "DIR":
		return nil, cobra.ShellCompDirectiveFilterDirs
	case word == "FILE":
		return nil, cobra.ShellCompDirectiveDefault
	case word == "QUEUE" && in == "topic":
		list, args = subscribable, nil
	case word == "QUEUE":
		list = (*later.Client).Queues
	case word == "TOPIC":
		list = (*later.Client).Topics
	case word == "NAME" && in == "schedule":
		list = scheduleNames
	case word == "NAME":
		list = workerNames
	default:
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	s := m.selected()
	if s.err != nil || s.isNew { // completion must not create a store
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	client, err := later.Open(ctx, s.url, later.WithLogger(m.logger()))
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer client.Close()
	names, _ := list(client, ctx) // none after an error
	return slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, typed) || slices.Contains(args, name)
	}), cobra.ShellCompDirectiveNoFileComp
}

// choice adds a flag for one of some words, which a shell completes.
func choice(cmd *cobra.Command, value *string, name, byDefault, usage string, words ...string) {
	cmd.Flags().StringVar(value, name, byDefault, usage)
	cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// knownCommand returns an error for an unknown subcommand of cmd, with a suggestion if there is one.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}
	return fmt.Errorf("unknown command %q%s", args[0], didYouMeanName(args[0], names))
}

// similarFlag adds a suggestion to the error for an unknown flag.
func similarFlag(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if word, ok := nearest.Word(unknown.GetSpecifiedName(), names); ok {
		err = fmt.Errorf("%w; did you mean --%s?", err, word)
	}
	return err
}
