// Receipts of vendors: reports of phones about a notification. The vendor sends them to the sender service, which forwards them.

internal import Structures
package import Wire

package struct VendorReceipt: Sendable, Codable {
    package enum Kind: UInt8, Sendable, CaseIterable, Codable {
        /// The phone has the notification.
        case delivered = 1
        /// The user opened the notification.
        case clicked
        /// The token is no longer valid: the app was uninstalled, or it has a new token.
        case badToken
    }

    package var message: MessageID
    /// The app and the channel of the credential that the receipt arrived for; `nil`: not known.
    package var app: AppKey?
    package var channel: VendorChannel?
    package var kind: Kind
    /// The token that the vendor names; empty: the token last leased for the message.
    package var token: String
    /// The vendor's time in ms; 0: unknown.
    package var at: GatewayTime

    package init(
        message: MessageID, app: AppKey? = nil, channel: VendorChannel? = nil, kind: Kind, token: String,
        at: GatewayTime
    ) {
        (self.message, self.app, self.channel) = (message, app, channel)
        (self.kind, self.token, self.at) = (kind, token, at)
    }
}

/// Records receipts in order; the verdicts follow when all of them are durable.
///
/// A repeated receipt changes nothing. A receipt is reported as unknown if no sender leased its message, or if the message's app
/// is outside `apps` (`nil`: all).
package struct TakeReceipts: ShardQuestion {
    package typealias Answer = [ResultVerdict]

    package var receipts: [VendorReceipt]
    package var apps: Set<AppKey>?

    package init(receipts: [VendorReceipt], apps: Set<AppKey>?) { (self.receipts, self.apps) = (receipts, apps) }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Answer>) {
        Operation(self, reply).run(on: &shard)
    }

    /// Handles the receipts one after the other, because a device's queue of waiting commands is short.
    private final class Operation {
        private let question: TakeReceipts
        private let reply: ShardReply<Answer>
        private var verdicts: Answer = []
        private var isWaiting = false
        /// Whether `run` is active; a receipt that is taken at once then continues there, not in a nested call.
        private var isRunning = false

        init(_ question: TakeReceipts, _ reply: ShardReply<Answer>) { (self.question, self.reply) = (question, reply) }

        func run(on shard: inout Shard) {
            guard !isRunning else { return }
            isRunning = true
            while !isWaiting, verdicts.count < question.receipts.count {
                let receipt = question.receipts[verdicts.count]
                isWaiting = true
                shard.take(receipt, apps: question.apps) { shard, verdict in
                    self.verdicts.append(ResultVerdict(job: receipt.message, verdict: verdict))
                    self.isWaiting = false
                    self.run(on: &shard)
                }
            }
            isRunning = false
            if !isWaiting { shard.answer(reply, verdicts) }
        }
    }
}

extension Shard {

    /// Finds the message by its job or its trace, and records the receipt for its device.
    fileprivate mutating func take(
        _ receipt: VendorReceipt, apps: Set<AppKey>?,
        completion: @escaping (inout Shard, ResultVerdict.Verdict) -> Void
    ) {
        guard let bucket = receipt.message.bucket else { return completion(&self, .unknownJob) }
        findJob(receipt.message) { shard, found in
            switch found {
            case .unreadable: completion(&shard, .storeFailed)
            case .found(let slot):
                let row = shard.jobs.at(slot).value.row
                shard.dropJobIfDone(slot)
                guard row.wasLeased else { return completion(&shard, .unknownJob) }
                shard.record(
                    receipt, of: row.facts, row.vendorChannel, sentToken: row.sentToken, apps: apps,
                    completion: completion)
            case .absent:
                shard.readTrace(receipt.message, bucket: bucket) { shard, found in
                    switch found {
                    case .unreadable: completion(&shard, .storeFailed)
                    case .absent: completion(&shard, .unknownJob)
                    // No vendor has a message that was never leased.
                    case .found(let trace) where !trace.wasLeased: completion(&shard, .unknownJob)
                    case .found(let trace):
                        // After a follow-up the trace names the follow-up channel, not the vendor.
                        let channel = trace.channel?.isFollowUp == true ? receipt.channel : trace.channel
                        shard.record(
                            receipt, of: trace.facts, channel, sentToken: 0, apps: apps, completion: completion)
                    }
                }
            }
        }
    }

    private mutating func record(
        _ receipt: VendorReceipt, of facts: MessageFacts, _ channel: VendorChannel?, sentToken: UInt64,
        apps: Set<AppKey>?, completion: @escaping (inout Shard, ResultVerdict.Verdict) -> Void
    ) {
        // A caller without access to the app must not learn that the message exists. Only the channels' platforms must be equal,
        // because after a refused token the message may have moved to another vendor of its platform.
        guard apps?.contains(facts.app) ?? true, receipt.app ?? facts.app == facts.app,
            receipt.channel == nil || receipt.channel?.platform == channel?.platform
        else { return completion(&self, .unknownJob) }
        whenReady(deviceSlot(facts.cid, bucket: facts.bucket)) { shard, slot, readiness in
            guard readiness == .ready else {
                return completion(&shard, readiness.mayBeRepeated ? .storeFailed : .unknownJob)
            }
            let kind: Feedback.Kind
            switch receipt.kind {
            case .badToken:
                let isSentToken = receipt.channel == nil || receipt.channel == channel
                guard let channel = receipt.channel ?? channel,
                    let digest = receipt.digest(sentToken: isSentToken ? sentToken : 0)
                else { return completion(&shard, .unknownJob) }
                shard.quarantine(digest, of: channel, facts, at: min(shard.now, receipt.at), slot)
                return completion(&shard, .recorded)
            case .delivered: kind = .shown
            case .clicked: kind = .opened
            }
            let at = receipt.at == 0 ? shard.now : min(shard.now, max(facts.acceptedAt, receipt.at))
            let report = DeviceReport(
                kind: kind, action: 0, message: facts.message, at: at, isOfNotification: true)
            shard.whileBusy(slot) { shard, done in
                shard.record(report, of: slot, completion: done)
            } then: { shard, verdict in
                shard.pump(slot)
                completion(&shard, verdict == .retry ? .storeFailed : .recorded)
            }
        }
    }

    /// Quarantines the token of a receipt, unless the device registered it again later.
    private mutating func quarantine(
        _ digest: UInt64, of channel: VendorChannel, _ facts: MessageFacts, at time: GatewayTime, _ slot: DeviceSlot
    ) {
        var profile = profile(slot)
        let appHasTopic = apps[Int(devices.at(slot).value.appIndex)].hasTopic
        let quarantined = profile.quarantine(channel, .alert, appHasTopic: appHasTopic, timestamp: time) {
            $0.digest == digest
        }
        guard quarantined.isMarked else { return }
        numbers[channel].resultsBadToken &+= 1
        save(profile, slot)
        inBatch(of: slot) { $0.noteQuarantine(facts, channel, "receipt") }
        placeJobs(of: slot)
    }
}

extension VendorReceipt {
    /// Returns the digest of the token that the receipt refuses; `nil`: not known.
    fileprivate func digest(sentToken: UInt64) -> UInt64? {
        guard token.isEmpty else { return Fingerprint.of(token.utf8) }
        return sentToken == 0 ? nil : sentToken
    }
}
