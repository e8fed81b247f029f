/// The injected faults, counted when they happen.
package enum Fault: String, CaseIterable, Sendable {
    case segmentDelayed, segmentSplit, segmentLost, segmentDuplicated, segmentsReordered, connectionReset
    case connectionRefused, halfOpenTowardsGateway, halfOpenTowardsClient, helloDamaged, frameDamaged, handshakeStalled
    case clientFrozen, clientFrozenUnannounced, clientCrashed, clientStoreFailed, clientReconnectedOverLive
    case clockSkewed, handlerRejected, handlerDeferred, lyingAck, lyingAckTooHigh, lyingFeedback, helloReplayed
    case halfClosed, halfClosedWhileOwed
    case forgetfulHello, staleSessionFrame, stateChanged, tokenChanged, pushModeSwitched, openedNotification
    case processCrashed, crashBetweenSyncAndCompletion, tornTailKept, loopCountChanged, clockJumpedForward, clockSlewed
    case syncStalled, readFailed, readDelayed, alarmReadFailed, readsFailForAWhile, storeFull, rowsCooled
    case ephemeralRowsDropped
    case storeRestored, startedWithoutApps
    case publishRetriedUnanswered, publishRetriedAnswered, publishConflicting
    case listRetried, taskStopped, messageRevoked
    case broadcastMade, broadcastStopped
    case broadcastDealt, dealRepeated, dealStopped, dealtVendorOnly, dealtVendorFirst, dealtWentLive
    case firstAckPushMade, firstAckWon, siblingRevoked, siblingRefused, crashBeforeSiblingsEnd
    case receiptRepeated, receiptOutOfOrder, receiptOfOther, receiptForged, receiptSkewed
    case upstreamSentAgain, upstreamHeldBack, feedAnswerLost, feedHomeOutOfReach, followerRestarted, followerAway
    case senderSlow, senderDied, resultUnknownJob, resultTwice, resultContradictory, resultLate, leaseExtended,
        leasedAtExpiry
    case badTokenReported, vendorRejected, vendorAskedForRetry, jobGivenBack
}

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
    /// The cases have no payload, so the tag equals the index in `allCases`.
    fileprivate var place: Int { Int(unsafeBitCast(self, to: UInt8.self)) }
}
