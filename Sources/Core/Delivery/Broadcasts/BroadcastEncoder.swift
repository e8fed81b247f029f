// The seam to what knows the protocol: Delivery decides what a device gets, and the gateway's front makes the bytes.

/// Encodes the messages of broadcasts, for all devices alike.
package protocol BroadcastEncoder: AnyObject {
    /// The frame of a broadcast's message, with a hole for the msgId.
    ///
    /// - Parameters:
    ///   - row: the content; its msgId has no meaning.
    ///   - number: the broadcast's place in the app's log.
    ///   - isOffline: the frame's flag.
    ///   - alertedAt: when the vendor showed an alert; 0: never.
    ///   - attempt: counts from 1.
    /// - Returns: the whole frame, header included.
    func frame(
        of row: MessageRow, number: UInt64, isOffline: Bool, alertedAt: GatewayTime, attempt: UInt32
    ) -> EncodedBroadcast
}

/// A frame for many devices.
package struct EncodedBroadcast {
    package var bytes: [UInt8]
    /// Where in it the sixteen bytes of the msgId belong, in network order.
    package var messageIDOffset: Int

    package init(bytes: [UInt8], messageIDOffset: Int) {
        (self.bytes, self.messageIDOffset) = (bytes, messageIDOffset)
    }
}
