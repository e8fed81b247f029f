internal import Delivery
internal import Wire

/// Encodes the Deliver frame of a broadcast once for all devices of a loop, with a placeholder for the msgId.
final class BroadcastFrames: BroadcastEncoder {
    func frame(
        of row: MessageRow, number: UInt64, isOffline: Bool, isCarriedByVendor: Bool, alertedAt: GatewayTime,
        attempt: UInt32
    ) -> EncodedBroadcast {
        let frame = DeliverFrame(
            stream: 1, sequence: number, messageID: MessageID(high: .max, low: .max), taskID: row.taskID,
            payload: row.payload, isOffline: isOffline, acceptedAt: UInt64(max(0, row.acceptedAt)),
            alertedAt: UInt64(max(0, alertedAt)), attempt: attempt, collapseKey: row.collapseKey,
            alertTitle: row.alertTitle, alertBody: row.alertBody, isCarriedByVendor: isCarriedByVendor)
        var bytes = [UInt8](repeating: 0, count: frame.byteCount)
        bytes.withUnsafeMutableBytes { _ = frame.encode(into: $0) }
        return EncodedBroadcast(bytes: bytes, messageIDOffset: frame.messageIDOffset)
    }
}
