// Receipts of vendors: what a phone's system reported to the vendor about a notification. The sender passes them on.

internal import Structures
package import Wire

package struct VendorReceipt: Sendable, Codable {
    package enum Kind: UInt8, Sendable, CaseIterable, Codable {
        /// The phone has the notification.
        case delivered = 1
        /// The user opened it.
        case clicked
        /// The token belongs to no app any more: uninstalled, or replaced.
        case badToken
    }

    package var message: MessageID
    /// The app and the channel of the credential that the receipt arrived for; `nil`: not known.
    package var app: AppKey?
    package var channel: VendorChannel?
    package var kind: Kind
    /// The token that the vendor names; empty: the last one leased for the message.
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
/// A repeated receipt changes nothing. A receipt for a message of an app outside `apps` (`nil`: all) is reported as unknown.
package struct TakeReceipts: ShardQuestion {
    package typealias Answer = [ResultVerdict]

    package var receipts: [VendorReceipt]
    package var apps: Set<AppKey>?

    package init(receipts: [VendorReceipt], apps: Set<AppKey>?) { (self.receipts, self.apps) = (receipts, apps) }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Answer>) {
        shard.take(receipts[...], apps: apps, after: []) { shard, verdicts in shard.answer(reply, verdicts) }
    }
}

extension Shard {
    fileprivate mutating func take(
        _ receipts: ArraySlice<VendorReceipt>, apps: Set<AppKey>?, after verdicts: [ResultVerdict],
        completion: @escaping (inout Shard, [ResultVerdict]) -> Void
    ) {
        guard let receipt = receipts.first else { return completion(&self, verdicts) }
        take(receipt, apps: apps) { shard, verdict in
            let verdicts = verdicts + [ResultVerdict(job: receipt.message, verdict: verdict)]
            shard.take(receipts.dropFirst(), apps: apps, after: verdicts, completion: completion)
        }
    }

    /// Finds the message by its job or its trace, and records the receipt for its device.
    private mutating func take(
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
                shard.record(
                    receipt, of: row.facts, row.channel, sentToken: row.sentToken, apps: apps, completion: completion)
            case .absent:
                shard.readTrace(receipt.message, bucket: bucket) { shard, found in
                    switch found {
                    case .unreadable: completion(&shard, .storeFailed)
                    case .absent: completion(&shard, .unknownJob)
                    case .found(let trace):
                        shard.record(
                            receipt, of: trace.facts, trace.channel, sentToken: 0, apps: apps, completion: completion)
                    }
                }
            }
        }
    }

    private mutating func record(
        _ receipt: VendorReceipt, of facts: MessageFacts, _ channel: VendorChannel?, sentToken: UInt64,
        apps: Set<AppKey>?, completion: @escaping (inout Shard, ResultVerdict.Verdict) -> Void
    ) {
        // A caller without access to the app must not learn that the message exists.
        guard apps?.contains(facts.app) ?? true, receipt.app ?? facts.app == facts.app,
            receipt.channel == nil || receipt.channel == channel
        else { return completion(&self, .unknownJob) }
        whenReady(deviceSlot(facts.cid, bucket: facts.bucket)) { shard, slot, readiness in
            guard readiness == .ready else {
                return completion(&shard, readiness.mayBeRepeated ? .storeFailed : .unknownJob)
            }
            let kind: Feedback.Kind
            switch receipt.kind {
            case .badToken:
                if let channel { shard.void(receipt, facts, channel, sentToken: sentToken, of: slot) }
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
    private mutating func void(
        _ receipt: VendorReceipt, _ facts: MessageFacts, _ channel: VendorChannel, sentToken: UInt64,
        of slot: DeviceSlot
    ) {
        let digest = receipt.token.isEmpty ? sentToken : Fingerprint.of(receipt.token.utf8)
        guard digest != 0 else { return }
        var profile = profile(slot)
        let appHasTopic = apps[Int(devices.at(slot).value.appIndex)].hasTopic
        let quarantined = profile.quarantine(
            channel, .alert, appHasTopic: appHasTopic, timestamp: receipt.at
        ) { $0.digest == digest }
        guard quarantined.isMarked else { return }
        numbers[channel].resultsBadToken &+= 1
        save(profile, slot)
        inBatch(of: slot) { $0.noteQuarantine(facts, channel, "receipt") }
        placeJobs(of: slot)
    }
}
