public import Delivery
public import Directory
public import Wire

/// A call about users, parsed and validated: what to do, and how to say what came of it.
public struct UserRequest: Sendable {
    /// What is answered, and what was asked for in the words of the caller.
    enum Form: Sendable {
        /// Code and message only; `subject` names what may be refused as invalid.
        case change
        case unbindAll
        case aliasOfDevice
        case devicesOfAlias
        case tagsOfDevice
        case tagsReplaced
        case tagBatch
        case details
        case deviceStatus
        case count
    }

    public let app: AppKey
    /// Counted against the app's quota first.
    public let counted: CountedCall?
    public let work: DirectoryOperation.Work
    let form: Form
    /// The devices of the work's items, in order.
    let devices: [DeviceID]
    /// What was named and cannot be a cid.
    let notCIDs: [String]
    /// Conditions of a count that say nothing about any device here.
    var unknownKeys: [String] = []
    let appID: String

    init(
        app: App, counted: CountedCall? = nil, work: DirectoryOperation.Work, form: Form, devices: [DeviceID] = [],
        notCIDs: [String] = [], unknownKeys: [String] = []
    ) {
        (self.app, self.appID, self.counted, self.work, self.form) = (app.key, app.appID, counted, work, form)
        (self.devices, self.notCIDs, self.unknownKeys) = (devices, notCIDs, unknownKeys)
    }
}

/// A push to whoever has an alias: resolve the name, then publish one message for each device.
public struct AliasPush: Sendable {
    public let name: AliasName
    /// The message, aimed at nobody yet.
    let template: ParsedPush
    public var app: AppKey { template.address.app }

    init(name: AliasName, template: ParsedPush) { (self.name, self.template) = (name, template) }

    /// One message for each device, all of one task.
    public func pushes(to devices: [DevicePlace]) -> [ParsedPush] {
        devices.enumerated().map { template.aimed(at: $1, itemIndex: $0) }
    }
}

extension ParsedPush {
    /// The same message for another device.
    ///
    /// The request key is the device's own, so that devices of one alias that share a bucket do not share a row.
    func aimed(at place: DevicePlace, itemIndex: Int) -> ParsedPush {
        ParsedPush(
            address: DeviceAddress(app: address.app, bucket: place.bucket, cid: place.cid), task: task,
            strategy: strategy, timeToLive: timeToLive, itemIndex: itemIndex,
            messageDigest: PushAPI.messageDigest(of: task, for: place.cid),
            requestKey: (requestKey.0 ^ place.cid.high, requestKey.1 ^ place.cid.low), requestDigest: requestDigest,
            vendor: vendor, lengths: lengths, arena: arena)
    }
}
