package benchmark

import (
	"testing"

	"github.com/laterq/later/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
