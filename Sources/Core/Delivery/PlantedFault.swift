/// Deliberate bugs at places where a developer could make them.
///
/// The simulation must catch each one.
///
/// Only a debug build can enable a fault (`ShardLimits.planted`). `isPlanted` is constant `false` in a release build.
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
    /// A Hello's positions count even if they belong to another history of the store.
    case otherHistoryCounts
    /// An expired message is not counted among the final states.
    case expiryUncounted
    /// The end of a message that is only on disk does not reduce the app's queued bytes.
    case coldBytesStay
    /// A start does not sum up the queued bytes.
    case queuedBytesForgotten

    // Sessions and the live stream.
    /// Frames of a replaced session still count: the generation is not checked.
    case generationIgnored
    /// A Hello's timestamp need not increase: an attacker can replay a captured Hello.
    case timestampIgnored
    /// The window admits one message too many.
    case windowMiscounted
    /// Messages are sent before the Welcome or the UpdateResult is sent.
    case gateIgnored
    /// A device that half-closes its connection does not get the results of its updates.
    case updatesNotOwed
    /// The shard does not resend in-flight messages that the client may have dropped.
    case recalledNotResent
    /// The offline flag is computed once, at acceptance.
    case offlineFlagOnce
    /// A session whose ack is overdue still counts as reachable.
    case suspectCountsAsReachable
    /// After a restart the shard assigns the sequences of the previously reserved block again.
    case sequenceReused

    // Durability.
    /// Answers leave before their batch is synced.
    case answerBeforeSync
    /// A message is sent before its own batch is synced.
    case deliverBeforeSync
    /// The shard returns a lease although an ack cancelled the job before the commit.
    case overtakenLeaseShown
    /// The request id is not written with its message.
    case requestForgotten
    /// A client's reason is stored at full length, so the row exceeds its size limit.
    case reasonUncut

    // Time.
    /// Expiry is off by one: the shard still sends and leases a message at its expiry time.
    case expiryOffByOne
    /// The shard does not retry an alarm whose row could not be read.
    case alarmLost

    // Queues.
    /// A new message does not collapse the older messages under its key.
    case collapseKeepsOlder
    /// Overflow ends messages that are in flight.
    case overflowDropsInFlight

    // Jobs.
    /// Strategy 3 reaches the vendor.
    case liveOnlyReachesVendor
    /// Strategy 4 fails the message instead of moving it to the live stream.
    case vendorFirstNeverLive
    /// A replaced broadcast is sent after the broadcast that replaced it has ended.
    case replacedCastSent
    /// Strategy 4 ends a message on the vendor's acceptance although the alert carried only part of it.
    case acceptedPartLost
    /// A tap ends a message although the alert carried only part of it.
    case partEndsWhenOpened
    /// Jobs are not held while their device is reachable.
    case jobsNotHeld
    /// A lapsed lease does not make its job due again.
    case lapsedLeaseLost
    /// A late result other than `accepted` counts.
    case lateResultCounts
    /// `badToken` quarantines the device's current token instead of the leased one.
    case currentTokenQuarantined
    /// Each lease changes the badge again.
    case badgePerLease
    /// A job is leased before the settings of its app are known.
    case unknownAppLeased
    /// The alarm of a message on disk does not load the due job that the message's row implies.
    case impliedJobLost
    /// The alarm of a message on disk makes a due job although the job has its own row.
    case successorIgnored

    // Receipts.
    /// A repeated report of an event counts again.
    case receiptCountsTwice

    // Tasks.
    /// A repeated list call sends the message again.
    case taskReachesTwice
    /// A revoke does not end the old task's pending message.
    case revokeLeavesPending

    // Broadcasts.
    /// A broadcast reaches every connected device, whatever its tags.
    case broadcastIgnoresTags
    /// A broadcast's message is sent before its ledger row is synced.
    case broadcastBeforeSync
    /// The shard evaluates a broadcast again for a reconnecting device without reading the ledger.
    case broadcastLedgerIgnored
    /// A stop does not end the broadcast for devices that have not received it.
    case broadcastGoesOnAfterStop
    /// The enumerator makes a job for each device, also if the broadcast was already evaluated for the device.
    case enumeratorAlertsAll
    /// A fanned-out broadcast reaches devices that registered after it.
    case dealtToNewcomers
    /// A fan-out skips a device whose record could not be read.
    case dealtPastUnread

    // First acks.
    /// A first ack does not end the messages of the sibling devices.
    case siblingStays
    /// After a first ack, a late message for a sibling device is accepted.
    case siblingLetIn

    // Feeds.
    /// An upstream message is not deduplicated by its number.
    case upstreamNumberForgotten
    /// An upstream message is answered before it is on disk.
    case upstreamAnsweredEarly
    /// Events that the feed's home refused are removed as if the feed had them.
    case eventsLeftUntold
    /// An ack removes one item too many.
    case feedTrimmedBeyondAck
}

extension ShardCore {
    @inline(__always) func isPlanted(_ fault: PlantedFault) -> Bool {
        #if DEBUG
        limits.planted == fault
        #else
        false
        #endif
    }
}
