package later

// The engines whose URL schemes Open always knows.
import (
	_ "github.com/laterq/later/memstore"
	_ "github.com/laterq/later/redisstore"
)
