package import Wire

/// What a device reports of its messages in one HTTPS call, proven with its secret.
package struct ReceiptCommand: Sendable, Codable {
    package var origin: Origin
    package var app: AppKey
    package var bucket: Bucket
    package var cid: DeviceID
    /// The device's clock, in milliseconds, when it made the call.
    package var timestamp: UInt64
    /// The bytes under the proof.
    package var transcript: [UInt8]
    package var proof: [UInt8]
    /// The caller bounds their number: one step of the device records them all.
    package var events: [ReceiptEvent]

    package init(
        origin: Origin, app: AppKey, bucket: Bucket, cid: DeviceID, timestamp: UInt64, transcript: [UInt8],
        proof: [UInt8], events: [ReceiptEvent]
    ) {
        (self.origin, self.app, self.bucket, self.cid) = (origin, app, bucket, cid)
        (self.timestamp, self.transcript, self.proof, self.events) = (timestamp, transcript, proof, events)
    }
}

/// One event of a receipt.
package struct ReceiptEvent: Sendable, Equatable, Codable {
    package var kind: Feedback.Kind
    package var message: MessageID
    /// The number of a custom action; 0 for the other kinds.
    package var action: UInt32
    /// When it happened, by the clock of the call's timestamp; 0: the device does not say.
    package var at: GatewayTime

    package init(kind: Feedback.Kind, message: MessageID, action: UInt32 = 0, at: GatewayTime = 0) {
        (self.kind, self.message, self.action, self.at) = (kind, message, action, at)
    }
}

/// What became of one event that a device reported.
package enum EventVerdict: Sendable, Equatable, CaseIterable, Codable {
    /// Recorded and counted, durably.
    case recorded
    /// It was recorded before; nothing changed.
    case repeated
    /// Not the device's message, one that is not known any more, a number that is no action, or one action too many.
    case ignored
    /// A reader could not read the store, or the store takes no writes; the device repeats it.
    case retry
}

/// What a device's call is answered.
package enum ReceiptAnswer: Sendable, Equatable, Codable {
    /// One verdict an event, in the order given.
    case taken([EventVerdict])
    /// No such device in this app, or the proof does not match its secret: a caller learns nothing about the difference.
    case refused
    /// The timestamp is too far from this time.
    case clockSkew(serverTime: GatewayTime)
    /// The device's record cannot be read now, or too many commands wait; the device repeats the call.
    case busy
}
