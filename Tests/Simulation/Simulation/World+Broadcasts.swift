internal import Delivery
internal import Wire

extension World {
    /// The tail of the msgId of a broadcast's message for one device: made with the record of it.
    func broadcastDigest(of task: TaskID, for cid: DeviceID) -> UInt64 { task.low ^ cid.low }
}
