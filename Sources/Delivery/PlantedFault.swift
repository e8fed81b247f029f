/// Deliberate bugs, each at the place where it could really be made: the simulation has to catch every one.
///
/// Only a debug build can switch one on (`ShardLimits.planted`); in a release build the question is answered "no" at
/// compile time and nothing is left of it.
public enum PlantedFault: String, CaseIterable, Sendable {
    // Acks and final states.
    /// An ack deletes the message's row but not its job.
    case ackKeepsJob
    /// An ack settles what was never sent in its session.
    case ackOfUnsentCounts
    /// An ack above the highest sequence ever given is not refused.
    case ackAboveHighestAccepted
    /// A Hello's positions settle nothing.
    case positionsIgnored
    /// An expired message is not counted among the final states.
    case expiryUncounted

    // Sessions and the live stream.
    /// An ended session still speaks for its device: the generation is not checked.
    case generationIgnored
    /// A Hello's timestamp need not increase: a captured one can be said again.
    case timestampIgnored
    /// The window admits one message too many.
    case windowMiscounted
    /// Messages are sent before the Welcome or the UpdateResult is out.
    case gateIgnored
    /// What was in flight is not sent again after the client may have dropped it.
    case recalledNotResent
    /// The offline flag is computed once, at acceptance.
    case offlineFlagOnce
    /// A session whose ack is overdue still counts as reachable.
    case suspectCountsAsReachable
    /// A restart goes on with sequences of the block that was reserved before it.
    case sequenceReused

    // Durability.
    /// Answers leave before their batch is synced.
    case answerBeforeSync
    /// A message is sent before its own batch is synced.
    case deliverBeforeSync
    /// A lease that an ack overtook is shown all the same.
    case overtakenLeaseShown
    /// The request id is not written with its message.
    case requestForgotten
    /// A client's reason is stored as long as it came: the row passes its bound.
    case reasonUncut

    // Time.
    /// Expiry is off by one: what ends now is still sent and leased.
    case expiryOffByOne
    /// An alarm whose reading failed is not tried again.
    case alarmLost

    // Queues.
    /// Collapse passes over the older messages.
    case collapseKeepsOlder
    /// Overflow ends messages that are in flight.
    case overflowDropsInFlight

    // Jobs.
    /// Strategy 3 reaches the vendor.
    case liveOnlyReachesVendor
    /// Strategy 4 fails where the live channel should go on.
    case vendorFirstNeverLive
    /// Jobs are not held back while their device is reachable.
    case jobsNotHeld
    /// A lease that lapsed does not return its job.
    case lapsedLeaseLost
    /// A late result other than `accepted` counts.
    case lateResultCounts
    /// `badToken` quarantines whatever token is current.
    case currentTokenQuarantined
    /// The badge is applied with every lease.
    case badgePerLease

    // Tasks.
    /// A repeated list call sends the message again.
    case taskReachesTwice
    /// A revoke leaves the old task's pending message where it is.
    case revokeLeavesPending

    // Broadcasts.
    /// A broadcast reaches whoever is there, whatever its tags.
    case broadcastIgnoresTags
    /// A broadcast's message is sent before its ledger row is synced.
    case broadcastBeforeSync
    /// A device that returns is met again with what it has had: the ledger is not asked.
    case broadcastLedgerIgnored
    /// A stop leaves those alone who have not had the broadcast yet.
    case broadcastGoesOnAfterStop
    /// The enumerator makes a job for whoever it finds, behind or not.
    case enumeratorAlertsAll
    /// A broadcast that is dealt out is dealt to devices that registered after it, too.
    case dealtToNewcomers
    /// A device that could not be read is passed over when a broadcast is dealt out.
    case dealtPastUnread

    // First acks.
    /// A sibling's message is not ended.
    case siblingStays
    /// A sibling's message that is still on its way when it is ended is let in.
    case siblingLetIn
}

extension Shard {
    /// True in a debug build that has planted this fault.
    @inline(__always) func isPlanted(_ fault: PlantedFault) -> Bool {
        #if DEBUG
        limits.planted == fault
        #else
        false
        #endif
    }

    /// Whether something with this end is over.
    @inline(__always) func isOver(_ end: GatewayTime) -> Bool {
        isPlanted(.expiryOffByOne) ? end < now : end <= now
    }
}
