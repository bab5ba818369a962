//go:build unix

package chaos

// around has the facts of the journals about the surroundings of the handlers: watchers, locks, commands to workers,
// calls for groups and limits of queues.
type around struct {
	pids      map[int64][]string // actors by process id
	pidOf     map[string]int64
	continued map[string][]int64 // when processes continued after a stop

	open      map[streamKey]*stream // since the last gap
	streams   []*stream
	streamsOf map[streamKey][]*stream // by queue and process
	missed    int64
	gaps      int

	locks  lockHistory
	fleet  fleetHistory
	groups groupHistory
	flows  flowHistory

	changes int // of numbers of shards

	removals map[string][]window // when a message with a key may have been removed or rescheduled

	faults []int64 // see checker.disturbances
}

func newAround() around {
	return around{
		pids: map[int64][]string{}, pidOf: map[string]int64{}, continued: map[string][]int64{},
		open:   map[streamKey]*stream{},
		groups: groupHistory{}, flows: flowHistory{}, removals: map[string][]window{},
	}
}

// aroundKinds are the records that addAround reads.
var aroundKinds = string([]byte{begun, runEvent, watched, watchMissed, beginLocked, endLocked, lockLost, lockCall,
	obeyed, workerEnded, groupChanged, flowSet, keyFlowSet, keyResumed})

// addAround adds a record.
func (ck *checker) addAround(actor string, x record) {
	switch x.kind {
	case begun:
		pid := x.number(1)
		ck.pids[pid], ck.pidOf[actor] = append(ck.pids[pid], actor), pid
	case runEvent:
		ck.fleet.addTelling(x)
		if x.field(0) == "continue" {
			ck.continued[x.field(1)] = append(ck.continued[x.field(1)], x.at)
		}
	case watched:
		ck.addSighting(actor, x)
	case watchMissed:
		ck.addMissed(actor, x)
	case beginLocked, endLocked, lockLost, lockCall:
		ck.locks.addLock(actor, x)
	case obeyed, workerEnded:
		ck.fleet.addWorker(actor, x)
	case groupChanged:
		ck.groups.add(actor, x)
	case flowSet, keyFlowSet:
		ck.flows.add(x)
	case keyResumed:
		ck.flows.addResume(actor, x)
	}
}

// checkAround checks one message.
func (ck *checker) checkAround(m *message, result *Result, violate violator) {
	ck.checkSightings(m, result, violate)
	ck.countHappened(m)
	ck.checkLocked(m, violate)
	ck.checkPaused(m, violate)
	ck.checkGrouped(m, violate)
	ck.addStarts(m, violate)
	ck.addUrgency(m, violate)
	ck.checkSubscribed(m, result, violate)
}

// checkAllAround checks the rules about all messages, after checkAround of each of them.
func (ck *checker) checkAllAround(result *Result) {
	ck.checkStreams(result)
	ck.checkFrozenWatchers(result)
	ck.checkLocks(result)
	ck.checkFleet(result)
	ck.checkGroups(result)
	ck.checkFlows(result)
}
