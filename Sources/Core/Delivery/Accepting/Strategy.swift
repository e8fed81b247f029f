// The strategies of a message, and every decision that depends on a strategy: pure functions over small values.
//
// Each function switches over all strategies without a default. A new strategy needs a case here, a number in the parsers
// (`PushSettings`, `NativePublish`) and a row in docs/Semantics.md, "Strategies and final states". The compiler reports each
// function that does not handle the new case. No other file names a strategy (Tests/Checks/check-strategies.sh).

package import Wire

/// The channels of a message and their order (docs/Semantics.md, "Strategies and final states").
package enum Strategy: UInt8, Sendable, CaseIterable, Codable {
    case liveElseVendor = 1, vendorOnly, liveOnly, vendorElseLive

    /// The strategy of a publish that names none.
    package static let standard = Strategy.liveElseVendor
    /// The strategy of a revoke; a vendor cannot withdraw an alert that it has shown.
    package static let ofRevoke = Strategy.liveOnly
}

/// The strategies of single vendors (Getui's `settings.strategy`), four bits each; other vendors use the message's strategy.
package struct VendorStrategies: Equatable, Sendable {
    package private(set) var word: UInt64 = 0

    package init() {}

    /// - Returns: `nil` if one of the values is no strategy.
    package init?(word: UInt64) {
        self.word = word
        for shift in stride(from: UInt64(0), to: 64, by: 4) {
            let value = UInt8(truncatingIfNeeded: word >> shift & 15)
            guard value == 0 || Strategy(rawValue: value) != nil else { return nil }
        }
    }

    package var isEmpty: Bool { word == 0 }

    package subscript(channel: VendorChannel) -> Strategy? {
        get { Strategy(rawValue: UInt8(truncatingIfNeeded: word >> (UInt64(channel.rawValue) * 4) & 15)) }
        set {
            let shift = UInt64(channel.rawValue) * 4
            word = word & ~(15 << shift) | UInt64(newValue?.rawValue ?? 0) << shift
        }
    }

    /// Whether a broadcast with these strategies may travel in stream 1.
    var areStreamed: Bool { VendorChannel.allCases.allSatisfy { self[$0]?.isStreamed != false } }
}

// MARK: The fallback in the answer

extension Strategy {
    package typealias Fallback = PublishOutcome.Fallback
    package typealias FallbackReason = PublishOutcome.FallbackReason

    /// Returns why the message gets no handoff job; `.applies` if it gets one.
    package func fallbackReason(timeToLive: Int64, hasContent: Bool, hasToken: Bool) -> FallbackReason {
        switch self {
        case .liveOnly: return .strategy
        // TTL 0 allows only one live attempt.
        case .liveElseVendor: if timeToLive == 0 { return .timeToLive }
        // With TTL 0 the vendor makes the one attempt.
        case .vendorOnly, .vendorElseLive: break
        }
        return !hasContent ? .noContent : hasToken ? .applies : .noToken
    }

    /// Returns whether content that the vendor omits would never reach the device because only the vendor carries the message.
    package func losesWhatVendorLeavesOut(timeToLive: Int64) -> Bool {
        switch self {
        case .vendorOnly: true
        case .vendorElseLive: timeToLive <= 0
        // A reachable device gets the message live. An unreachable one gets it from its queue, unless storage is off.
        case .liveElseVendor, .liveOnly: false
        }
    }

    /// Whether a message may stay pending after its vendor failed, until the follow-up channel's sender gets it.
    package var allowsFollowUp: Bool {
        switch self {
        case .liveElseVendor, .vendorOnly: true
        // `.liveOnly` has no vendor, and `.vendorElseLive` continues on the live channel.
        case .liveOnly, .vendorElseLive: false
        }
    }

    /// Returns the fallback reason of a task whose devices are not known yet; `.applies`: it depends on each device.
    package func fallbackReason(ofTaskWith timeToLive: Int64, hasContent: Bool) -> FallbackReason {
        switch self {
        case .liveOnly: return .strategy
        case .liveElseVendor, .vendorOnly, .vendorElseLive:
            guard hasContent else { return .noContent }
            return fallbackReason(timeToLive: timeToLive, hasContent: true, hasToken: true)
        }
    }

    /// Returns the fallback state of the original publish answer, derived from the message's row.
    package func answered(
        isArmed: Bool, wasReachable: Bool, table: StoreKey.Table, timeToLive: Int64, hasContent: Bool
    ) -> (state: Fallback, reason: FallbackReason) {
        switch self {
        case .liveElseVendor, .liveOnly:
            if isArmed { return (wasReachable ? .armed : .due, .applies) }
        case .vendorOnly, .vendorElseLive:
            // A message that went live after the vendor failed also had a job.
            if isArmed || table == .message { return (.due, .applies) }
        }
        return (.none, fallbackReason(timeToLive: timeToLive, hasContent: hasContent, hasToken: false))
    }
}

// MARK: Acceptance

