package benchmark

import (
	"math"
	"strconv"
	"strings"
)

// Values are the figures of one measurement by name. CPU times are in µs a message, unless the name says otherwise.
type Values map[string]float64

// Names of values.
const (
	PerSecond   = "messages_per_second"
	ServerCPU   = "server_cpu_us"
	ClientCPU   = "client_cpu_us"
	Messages    = "sent"
	Handled     = "handled"
	Doubles     = "doubles"
	Early       = "early"
	Lost        = "lost"       // sent, not handled, and no longer in the queue
	Unfinished  = "unfinished" // still in the queue when the time was up
	TookMS      = "took_ms"
	WorstPing   = "worst_ping_ms"
	LongestCall = "longest_call_ms"
	PlainRate   = "plain_messages_per_second" // of a drain of as many messages after the herd
	MinMS       = "min_ms"
	P50         = "p50_ms"
	P99         = "p99_ms"
	P999        = "p999_ms"
	MaxMS       = "max_ms"
	BytesAbove  = "bytes_above_payload"
	CommandRate = "commands_per_second"
	ServerLoad  = "server_cpu_ms_per_second"
	ClientLoad  = "client_cpu_ms_per_second"
	ClientCPUs  = "client_cpus" // that were busy
	ServerCPUs  = "server_cpus"
	SendUS      = "send_us"
	ClaimUS     = "claim_us"
	CancelUS    = "cancel_us"
	SendCPU     = "send_server_cpu_us"
	ClaimCPU    = "claim_server_cpu_us"
	CancelCPU   = "cancel_server_cpu_us"

	// Of queues with limits and keys.
	HandlerCalls = "handler_calls" // for each message
	ScriptCalls  = "script_calls"  // of clients, for each message
	ClaimCalls   = "claims"        // for each message
	GridP50      = "grid_p50_ms"
	GridP99      = "grid_p99_ms"
	ManyRate     = "many_handlers_messages_per_second"
	ManyCPU      = "many_handlers_server_cpu_us"
	SortedMS     = "sorted_ms"         // until all ready messages were sorted
	SortedBytes  = "sorted_bytes"      // that a message takes above its payload
	FirstMS      = "first_of_other_ms" // until the first message of another key started

	// Thousands of instructions of the server for a call.
	NearKIr   = "near_send_kir"
	FarKIr    = "far_send_kir"
	SpreadKIr = "spread_send_kir"
	ClaimKIr  = "claim_kir"
	AckKIr    = "ack_kir"
	HandleKIr = "claim_and_ack_kir"
	LifeKIr   = "life_kir"
)

// labels describe the values that String shows, in its order. Values after the empty one are shown unless they are 0.
var labels = [][2]string{
	{PerSecond, "msg/s"}, {P50, "ms late p50"}, {P99, "p99"}, {P999, "p99.9"}, {MaxMS, "max"},
	{BytesAbove, "bytes beyond the payload"}, {CommandRate, "commands/s"}, {ServerCPU, "µs of server CPU each"},
	{ClientCPU, "µs of client CPU each"}, {ServerLoad, "ms of server CPU per second"},
	{ClientLoad, "ms of client CPU per second"}, {WorstPing, "ms for a PING of another client at most"},
	{LongestCall, "ms in the longest call"}, {PlainRate, "msg/s in a plain drain"}, {SendUS, "µs a send"},
	{ClaimUS, "µs a claim and ack"}, {CancelUS, "µs a cancel"}, {NearKIr, "kIr a near send"}, {FarKIr, "a far one"},
	{SpreadKIr, "spread"}, {ClaimKIr, "a claim"}, {AckKIr, "an ack"}, {HandleKIr, "both"}, {LifeKIr, "a life"},
	{HandlerCalls, "handler calls each"}, {ScriptCalls, "script calls"}, {ClaimCalls, "claims"},
	{GridP50, "ms off the grid p50"}, {GridP99, "p99"}, {ManyRate, "msg/s with many handlers"},
	{ManyCPU, "µs of server CPU each"}, {SortedMS, "ms until all were sorted"},
	{SortedBytes, "bytes beyond the payload then"}, {FirstMS, "ms until the first of another key"},
	{},
	{Doubles, "delivered twice"}, {Early, "early by this machine's clock"}, {Lost, "lost"},
	{Unfinished, "not handled in time"},
}

// String shows the values in one line.
func (v Values) String() string {
	var parts []string
	zeros := true
	for _, l := range labels {
		value, has := v[l[0]]
		if zeros = zeros && l[0] != ""; has && (zeros || value != 0) {
			parts = append(parts, Number(value)+" "+l[1])
		}
	}
	return strings.Join(parts, "  ")
}

// Number formats v with three significant digits and commas between thousands.
func Number(v float64) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return "0"
	}
	digits := 3 - int(math.Ceil(math.Log10(math.Abs(v))))
	unit := math.Pow(10, float64(-digits))
	text := strconv.FormatFloat(math.Round(v/unit)*unit, 'f', max(0, digits), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	whole, fraction, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	return whole
}
