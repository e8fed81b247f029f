package import Delivery
package import Wire

/// The metrics of one loop, without locks or atomics, because only the loop's thread writes them.
///
/// A scrape gets a copy-on-write copy: the loop's next write after the scrape copies the arrays once. Counters never decrease.
package struct LoopMetrics: Sendable, Equatable {
    private var counters: [UInt64]
    private var timers: [MetricHistogram]

    package init() {
        counters = Array(repeating: 0, count: LoopCounter.allCases.count)
        timers = Array(repeating: MetricHistogram(), count: LoopTimer.allCases.count)
    }

    package mutating func count(_ counter: LoopCounter, _ amount: Int = 1) {
        counters[counter.rawValue] &+= UInt64(truncatingIfNeeded: amount)
    }

    package mutating func observe(_ timer: LoopTimer, microseconds: Int64) {
        timers[timer.rawValue].observe(microseconds)
    }

    package subscript(_ counter: LoopCounter) -> UInt64 { counters[counter.rawValue] }
    package subscript(_ timer: LoopTimer) -> MetricHistogram { timers[timer.rawValue] }
}

/// The counters of a loop; each is a sample that `MetricCatalogue` declares.
package enum LoopCounter: Int, Sendable, CaseIterable {
    case deviceAccepted, senderAccepted
    case deviceDisplaced, senderDisplaced, deviceTurnedAway, senderTurnedAway, devicesRelayed
    case proxyHeadersRefused, balancerProbes
    case newcomersWaited, newcomersSentAway
    case publishPauses
    case flappingNoted, flappingRefused
    case handshakeDone, handshakeWaited, handshakeRefused, handshakeDisplaced, handshakeTimedOut
    case handshakeForCertificate, handshakeForPeer, handshakeForEnd, handshakeForForm
    case overDevices, overPublishes, overBytes, overQueued, overQueuedBytes, overStored
    case bytesReceived, bytesSent, deliversSent, turns, mailboxRefusals, coldReads, storeBreaches

    case refusedUnknownDevice, refusedQueueFull, refusedNoToken, refusedConflict, refusedPending, refusedBusy,
        refusedStore, refusedIgnored, refusedStopped, refusedInvalid

    case closedByPeer, closedForHeartbeat, closedForHello, closedForSlowReader, closedForStop, closedForOverload,
        closedForClock, closedForProof, closedForReplacement, closedForProtocol, closedForStore, closedOtherwise

    case receiptRecorded, receiptRepeated, receiptIgnored, receiptRetry
    case receiptRefused, receiptSkewed, receiptBusy

    case http2xx, http4xx, http5xx, admin2xx, admin4xx, admin5xx

    package static func closed(_ code: CloseCode) -> LoopCounter {
        switch code {
        case .goodbye: .closedByPeer
        case .heartbeatTimeout, .suspectTimeout: .closedForHeartbeat
        case .helloTimeout: .closedForHello
        case .slowReader: .closedForSlowReader
        case .shuttingDown: .closedForStop
        case .overloaded: .closedForOverload
        case .clockSkew: .closedForClock
        case .badProof, .unknownDevice, .unknownApp, .plaintextRegistration: .closedForProof
        case .replaced: .closedForReplacement
        case .wrongListener, .unexpectedFrame, .frameTooLarge, .malformed, .badAck, .floods: .closedForProtocol
        case .storeUnavailable: .closedForStore
        case .moved, .appDisabled, .internalError: .closedOtherwise
        }
    }

    package static func event(_ verdict: EventVerdict) -> LoopCounter {
        switch verdict {
        case .recorded: .receiptRecorded
        case .repeated: .receiptRepeated
        case .ignored: .receiptIgnored
        case .retry: .receiptRetry
        }
    }

    /// Returns the counter for a refused publish; the shard counts accepted ones.
    package static func refused(_ code: PublishOutcome.Code) -> LoopCounter? {
        switch code {
        case .accepted: nil
        case .unknownDevice: .refusedUnknownDevice
        case .queueFull: .refusedQueueFull
        case .noToken: .refusedNoToken
        case .requestConflict: .refusedConflict
        case .requestPending: .refusedPending
        case .busy: .refusedBusy
        case .storeFailed: .refusedStore
        case .ignored: .refusedIgnored
        case .stopped: .refusedStopped
        case .tooLarge: .refusedInvalid
        }
    }
}

package enum LoopTimer: Int, Sendable, CaseIterable {
    case request
}
