package storetest

import "strings"

// Cursors are the seeds of the fuzz tests of the engines' cursors.
var Cursors = []string{
	"", ":", ".", "1:a", "1.YQ", "-1:", "9223372036854775808:a", "1:a\x00", "0.MQlh", "0.CQ", "l:\"a\"",
	"l:`a`", "l:'a'",
	"l:\"\\xff\"", "\xff", "18446744073709551615.", "+1:a", "1.MTIJ\n", strings.Repeat("9", 999) + ":",
}
