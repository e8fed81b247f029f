internal import Delivery
internal import PushAPI
internal import Wire

/// Changes an app; the answer follows once the change is durable and applied on the answering gateway.
///
/// The answer `nil` means that the result is unknown and the caller must retry.
struct ChangeApp: PartitionRequest {
    static let number: UInt8 = 22
    var change: AppChange

    var busy: AppResult? { nil }

    func isValid(in share: LoopShare) -> Bool { share.hasGatewayRows && change.isSound }

    static func isValid(_ answer: AppResult?) -> Bool {
        guard case .done(let app, _, _) = answer else { return true }
        return app.version < ManagedApps.versionLimit
    }

    func perform(on partition: Partition, _ origin: Origin) {
        guard let rows = partition.ownRows else { return partition.replyBusy(to: origin) }
        rows.apps.take(change, origin)
    }
}

/// Asks for the apps changed since a version; the answer is `nil` if the answering gateway does not know its apps yet.
struct AppNewsRequest: PartitionRequest {
    static let number: UInt8 = 23
    var since: UInt64

    var busy: AppNews? { nil }

    func isValid(in share: LoopShare) -> Bool { share.hasGatewayRows }

    static func isValid(_ answer: AppNews?) -> Bool { answer?.isSound ?? true }

    func perform(on partition: Partition, _ origin: Origin) {
        // A gateway that has just become the owner may not have read the rows yet.
        guard partition.context.apps.isKnown else { return partition.replyBusy(to: origin) }
        partition.reply(Optional(partition.context.apps.news(since: since, of: partition.context.history)), to: origin)
    }
}
