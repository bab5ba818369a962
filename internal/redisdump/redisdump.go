// Package redisdump writes the keys of a Redis database as commands in JSON, and executes them again: the fixtures of
// queues that other programs have made. It is for tests, and imports go-redis.
package redisdump

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
)

// encoded precedes an argument that is not UTF-8, and one that begins with it.
const encoded = "base64:"

// Dump returns the commands that make the keys of a database, one array in each line. Times to live are absolute.
func Dump(ctx context.Context, rdb *redis.Client) ([]byte, error) {
	keys, err := rdb.Keys(ctx, "*").Result()
	if err != nil {
		return nil, err
	}
	slices.Sort(keys)
	var lines []string
	for _, key := range keys {
		commands, err := commandsOf(ctx, rdb, key)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", key, err)
		}
		for _, command := range commands {
			line, err := json.Marshal(command)
			if err != nil {
				return nil, err
			}
			lines = append(lines, string(line))
		}
	}
	return []byte("[\n" + strings.Join(lines, ",\n") + "\n]\n"), nil
}

// commandsOf returns the commands that make a key.
func commandsOf(ctx context.Context, rdb *redis.Client, key string) (commands [][]string, err error) {
	kind, err := rdb.Type(ctx, key).Result()
	if err != nil {
		return nil, err
	}
	command := []string{"", key}
	switch kind {
	case "string":
		command[0] = "SET"
		var value string
		value, err = rdb.Get(ctx, key).Result()
		command = append(command, value)
	case "list":
		command[0] = "RPUSH"
		var values []string
		values, err = rdb.LRange(ctx, key, 0, -1).Result()
		command = append(command, values...)
	case "set":
		command[0] = "SADD"
		var values []string
		values, err = rdb.SMembers(ctx, key).Result()
		slices.Sort(values)
		command = append(command, values...)
	case "zset":
		command[0] = "ZADD"
		var values []redis.Z
		values, err = rdb.ZRangeWithScores(ctx, key, 0, -1).Result()
		for _, v := range values {
			command = append(command, strconv.FormatFloat(v.Score, 'f', -1, 64), fmt.Sprint(v.Member))
		}
	case "hash":
		command[0] = "HSET"
		var values map[string]string
		values, err = rdb.HGetAll(ctx, key).Result()
		for field, value := range values {
			command = append(command, field, value)
		}
	default:
		err = fmt.Errorf("type %s is not known", kind)
	}
	if err != nil {
		return nil, err
	}
	for i, arg := range command {
		if !utf8.ValidString(arg) || strings.HasPrefix(arg, encoded) {
			command[i] = encoded + base64.StdEncoding.EncodeToString([]byte(arg))
		}
	}
	commands = append(commands, command)
	if at, err := rdb.PExpireTime(ctx, key).Result(); err == nil && at > 0 {
		ms := strconv.FormatInt(int64(at/time.Millisecond), 10)
		commands = append(commands, []string{"PEXPIREAT", command[1], ms})
	}
	return commands, nil
}

// Load executes the commands of a Dump.
func Load(ctx context.Context, rdb redis.UniversalClient, dump []byte) error {
	var commands [][]string
	if err := json.Unmarshal(dump, &commands); err != nil {
		return err
	}
	for _, command := range commands {
		args := make([]any, len(command))
		for i, arg := range command {
			args[i] = arg
			if text, ok := strings.CutPrefix(arg, encoded); ok {
				raw, err := base64.StdEncoding.DecodeString(text)
				if err != nil {
					return err
				}
				args[i] = raw
			}
		}
		if err := rdb.Do(ctx, args...).Err(); err != nil {
			return fmt.Errorf("%s %s: %w", command[0], command[1], err)
		}
	}
	return nil
}
