import Delivery
import Foundation
import Testing

/// Checks the strategy table against docs/Semantics.md, "Strategies and final states".
@Suite("The table of strategies") struct StrategyRulesTests {
    static let now: GatewayTime = 1_000_000_000

    /// Returns a message with content for a device with a token, unless a test sets other values.
    private static func submission(
        isReachable: Bool, timeToLive: Int64 = 60_000, hasContent: Bool = true, hasToken: Bool = true,
        isPushModeOff: Bool = false, isBulk: Bool = false
    ) -> Submission {
        Submission(
            now: now, timeToLive: timeToLive, hasContent: hasContent, hasToken: hasToken, isReachable: isReachable,
            isPushModeOff: isPushModeOff, isBulk: isBulk, liveDeadline: 10_000, leasable: 60_000)
    }

    private static func part(
        isStreamed: Bool, isOneShot: Bool = false, isOver: Bool = false, wasAlerted: Bool = false,
        carriesAll: Bool = true
    ) -> VendorPart {
        VendorPart(
            isStreamed: isStreamed, isOneShot: isOneShot, isOver: isOver, wasAlerted: wasAlerted,
            carriesAll: carriesAll)
    }

    // MARK: The page

    /// Returns the page's wording of the table's decision for a strategy and a device.
    private func words(_ strategy: Strategy, isReachable: Bool) throws -> String {
        let plan = try #require(strategy.accept(Self.submission(isReachable: isReachable)))
        guard plan.table == .message else {
            #expect(!plan.isLive && plan.isArmed && plan.fallbackAt == 0 && plan.fallback == .due)
            let failed = strategy.vendorFailed(Self.part(isStreamed: false))
            return "a job, due at once; "
                + (failed == .goesLive ? "live and flagged once the vendor has failed" : "never live")
        }
        let isDueLater = plan.isArmed && plan.fallbackAt == Self.now + 10_000
        let job = !plan.isArmed ? "never a job" : isDueLater ? "its job is due when the ack deadline passes" : ""
        if plan.isLive { return "sent; " + job }
        return plan.isArmed ? "queued and flagged; its job is due at once" : "queued and flagged"
    }

