/// Everything that can go wrong on purpose; each is counted when it happens.
package enum Fault: String, CaseIterable, Sendable {
    // The network.
    case segmentDelayed, segmentSplit, segmentLost, segmentDuplicated, segmentsReordered, connectionReset
    case connectionRefused, halfOpenTowardsGateway, halfOpenTowardsClient, helloDamaged, frameDamaged, handshakeStalled
    // Clients.
    case clientFrozen, clientFrozenUnannounced, clientCrashed, clientStoreFailed, clientReconnectedOverLive
    case clockSkewed, handlerRejected, handlerDeferred, lyingAck, lyingAckTooHigh, lyingFeedback, helloReplayed
    case halfClosed, halfClosedWhileOwed
    case forgetfulHello, staleSessionFrame, stateChanged, tokenChanged, pushModeSwitched, openedNotification
    // The gateway.
    case processCrashed, crashBetweenSyncAndCompletion, tornTailKept, loopCountChanged, clockJumpedForward, clockSlewed
    case syncStalled, readFailed, readDelayed, alarmReadFailed, readsFailForAWhile, storeFull, rowsCooled
    case ephemeralRowsDropped
    case storeRestored, startedWithoutApps
    // Publishers.
    case publishRetriedUnanswered, publishRetriedAnswered, publishConflicting
    case listRetried, taskStopped, messageRevoked
    case broadcastMade, broadcastStopped
    case broadcastDealt, dealRepeated, dealStopped, dealtVendorOnly, dealtVendorFirst, dealtWentLive
    case firstAckPushMade, firstAckWon, siblingRevoked, siblingRefused, crashBeforeSiblingsEnd
    // Receipts.
    case receiptRepeated, receiptOutOfOrder, receiptOfOther, receiptForged, receiptSkewed
    // Feeds.
    case upstreamSentAgain, upstreamHeldBack, feedAnswerLost, feedHomeOutOfReach, followerRestarted, followerAway
    // Senders and the vendor.
    case senderSlow, senderDied, resultUnknownJob, resultTwice, resultContradictory, resultLate, leaseExtended,
        leasedAtExpiry
    case badTokenReported, vendorRejected, vendorAskedForRetry, jobGivenBack
}

/// How often each fault was injected.
package struct FaultCounts: Sendable {
    private var counts = [Int](repeating: 0, count: Fault.allCases.count)

    package init() {}

    mutating func note(_ fault: Fault) { counts[fault.place] += 1 }

    package subscript(_ fault: Fault) -> Int { counts[fault.place] }

    package mutating func add(_ other: FaultCounts) {
        for index in counts.indices { counts[index] += other.counts[index] }
    }
}

extension Fault {
    /// Cases are few and have no payload: the tag is the place in `allCases`.
    fileprivate var place: Int { Int(unsafeBitCast(self, to: UInt8.self)) }
}
