package main

import (
	"testing"

	"github.com/laterq/later/store"
)

func TestEveryCodeHasItsOwnExitCode(t *testing.T) {
	codes := []store.Code{store.Internal}
	for _, kind := range store.Kinds() {
		codes = append(codes, kind.Code)
	}
	if len(exitCodes) != len(codes) {
		t.Errorf("%d exit codes, want %d", len(exitCodes), len(codes))
	}
	seen := map[int]store.Code{0: "success", exitTempFail: "retry"}
	for _, code := range codes {
		exit := exitCodes[code]
		if other, taken := seen[exit]; taken {
			t.Errorf("exit code %d of %s is also that of %s", exit, code, other)
		}
		seen[exit] = code
	}
}
