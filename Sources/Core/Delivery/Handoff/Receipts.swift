package import Wire

/// A device's report about its messages in one HTTPS call, signed with the device's secret.
package struct ReceiptCommand: Sendable, Codable {
    package var origin: Origin
    package var app: AppKey
    package var bucket: Bucket
    package var cid: DeviceID
    /// The device's clock at the time of the call, in milliseconds.
    package var timestamp: UInt64
    /// The signed bytes.
    package var transcript: [UInt8]
    package var proof: [UInt8]
    /// The events; the caller bounds their number because one step records them all.
    package var events: [ReceiptEvent]

    package init(
        origin: Origin, app: AppKey, bucket: Bucket, cid: DeviceID, timestamp: UInt64, transcript: [UInt8],
        proof: [UInt8], events: [ReceiptEvent]
    ) {
        (self.origin, self.app, self.bucket, self.cid) = (origin, app, bucket, cid)
        (self.timestamp, self.transcript, self.proof, self.events) = (timestamp, transcript, proof, events)
    }
}

package struct ReceiptEvent: Sendable, Equatable, Codable {
    package var kind: Feedback.Kind
    package var message: MessageID
    /// The number of a custom action; 0 for other kinds.
    package var action: UInt32
    /// The time of the event by the device's clock; 0: unknown.
    package var at: GatewayTime

    package init(kind: Feedback.Kind, message: MessageID, action: UInt32 = 0, at: GatewayTime = 0) {
        (self.kind, self.message, self.action, self.at) = (kind, message, action, at)
    }
}

package enum EventVerdict: Sendable, Equatable, CaseIterable, Codable {
    /// Recorded and counted, durably.
    case recorded
    /// Already recorded; nothing changed.
    case repeated
    /// Not the device's message, an unknown message, an invalid action number, or too many actions.
    case ignored
    /// The store could not be read or accepts no writes; the device reports the event again.
    case retry
}

package enum ReceiptAnswer: Sendable, Equatable, Codable {
    /// One verdict per event, in the given order.
    case taken([EventVerdict])
    /// Unknown device or wrong proof; the caller cannot distinguish the two.
    case refused
    /// The timestamp differs from `serverTime` by more than the tolerance.
    case clockSkew(serverTime: GatewayTime)
    /// The device's record cannot be read now, or too many commands wait; the device repeats the call.
    case busy
}
