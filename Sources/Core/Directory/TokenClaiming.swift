internal import Delivery
internal import Wire

/// One device becomes the owner of a token: the device that had it loses it first.
///
/// So a crash between two steps leaves a token with one owner or with none, and the claim that is repeated with the next
/// Hello completes it (docs/build/Directory.md, "Owners of tokens").
struct TokenClaiming: Sendable {
    private enum Phase {
        case taking
        /// The row names another device, which registered the token earlier.
        case losing(AliasEntry)
        /// The row names another device, which registered the token later.
        case yielding
        case confirming
    }

    /// Owners that may change between two steps before the claim waits for the next Hello.
    private static let roundLimit = 4

    private let name: AliasName
    private let claimant: AliasEntry
    private let base: UInt64
    private var phase = Phase.taking
    private var roundCount = 0
    private(set) var outcome: ItemOutcome?

    init(_ name: AliasName, by claimant: AliasEntry, number: UInt64) {
        (self.name, self.claimant) = (name, claimant)
        base = number * DirectoryOperation.stepsPerItem
    }

    mutating func start() -> [StepToSend] { take(lost: nil) }

    private mutating func take(lost: AliasEntry?) -> [StepToSend] {
        phase = .taking
        return [StepToSend(base, name.bucket, .takeToken(name, claimant, lost: lost))]
    }

    private func lose(_ holder: AliasEntry) -> [StepToSend] {
        [StepToSend(base, holder.bucket, .loseToken(holder.cid, name, stamp: holder.stamp))]
    }

    private mutating func end(_ outcome: ItemOutcome) -> [StepToSend] {
        self.outcome = outcome
        return []
    }

    mutating func receive(_ reply: DirectoryReply) -> [StepToSend] {
        switch (phase, reply) {
        case (.taking, .tokenTaken):
            phase = .confirming
            return [
                StepToSend(base, claimant.bucket, .confirmToken(claimant.cid, name, stamp: claimant.stamp))
            ]
        case (.taking, .tokenHeld(let owner)) where owner.stamp > claimant.stamp:
            phase = .yielding
            return lose(claimant)
        case (.taking, .tokenHeld(let owner)):
            roundCount += 1
            guard roundCount <= Self.roundLimit else { return end(.failed) }
            phase = .losing(owner)
            return lose(owner)
        // A device that is gone has no token either.
        case (.losing(let owner), .done), (.losing(let owner), .unknown): return take(lost: owner)
        case (.yielding, .done), (.yielding, .unknown): return end(.notHeld)
        case (.confirming, .done), (.confirming, .unknown): return end(.done)
        default: return end(.failed)
        }
    }
}
