package later

// These engines register the URL schemes that Open always supports.
import (
	_ "github.com/laterq/later/memstore"
	_ "github.com/laterq/later/redisstore"
	_ "github.com/laterq/later/remotestore"
)
