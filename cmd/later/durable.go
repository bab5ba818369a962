package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/store"
)

// durableTimeout is the default timeout of --durable.
const durableTimeout = 5 * time.Second

// durableFlag adds --durable.
func durableFlag(set *pflag.FlagSet, d *later.Durability) {
	set.Var(&durableValue{d: d}, "durable", fmt.Sprintf(
		"wait for the disk and this many replicas (default timeout: %s)",
		durations.Format(durableTimeout)))
}

// durableValue is the value of --durable.
type durableValue struct {
	d    *later.Durability
	text string
}

func (v *durableValue) Set(text string) error {
	number, rest, hasTimeout := strings.Cut(text, ",")
	replicas, err := strconv.Atoi(number)
	if err != nil || replicas < 0 || replicas > store.MaxReplicas {
		return fmt.Errorf("must be 0 (disk only) to %d replicas, and optionally a timeout, such as 1 or 1,500ms",
			store.MaxReplicas)
	}
	timeout := durableTimeout
	if hasTimeout {
		if timeout, err = durations.Parse(rest); err != nil {
			return err
		}
		if timeout < store.MinConfirm || timeout > store.MaxConfirm {
			return fmt.Errorf("the timeout must be %s to %s", durations.Format(store.MinConfirm),
				durations.Format(store.MaxConfirm))
		}
	}
	*v.d, v.text = later.Durable(replicas, timeout), text
	return nil
}

func (v *durableValue) String() string { return v.text }
func (v *durableValue) Type() string   { return "REPLICAS[,TIMEOUT]" }
