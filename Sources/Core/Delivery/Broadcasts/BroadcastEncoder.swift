/// Encodes the messages of broadcasts, identically for all devices; a protocol, so Delivery does not depend on the wire encoding.
package protocol BroadcastEncoder: AnyObject {
    /// Returns the frame of a broadcast's message, with a hole for the msgId.
    ///
    /// - Parameters:
    ///   - row: the content; its msgId is ignored.
    ///   - number: the broadcast's number in the app's log.
    ///   - isOffline: the frame's flag.
    ///   - isCarriedByVendor: the frame's flag. It depends on the device's vendor, so the row's flag does not apply.
    ///   - alertedAt: the time at which the vendor showed an alert; 0: never.
    ///   - attempt: the number of the attempt, from 1.
    /// - Returns: the whole frame with its header.
    func frame(
        of row: MessageRow, number: UInt64, isOffline: Bool, isCarriedByVendor: Bool, alertedAt: GatewayTime,
        attempt: UInt32
    ) -> EncodedBroadcast
}

package struct EncodedBroadcast {
    package var bytes: [UInt8]
    /// The offset of the msgId's sixteen bytes in the frame, in network order.
    package var messageIDOffset: Int

    package init(bytes: [UInt8], messageIDOffset: Int) {
        (self.bytes, self.messageIDOffset) = (bytes, messageIDOffset)
    }
}