    @Test("the page's strategy table matches the functions")
    func page() throws {
        let page = URL(fileURLWithPath: #filePath)
            .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
            .appendingPathComponent("docs/Semantics.md")
        var seen: [Strategy] = []
        for line in try String(contentsOf: page, encoding: .utf8).split(separator: "\n") {
            let cells = line.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
            guard cells.count == 4, let name = cells.first, let digit = name.first?.wholeNumberValue,
                name.dropFirst().hasPrefix(": "), let strategy = Strategy(rawValue: UInt8(digit))
            else { continue }
            seen.append(strategy)
            let reachable = try words(strategy, isReachable: true)
            let unreachable = try words(strategy, isReachable: false)
            #expect(cells[1] == reachable, "\(name), reachable")
            #expect(cells[2] == (reachable == unreachable ? "the same" : unreachable), "\(name), unreachable")
        }
        #expect(seen == Strategy.allCases)
    }

    // MARK: Acceptance

    @Test("TTL 0 makes one live attempt or ends at once, and for the vendor a job leasable for a minute")
    func zero() throws {
        for strategy in [Strategy.liveElseVendor, .liveOnly] {
            let sent = try #require(strategy.accept(Self.submission(isReachable: true, timeToLive: 0)))
            #expect(sent.isLive && !sent.isArmed && sent.fallback == .none && sent.endsAs == nil)
            #expect(sent.fallbackAt == Self.now + 10_000 && sent.expiresAt == Self.now + 10_000)
            #expect(sent.reason == (strategy == .liveOnly ? .strategy : .timeToLive))
            let ended = try #require(strategy.accept(Self.submission(isReachable: false, timeToLive: 0)))
            #expect(ended.endsAs == .expired && ended.endReason.isEmpty && !ended.isArmed)
        }
        for strategy in [Strategy.vendorOnly, .vendorElseLive] {
            let plan = try #require(strategy.accept(Self.submission(isReachable: true, timeToLive: 0)))
            #expect(plan.table == .vendorMessage && plan.isArmed && plan.expiresAt == Self.now + 60_000)
        }
    }

    @Test("TTL −1 makes the same attempt, then a job for a minute, and no offline storage")
    func noStorage() throws {
        let sent = try #require(Strategy.liveElseVendor.accept(Self.submission(isReachable: true, timeToLive: -1)))
        #expect(sent.isLive && sent.isArmed && sent.fallback == .armed && sent.table == .message)
        #expect(sent.fallbackAt == Self.now + 10_000 && sent.expiresAt == Self.now + 70_000)
        let away = try #require(Strategy.liveElseVendor.accept(Self.submission(isReachable: false, timeToLive: -1)))
        #expect(away.table == .vendorMessage && away.fallback == .due && away.expiresAt == Self.now + 60_000)
        let live = try #require(Strategy.liveOnly.accept(Self.submission(isReachable: false, timeToLive: -1)))
        #expect(live.endsAs == .expired)
    }

    @Test("a job is due a second before the expiry at the latest; without a job the attempt has its full deadline")
    func shortTimeToLive() throws {
        for (timeToLive, fallback) in [(5_000, 4_000), (500, 0), (60_000, 10_000)] as [(Int64, Int64)] {
            let submission = Self.submission(isReachable: true, timeToLive: timeToLive)
            #expect(Strategy.liveElseVendor.accept(submission)?.fallbackAt == Self.now + fallback)
            #expect(Strategy.liveOnly.accept(submission)?.fallbackAt == Self.now + 10_000)
        }
    }

    @Test("without content or token 2 and 4 are refused singly and fail in a list, and 1 only waits")
    func nothingForTheVendor() throws {
        for (hasContent, reason) in [(false, Strategy.FallbackReason.noContent), (true, .noToken)] {
            for isReachable in [true, false] {
                var submission = Self.submission(isReachable: isReachable, hasContent: hasContent, hasToken: false)
                let waits = try #require(Strategy.liveElseVendor.accept(submission))
                #expect(waits.reason == reason && waits.fallback == .none && !waits.isArmed && waits.endsAs == nil)
                for strategy in [Strategy.vendorOnly, .vendorElseLive] {
                    submission.isBulk = false
                    #expect(strategy.accept(submission) == nil)
                    submission.isBulk = true
                    let failed = try #require(strategy.accept(submission))
                    #expect(failed.endsAs == .failed && failed.endReason == "noToken" && !failed.isArmed)
                    #expect(failed.reason == reason && failed.fallback == .none)
                }
            }
        }
    }

    @Test("push mode off holds a job and reports that; a strategy without a job keeps its own reason")
    func pushModeOff() throws {
        for strategy in Strategy.allCases {
            let plan = try #require(strategy.accept(Self.submission(isReachable: false, isPushModeOff: true)))
            #expect(plan.fallback == .none)
            #expect(plan.reason == (strategy == .liveOnly ? .strategy : .pushModeOff))
            #expect(plan.isArmed == (strategy != .liveOnly), "the job exists and is held")
        }
    }

    @Test("a stored row yields the original result", arguments: Strategy.allCases)
    func answered(strategy: Strategy) throws {
        for isReachable in [true, false] {
            for timeToLive in [-1, 0, 60_000] as [Int64] {
                for (hasContent, hasToken) in [(true, true), (true, false), (false, false)] {
                    let submission = Self.submission(
                        isReachable: isReachable, timeToLive: timeToLive, hasContent: hasContent, hasToken: hasToken,
                        isBulk: true)
                    let plan = try #require(strategy.accept(submission))
                    let told = strategy.answered(
                        isArmed: plan.isArmed, wasReachable: plan.fallbackAt > 0, table: plan.table,
                        timeToLive: timeToLive, hasContent: hasContent)
                    #expect(told.state == plan.fallback && told.reason == plan.reason)
                }
            }
        }
        // After the move to the live stream the message is not armed, but it had a job.
        guard strategy.vendorFailed(Self.part(isStreamed: false)) == .goesLive else { return }
        let moved = strategy.answered(
            isArmed: false, wasReachable: false, table: .message, timeToLive: 60_000, hasContent: true)
        #expect(moved.state == .due && moved.reason == .applies)
    }

    @Test("a task's result has a fallback reason only if it applies to all its devices")
    func task() {
        for strategy in Strategy.allCases {
            let isLive = strategy == .liveOnly
            func reason(_ timeToLive: Int64, _ hasContent: Bool) -> Strategy.FallbackReason {
                strategy.fallbackReason(ofTaskWith: timeToLive, hasContent: hasContent)
            }
            #expect(reason(60_000, true) == (isLive ? .strategy : .applies))
            #expect(reason(60_000, false) == (isLive ? .strategy : .noContent))
            #expect(reason(0, false) == (isLive ? .strategy : .noContent))
            #expect(reason(0, true) == (isLive ? .strategy : strategy == .liveElseVendor ? .timeToLive : .applies))
        }
    }

    // MARK: The vendor's part

    @Test("an accepted message ends under 2 and 4, and waits for its device under 1")
    func vendorAccepted() {
        let rules: [(Strategy, Bool, VendorVerdict)] = [
            (.liveElseVendor, true, .stays), (.liveElseVendor, false, .stays),
            (.vendorOnly, false, .ends(.handedOff)), (.vendorElseLive, false, .ends(.handedOff)),
            (.vendorElseLive, true, .stays),
        ]
        for (strategy, isStreamed, verdict) in rules {
            #expect(strategy.vendorAccepted(Self.part(isStreamed: isStreamed)) == verdict)
        }
        for strategy in Strategy.allCases {
            for isStreamed in [true, false] {
                let part = Self.part(isStreamed: isStreamed, isOver: true)
                #expect(strategy.vendorAccepted(part) == .ends(.handedOff))
            }
        }
    }

    @Test("a message with an incomplete alert stays for the live channel, or its strategy is refused")
    func partlyCarried() {
        for strategy in Strategy.allCases {
            #expect(!strategy.endsWhenOpened(carriesAll: false))
            for timeToLive in [-1, 0, 1, 60_000] as [Int64] {
                let isOneShot = timeToLive <= 0
                let part = Self.part(isStreamed: false, isOneShot: isOneShot, carriesAll: false)
                let isLost = strategy.losesWhatVendorLeavesOut(timeToLive: timeToLive)
                #expect(isLost == (strategy.vendorAccepted(part) == .ends(.handedOff)), "\(strategy), \(timeToLive)")
            }
        }
        #expect(Strategy.vendorElseLive.vendorAccepted(Self.part(isStreamed: false, carriesAll: false)) == .goesLive)
        #expect(Strategy.vendorElseLive.vendorAccepted(Self.part(isStreamed: true, carriesAll: false)) == .stays)
    }

    @Test("a vendor failure ends the message under 2, makes it live under 4, and leaves it waiting under 1")
    func vendorFailed() {
        let rules: [(Strategy, Bool, Bool, VendorVerdict)] = [
            (.liveElseVendor, true, false, .stays), (.liveElseVendor, false, true, .stays),
            (.vendorOnly, false, false, .ends(.failed)), (.vendorOnly, false, true, .ends(.failed)),
            (.vendorElseLive, false, false, .goesLive), (.vendorElseLive, false, true, .ends(.failed)),
            (.vendorElseLive, true, false, .stays),
        ]
        for (strategy, isStreamed, isOneShot, verdict) in rules {
            let part = Self.part(isStreamed: isStreamed, isOneShot: isOneShot)
            #expect(strategy.vendorFailed(part) == verdict)
        }
        for strategy in Strategy.allCases {
            let never = Self.part(isStreamed: false, isOver: true)
            let alerted = Self.part(isStreamed: false, isOver: true, wasAlerted: true)
            #expect(strategy.vendorFailed(never) == .ends(.expired))
            #expect(strategy.vendorFailed(alerted) == .ends(.handedOff))
        }
    }

    @Test("4 waits for a lease for a limited time, and its due jobs have a separate group")
    func leaseTimeout() {
        for strategy in Strategy.allCases {
            for table in [StoreKey.Table.message, .vendorMessage, .broadcast] {
                let isTimed = strategy == .vendorElseLive && table == .vendorMessage
                #expect(strategy.mustBeLeasedInTime(in: table) == isTimed)
                #expect(strategy.group(in: table) == (isTimed ? .vendorTimeout : .due))
            }
        }
    }

    @Test("only jobs of 1 wait while their device is reachable and can receive the message live")
    func held() {
        for strategy in Strategy.allCases {
            for table in [StoreKey.Table.message, .vendorMessage, .broadcast] {
                #expect(strategy.holdsJob(in: table) == (strategy == .liveElseVendor && table != .vendorMessage))
            }
        }
    }

    @Test("only 1 ends as opened, and only 1 and 3 use the broadcast stream")
    func feedbackAndBroadcasts() {
        #expect(Strategy.allCases.filter { $0.endsWhenOpened(carriesAll: true) } == [.liveElseVendor])
        #expect(Strategy.allCases.filter(\.isStreamed) == [.liveElseVendor, .liveOnly])
    }
}
