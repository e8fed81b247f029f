internal import Delivery
internal import Wire

/// The steps that make a device the owner of a token.
///
/// The previous owner loses the token first.
///
/// A crash between two steps leaves the token with one owner or none. The alarm of the claimant's row repeats the claim, or its
/// next Hello does (docs/build/Directory.md, "Owners of tokens").
struct TokenClaiming: Sendable {
    private enum Phase {
        case taking
        /// The row names another device, which registered the token earlier.
        case losing(AliasEntry)
        /// The row names another device, which registered the token later.
        case yielding
        case confirming
    }

    /// The number of owner changes between two steps before the claim fails; it is repeated later.
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
        // A deleted device has no token, so the step is complete.
        case (.losing(let owner), .done), (.losing(let owner), .unknown): return take(lost: owner)
        case (.yielding, .done), (.yielding, .unknown): return end(.notHeld)
        case (.confirming, .done), (.confirming, .unknown): return end(.done)
        default: return end(.failed)
        }
    }
}
