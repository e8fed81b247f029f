// Publish frames of trusted senders. The rules and the rendering are those of the push API, but JSON is parsed only if the frame
// contains some.

internal import Cryptography
package import Delivery
internal import JSON
internal import TextForms
package import Wire

/// The values of PublishResult.code.
///
/// The numbers are stable. Numbers below 32 are those of `PublishOutcome.Code`.
package enum PublishResultCode: UInt32, Sendable, CaseIterable {
    case accepted = 0
    case unknownDevice = 1
    case queueFull = 2
    case noToken = 3
    case requestConflict = 4
    case requestPending = 5
    case busy = 6
    case storeFailed = 7
    case ignored = 8
    case stopped = 9
    /// A field is missing or invalid; the reason names it.
    ///
    /// The frame must not be repeated unchanged.
    case invalidParameter = 64
    /// A field is too large; the reason names it.
    ///
    /// The frame must not be repeated unchanged.
    case sizeOverLimit = 65

    package init(_ code: PublishOutcome.Code) {
        switch code {
        case .accepted: self = .accepted
        case .unknownDevice: self = .unknownDevice
        case .queueFull: self = .queueFull
        case .noToken: self = .noToken
        case .requestConflict: self = .requestConflict
        case .requestPending: self = .requestPending
        case .busy: self = .busy
        case .storeFailed: self = .storeFailed
        case .ignored: self = .ignored
        case .stopped: self = .stopped
        case .tooLarge: self = .sizeOverLimit
        }
    }

    /// The text for PublishResult.reason; empty on success.
    package var reason: StaticString {
        switch self {
        case .accepted: ""
        case .unknownDevice: "no such cid in this app"
        case .queueFull: "the device's queue is full"
        case .noToken: "strategies 2 and 4 need an alert or apns, and a usable device token"
        case .requestConflict: "request_id was used with another message"
        case .requestPending: "the same request is under way, repeat it to get its answer"
        case .busy: "the gateway is busy, nothing was accepted, retry"
        case .storeFailed: "the store cannot be read now, nothing was accepted, retry"
        case .stopped: "the task was stopped"
        case .ignored: "the device is blacklisted or long inactive"
        case .invalidParameter: "a parameter is invalid"
        case .sizeOverLimit: "a parameter is too large"
        }
    }

    /// Whether nothing was accepted and the same frame may be sent again.
    package var isRetryable: Bool { self == .requestPending || self == .busy || self == .storeFailed }
}

/// The reason for refusing a Publish frame before it reaches a device.
package struct NativePublishFault: Error, Sendable, Equatable {
    package var code: PublishResultCode
    package var reason: String
    package init(code: PublishResultCode, reason: String) { (self.code, self.reason) = (code, reason) }
}

/// A Publish frame's fields, as views of the received bytes.
package struct NativePublish {
    package var cid: DeviceID
    package var payload: UnsafeRawBufferPointer
    package var timeToLive: Int64
    package var hasTimeToLive: Bool
    package var strategy: UInt32
    package var collapseKey: UnsafeRawBufferPointer
    package var requestID: UnsafeRawBufferPointer
    package var alertTitle: UnsafeRawBufferPointer
    package var alertBody: UnsafeRawBufferPointer
    /// A `push_channel.ios` object in JSON, or empty.
    package var apns: UnsafeRawBufferPointer

    package init(
        cid: DeviceID, payload: UnsafeRawBufferPointer, timeToLive: Int64, hasTimeToLive: Bool, strategy: UInt32,
        collapseKey: UnsafeRawBufferPointer, requestID: UnsafeRawBufferPointer, alertTitle: UnsafeRawBufferPointer,
        alertBody: UnsafeRawBufferPointer, apns: UnsafeRawBufferPointer
    ) {
        (self.cid, self.payload, self.timeToLive, self.hasTimeToLive) = (cid, payload, timeToLive, hasTimeToLive)
        (self.strategy, self.collapseKey, self.requestID) = (strategy, collapseKey, requestID)
        (self.alertTitle, self.alertBody, self.apns) = (alertTitle, alertBody, apns)
    }
}

