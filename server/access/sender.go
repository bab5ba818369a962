package access

import (
	"net/http"
	"net/netip"
)

// Sender is the unit to which limits of requests apply: an identity, or the address of a request that has none. Of an
// address of IPv6 the first 64 bits count, since a single machine may have all addresses that share them.
type Sender struct {
	name    string
	address netip.Addr
}

// SenderOf returns the sender of a request.
func SenderOf(r *http.Request) Sender {
	if who, controlled := FromContext(r.Context()); controlled && who.Role != anonymous.Role {
		return Sender{name: who.Key()}
	}
	return Sender{address: AddressOf(r.RemoteAddr)}
}

// AddressOf returns the address of a client, as it counts for limits, from its address with a port.
func AddressOf(remote string) netip.Addr {
	from, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	address := from.Addr().Unmap().WithZone("")
	if address.Is6() && !address.IsLoopback() {
		network, _ := address.Prefix(64) // 64 bits are always allowed
		return network.Addr()
	}
	return address
}