package struct Submission {
    package var now: GatewayTime
    /// Milliseconds from acceptance; 0: one live attempt; −1: no offline storage.
    package var timeToLive: Int64
    package var hasContent: Bool
    package var hasToken: Bool
    package var isReachable: Bool
    package var isPushModeOff: Bool
    /// Whether the message is one of several; without a usable token it then ends as `failed` instead of being refused.
    package var isBulk: Bool
    /// The time in ms that the device has for its ack.
    package var liveDeadline: Int64
    /// The time in ms for which senders may lease the job of a message that is not stored for its device.
    package var leasable: Int64

    package init(
        now: GatewayTime, timeToLive: Int64, hasContent: Bool, hasToken: Bool, isReachable: Bool, isPushModeOff: Bool,
        isBulk: Bool, liveDeadline: Int64, leasable: Int64
    ) {
        (self.now, self.timeToLive, self.hasContent, self.hasToken) = (now, timeToLive, hasContent, hasToken)
        (self.isReachable, self.isPushModeOff, self.isBulk) = (isReachable, isPushModeOff, isBulk)
        (self.liveDeadline, self.leasable) = (liveDeadline, leasable)
    }
}

package struct Acceptance {
    /// The message's table; `.vendorMessage` without a place in the live stream.
    package var table = StoreKey.Table.message
    package var expiresAt: GatewayTime = 0
    /// The end of the live attempt; 0: no attempt.
    package var fallbackAt: GatewayTime = 0
    package var isLive = false
    /// Whether the message has a job, due at `fallbackAt` or immediately.
    package var isArmed = false
    package var fallback = PublishOutcome.Fallback.none
    package var reason = PublishOutcome.FallbackReason.applies
    package var endsAs: FinalState?
    package var endReason = ""
}

extension Strategy {
    /// Returns how the shard accepts a message; see docs/Semantics.md, "Time to live and clocks", too.
    ///
    /// - Returns: `nil` if the message is refused because vendor content or a token is missing.
    package func accept(_ submission: Submission) -> Acceptance? {
        var plan: Acceptance
        switch self {
        case .liveElseVendor, .liveOnly: plan = acceptLive(submission)
        case .vendorOnly, .vendorElseLive:
            plan = acceptForVendor(submission)
            if plan.endsAs != nil, !submission.isBulk { return nil }
        }
        if plan.fallback != .none, submission.isPushModeOff { (plan.fallback, plan.reason) = (.none, .pushModeOff) }
        return plan
    }

    private func acceptLive(_ submission: Submission) -> Acceptance {
        let now = submission.now
        var plan = Acceptance()
        plan.isLive = submission.isReachable
        plan.reason = fallbackReason(
            timeToLive: submission.timeToLive, hasContent: submission.hasContent, hasToken: submission.hasToken)
        plan.isArmed = plan.reason == .applies
        if plan.isArmed { plan.fallback = submission.isReachable ? .armed : .due }
        let attemptEnds = now &+ submission.liveDeadline
        if submission.timeToLive > 0 {
            plan.expiresAt = now &+ submission.timeToLive
            if submission.isReachable {
                plan.fallbackAt =
                    plan.isArmed ? max(now, min(attemptEnds, plan.expiresAt &- Shard.lastFallback)) : attemptEnds
            }
        } else if submission.isReachable {
            plan.fallbackAt = attemptEnds
            plan.expiresAt = plan.isArmed ? attemptEnds &+ submission.leasable : attemptEnds
        } else if plan.isArmed {
            // The message is not stored for the device, so only the vendor can carry it.
            plan.table = .vendorMessage
            plan.expiresAt = now &+ submission.leasable
        } else {
            plan.expiresAt = now
            plan.endsAs = .expired
        }
        return plan
    }

    private func acceptForVendor(_ submission: Submission) -> Acceptance {
        var plan = Acceptance()
        plan.table = .vendorMessage
        plan.expiresAt =
            submission.now &+ (submission.timeToLive > 0 ? submission.timeToLive : submission.leasable)
        plan.reason = fallbackReason(
            timeToLive: submission.timeToLive, hasContent: submission.hasContent, hasToken: submission.hasToken)
        plan.isArmed = plan.reason == .applies
        if plan.isArmed {
            plan.fallback = .due
        } else {
            (plan.endsAs, plan.endReason) = (.failed, "noToken")
        }
        return plan
    }
}

// MARK: The vendor's report

