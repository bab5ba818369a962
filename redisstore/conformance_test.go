package redisstore

import (
	"testing"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store/storetest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestConformance(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) { storetest.Run(t, harness(e.client)) })
	}
}

func TestStateMachine(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) { storetest.RunStateMachine(t, harness(e.client)) })
	}
}
