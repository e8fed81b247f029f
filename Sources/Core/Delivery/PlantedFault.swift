/// Deliberate bugs, each where a person could really make it: the simulation has to catch every one.
///
/// Only a debug build can switch one on (`ShardLimits.planted`). A release build answers "no" at compile time and keeps
/// nothing of it.
package enum PlantedFault: String, CaseIterable, Sendable {
    // Acks and final states.
    /// An ack deletes the message's row but not its job.
    case ackKeepsJob
    /// An ack settles a message that was never sent in its session.
    case ackOfUnsentCounts
    /// An ack above the highest sequence ever given is not refused.
    case ackAboveHighestAccepted
    /// A Hello's positions settle nothing.
    case positionsIgnored
    /// A Hello's positions count whichever history of the store gave them.
    case otherHistoryCounts
    /// An expired message is not counted among the final states.
    case expiryUncounted
    /// The end of a message of which only the row was there leaves its bytes among those that are queued.
    case coldBytesStay
    /// A start does not add up the bytes that are queued.
    case queuedBytesForgotten

    // Sessions and the live stream.
    /// An ended session still speaks for its device: the generation is not checked.
    case generationIgnored
    /// A Hello's timestamp need not increase: an attacker can replay a captured Hello.
    case timestampIgnored
    /// The window admits one message too many.
    case windowMiscounted
    /// Messages are sent before the Welcome or the UpdateResult is out.
    case gateIgnored
    /// A device that ends its half of the connection is not owed the results of its updates.
    case updatesNotOwed
    /// The shard does not send messages in flight again after the client may have dropped them.
    case recalledNotResent
    /// The offline flag is computed once, at acceptance.
    case offlineFlagOnce
    /// A session whose ack is overdue still counts as reachable.
    case suspectCountsAsReachable
    /// After a restart the shard gives sequences of the block that it had reserved before.
    case sequenceReused

    // Durability.
    /// Answers leave before their batch is synced.
    case answerBeforeSync
    /// A message is sent before its own batch is synced.
    case deliverBeforeSync
    /// The sender gets a lease although an ack came first.
    case overtakenLeaseShown
    /// The request id is not written with its message.
    case requestForgotten
    /// A client's reason is stored at full length: the row exceeds its bound.
    case reasonUncut

    // Time.
    /// Expiry is off by one: the shard still sends and leases a message at its end.
    case expiryOffByOne
    /// The shard does not retry an alarm whose row a reader could not read.
    case alarmLost

    // Queues.
    /// Collapse leaves the older messages as they are.
    case collapseKeepsOlder
    /// Overflow ends messages that are in flight.
    case overflowDropsInFlight

    // Jobs.
    /// Strategy 3 reaches the vendor.
    case liveOnlyReachesVendor
    /// Strategy 4 fails where the live channel should go on.
    case vendorFirstNeverLive
    /// A broadcast that a newer one under its key replaced is sent when that one is over.
    case replacedCastSent
    /// Strategy 4 ends with the vendor's word although the alert did not carry all of the message.
    case acceptedPartLost
    /// A tap ends a message whose alert did not carry all of it.
    case partEndsWhenOpened
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
    /// A job is leased before the settings of its app are there.
    case unknownAppLeased
    /// The alarm of a cold message does not bring back the due job that the message's row implies.
    case impliedJobLost
    /// That alarm makes a due job although the job has a row of its own.
    case successorIgnored

    // Receipts.
    /// An event that a device reports again counts again.
    case receiptCountsTwice

    // Tasks.
    /// A repeated list call sends the message again.
    case taskReachesTwice
    /// A revoke leaves the old task's pending message where it is.
    case revokeLeavesPending

    // Broadcasts.
    /// A broadcast reaches every connected device, whatever its tags.
    case broadcastIgnoresTags
    /// A broadcast's message is sent before its ledger row is synced.
    case broadcastBeforeSync
    /// The shard evaluates a broadcast again for a device that returns, without a look at the ledger.
    case broadcastLedgerIgnored
    /// A stop does not end the broadcast for devices that have not had it yet.
    case broadcastGoesOnAfterStop
    /// The enumerator makes a job for every device that it finds, whether the device is behind or not.
    case enumeratorAlertsAll
    /// A broadcast that a scan sends as ordinary messages reaches devices that registered after it, too.
    case dealtToNewcomers
    /// Such a scan passes over a device whose record a reader could not read.
    case dealtPastUnread

    // First acks.
    /// A sibling's message is not ended.
    case siblingStays
    /// A sibling's message that is still on its way when the siblings end is accepted.
    case siblingLetIn

    // Feeds.
    /// The number of a device's upstream message is not looked for among those that were taken.
    case upstreamNumberForgotten
    /// A device learns that its upstream message was taken before it is on disk.
    case upstreamAnsweredEarly
    /// Events that the feed's home could not take are taken for told.
    case eventsLeftUntold
    /// An ack removes one item more than it names.
    case feedTrimmedBeyondAck
}

extension ShardCore {
    /// True in a debug build that has planted this fault.
    @inline(__always) func isPlanted(_ fault: PlantedFault) -> Bool {
        #if DEBUG
        limits.planted == fault
        #else
        false
        #endif
    }
}