/// A sender's own copy of its app's fields.
///
/// All loops share an app's strings and arrays. Counting references to them for each message would cause cache contention between
/// the loops.
package final class NativeSender {
    package let appKey: AppKey
    let defaultTimeToLive: Int64
    let template: APNsTemplate
    private let bucketPrefix: [UInt8]

    package init(_ app: App) {
        (appKey, defaultTimeToLive, template) = (app.key, app.defaultTimeToLive, app.apnsTemplate)
        bucketPrefix = app.bucketPrefix.map { $0 }
    }

    func bucket(of cid: DeviceID) -> Bucket { Bucket(prefix: bucketPrefix, cid: cid) }
}

/// Converts Publish frames to commands; confined to one event loop.
package final class NativePublisher {
    private let random: RandomWords
    private let parser = JSONParser(byteLimit: Limits.nativeAPNsByteCount)
    private let memberParser = JSONParser(byteLimit: Limits.payloadByteCount)
    private let numbers = NumberTexts()
    private var writer = JSONWriter(capacity: 4_096)
    private var digestInput: [UInt8] = []

    package init(random: RandomWords = RandomWords()) { self.random = random }

    /// Checks a frame and calls `body` with its command, whose pointers are valid only during the call.
    ///
    /// A frame with neither an alert nor `apns` causes no JSON work and no allocation, unless the template wakes the app for each
    /// push. `body` must not call this publisher, because the rendered bytes are in its only buffer. `isIDsOnly` means that the
    /// APNs body has only the ids, because the payload is too large or is not text.
    package func withCommand<Result>(
        _ publish: NativePublish, sender: NativeSender, origin: Origin, now: GatewayTime,
        _ body: (PublishCommand, _ isIDsOnly: Bool) -> Result
    ) throws(NativePublishFault) -> Result {
        let strategy = try check(publish)
        let task = TaskID(kind: .single, now: now, random: random)
        var content: APNsContent?
        do throws(GetuiFault) {
            content = try render(publish, task: task, template: sender.template)
            let timeToLive = publish.hasTimeToLive ? publish.timeToLive : sender.defaultTimeToLive
            // A silent body intentionally shows no text. It is therefore checked before unshown texts count as an omission.
            let isSilent = content?.alertTitle.isEmpty == true && content?.alertBody.isEmpty == true
            if isSilent { try VendorOmission.check(content?.omission, strategy, timeToLive: timeToLive) }
            if let shown = content, shown.omission == nil, !shows(shown, publish) { content?.omission = .notification }
            if !isSilent { try VendorOmission.check(content?.omission, strategy, timeToLive: timeToLive) }
        } catch {
            let isSize = error.message.contains("size over limit")
            throw NativePublishFault(code: isSize ? .sizeOverLimit : .invalidParameter, reason: error.message)
        }
        var key: (UInt64, UInt64) = (0, 0)
        var digest: UInt64 = 0
        if publish.requestID.count > 0 {
            key = requestKey(app: sender.appKey, endpoint: "publish", requestID: publish.requestID)
            digest = requestDigest(publish)
        }
        // The frame's alert takes precedence over that of its APNs object.
        let hasAlert = publish.alertTitle.count > 0 || publish.alertBody.count > 0
        let none = UnsafeRawBufferPointer(start: nil, count: 0)
        let title = hasAlert ? publish.alertTitle : content?.alertTitle ?? none
        let text = hasAlert ? publish.alertBody : content?.alertBody ?? none
        return writer.bytes.withUnsafeBytes { rendered in
            let vendor = content.map { content in
                VendorContent(
                    channel: content.shape.channel, tokenKind: content.shape.tokenKind,
                    activity: content.shape.activity, pushType: content.shape.pushType,
                    priority: content.shape.priority, badge: content.shape.badge, body: rendered,
                    messageIDOffset: content.shape.messageIDOffset, badgeOffset: content.shape.badgeOffset,
                    collapseID: content.collapseID)
            }
            var command = PublishCommand(
                origin: origin, app: sender.appKey, bucket: sender.bucket(of: publish.cid), cid: publish.cid,
                task: task,
                messageDigest: messageDigest(of: task, for: publish.cid), strategy: strategy,
                timeToLive: publish.hasTimeToLive ? publish.timeToLive : sender.defaultTimeToLive, requestKey: key,
                requestDigest: digest, isBulk: false, payload: publish.payload, collapseKey: publish.collapseKey,
                alertTitle: title, alertBody: text, vendor: vendor)
            command.vendorCarriesAll = content.map { $0.omission == nil } ?? false
            return body(command, content?.omission?.isIDsOnly == true)
        }
    }

    /// Whether the APNs alert shows the frame's alert texts, if there are any.
    private func shows(_ content: APNsContent, _ publish: NativePublish) -> Bool {
        let hasAlert = publish.alertTitle.count > 0 || publish.alertBody.count > 0
        return !hasAlert
            || content.alertTitle.elementsEqual(publish.alertTitle)
                && content.alertBody.elementsEqual(publish.alertBody)
    }

    private func check(_ publish: NativePublish) throws(NativePublishFault) -> Strategy {
        guard !publish.cid.isNone else { throw .invalid("cid has 16 bytes and is not zero") }
        guard publish.payload.count > 0 else { throw .invalid("payload can not be empty") }
        guard publish.payload.count <= Limits.payloadByteCount else {
            throw .tooLarge("payload size over limit, at most \(Limits.payloadByteCount) bytes")
        }
        if publish.hasTimeToLive, !(-1...Limits.timeToLive).contains(publish.timeToLive) {
            throw .invalid("ttl_ms is invalid, 0 to \(Limits.timeToLive), or -1")
        }
        guard publish.collapseKey.count <= Limits.collapseKeyByteCount else {
            throw .tooLarge("collapse_key size over limit, at most \(Limits.collapseKeyByteCount) bytes")
        }
        guard publish.alertTitle.count + publish.alertBody.count <= Limits.alertByteCount else {
            throw .tooLarge("alert size over limit, at most \(Limits.alertByteCount) bytes in title and body")
        }
        if publish.requestID.count > 0 {
            guard let count = scalarCount(publish.requestID), Limits.requestIDCharacterCount.contains(count) else {
                throw .invalid("request_id is invalid, it has 10 to 32 characters")
            }
        }
        if publish.strategy == 0 { return .standard }
        guard let raw = UInt8(exactly: publish.strategy), let strategy = Strategy(rawValue: raw) else {
            throw .invalid("strategy is invalid, 1 to 4")
        }
        return strategy
    }

    private func render(
        _ publish: NativePublish, task: TaskID, template: APNsTemplate
    ) throws(GetuiFault) -> APNsContent? {
        let hasAlert = publish.alertTitle.count > 0 || publish.alertBody.count > 0
        guard publish.apns.count > 0 || hasAlert || template.wakesApp else { return nil }
        let carried = CarriedTransmission(bytes: publish.payload, form: template.transmission, parser: memberParser)
        let renderer = APNsRenderer(task: task, template: template, numbers: numbers, transmission: carried)
        var ios: JSONValue?
        if publish.apns.count > 0 {
            let object: JSONValue
            do throws(JSONError) {
                object = try parser.parse(publish.apns)
            } catch {
                throw .invalid("apns", "it is not JSON: \(error.explanation)")
            }
            if parser.hasUnreadable, let path = object.unreadablePath {
                throw .unreadable("apns\(path)")
            }
            ios = object
            if let content = try renderer.render(ios: object, into: &writer) { return content }
        }
        if hasAlert {
            return try renderer.render(
                alertTitle: publish.alertTitle, alertBody: publish.alertBody, beside: ios, into: &writer)
        }
        return template.wakesApp ? try renderer.renderWakeUp(beside: ios, into: &writer) : nil
    }

    /// Returns a digest of every field chosen by the publisher, each with its length.
    private func requestDigest(_ publish: NativePublish) -> UInt64 {
        digestInput.removeAll(keepingCapacity: true)
        let ttl = publish.hasTimeToLive ? publish.timeToLive : .min
        for word in [publish.cid.high, publish.cid.low, UInt64(bitPattern: ttl), UInt64(publish.strategy)] {
            digestInput.append(bigEndian: word)
        }
        let pieces = [
            publish.payload, publish.collapseKey, publish.alertTitle, publish.alertBody, publish.apns,
        ]
        for piece in pieces {
            digestInput.append(bigEndian: UInt64(piece.count))
            digestInput.append(contentsOf: piece)
        }
        return SHA256.digest(digestInput).words.0
    }
}

extension NativePublishFault {
    fileprivate static func invalid(_ reason: String) -> NativePublishFault {
        NativePublishFault(code: .invalidParameter, reason: reason)
    }
    fileprivate static func tooLarge(_ reason: String) -> NativePublishFault {
        NativePublishFault(code: .sizeOverLimit, reason: reason)
    }
}