/// A message whose job has ended at the vendor.
package struct VendorPart {
    /// Whether the message has a place in a stream, from acceptance or since the vendor failed.
    package var isStreamed: Bool
    /// Whether the TTL is 0 or −1.
    package var isOneShot: Bool
    package var isOver: Bool
    /// Whether a vendor accepted the message before.
    package var wasAlerted: Bool
    /// See `PublishCommand.vendorCarriesAll`.
    package var carriesAll: Bool

    package init(isStreamed: Bool, isOneShot: Bool, isOver: Bool, wasAlerted: Bool, carriesAll: Bool) {
        (self.isStreamed, self.isOneShot, self.isOver, self.wasAlerted) = (isStreamed, isOneShot, isOver, wasAlerted)
        self.carriesAll = carriesAll
    }

    init(_ row: JobRow, now: GatewayTime) {
        isStreamed = row.facts.table != .vendorMessage
        isOneShot = row.facts.isOneShot
        isOver = row.facts.expiresAt <= now
        wasAlerted = row.alertedAt > 0
        carriesAll = row.facts.vendorCarriesAll
    }
}

package enum VendorVerdict: Equatable {
    case ends(FinalState)
    /// The message gets a place in the live stream, with the offline flag.
    case goesLive
    /// The message stays pending until its ack or expiry.
    case stays
}

extension Strategy {
    package func vendorAccepted(_ part: VendorPart) -> VendorVerdict {
        if part.isOver { return .ends(.handedOff) }
        switch self {
        case .liveElseVendor, .liveOnly: return .stays
        case .vendorOnly: return .ends(.handedOff)
        case .vendorElseLive:
            // The message is already in the live stream: the vendor accepted it late, under a lapsed lease.
            if part.isStreamed { return .stays }
            // The part that the alert did not carry is delivered when the device reconnects.
            return part.carriesAll || part.isOneShot ? .ends(.handedOff) : .goesLive
        }
    }

    /// Returns the decision after the vendor rejected the message, all attempts failed, or no sender leased its job in time.
    package func vendorFailed(_ part: VendorPart) -> VendorVerdict {
        if part.isOver { return .ends(.atExpiry(wasAlerted: part.wasAlerted)) }
        switch self {
        case .liveElseVendor, .liveOnly: return .stays
        case .vendorOnly: return .ends(.failed)
        case .vendorElseLive: return part.isStreamed ? .stays : part.isOneShot ? .ends(.failed) : .goesLive
        }
    }

    /// Returns whether the vendor counts as failed if no sender leases the job in time (`vendorFirstPatience`).
    package func mustBeLeasedInTime(in table: StoreKey.Table) -> Bool {
        switch self {
        // A job that is never leased ends with its message's expiry.
        case .liveElseVendor, .vendorOnly, .liveOnly: false
        case .vendorElseLive: table == .vendorMessage
        }
    }

    /// Returns whether a due job is held while its device can get the message live.
    package func holdsJob(in table: StoreKey.Table) -> Bool {
        switch self {
        case .liveElseVendor: table != .vendorMessage
        // Vendor-first jobs are not held; `.liveOnly` has no jobs.
        case .vendorOnly, .liveOnly, .vendorElseLive: false
        }
    }

    /// Returns the alarm group of a due job that its app has no room for.
    package func group(in table: StoreKey.Table) -> AlarmGroup.Kind {
        mustBeLeasedInTime(in: table) ? .vendorTimeout : .due
    }
}

extension FinalState {
    package static func atExpiry(wasAlerted: Bool) -> FinalState { wasAlerted ? .handedOff : .expired }
}

// MARK: Feedback

extension Strategy {
    /// Returns whether an open ends the message as `opened`; otherwise the open is a trace step.
    ///
    /// An alert that carried only part of the message must not end it, because the other part would be lost.
    package func endsWhenOpened(carriesAll: Bool) -> Bool {
        switch self {
        case .liveElseVendor: carriesAll
        case .vendorOnly, .liveOnly, .vendorElseLive: false
        }
    }
}

// MARK: Broadcasts

extension Strategy {
    /// Whether a broadcast travels in stream 1; otherwise a scan fans it out as messages of single devices.
    package var isStreamed: Bool {
        switch self {
        case .liveElseVendor, .liveOnly: true
        // These strategies begin with a vendor job for each device.
        case .vendorOnly, .vendorElseLive: false
        }
    }

    /// Returns the strategy of a streamed broadcast's message that has only its ledger row.
    static func ofBroadcast(withReason reason: FallbackReason) -> Strategy {
        liveElseVendor.ofBroadcast(withReason: reason)
    }

    /// Returns the strategy of a broadcast's message at its acceptance, from the fallback reason in the ledger row.
    ///
    /// `self` is the strategy for the device's present tokens, which may have changed since the acceptance.
    func ofBroadcast(withReason reason: FallbackReason) -> Strategy {
        switch reason {
        case .strategy: .liveOnly
        case .applies, .noToken, .noContent, .timeToLive, .pushModeOff: self == .liveOnly ? .liveElseVendor : self
        }
    }
}

// MARK: A planted fault

extension Strategy {
    /// The strategy that replaces this one under the planted fault `liveOnlyReachesVendor`.
    var reachingVendor: Strategy {
        switch self {
        case .liveElseVendor, .liveOnly: .liveElseVendor
        case .vendorOnly: .vendorOnly
        case .vendorElseLive: .vendorElseLive
        }
    }
}
