internal import Structures
internal import Wire

/// Something that leaves the shard once its ticket is durable.
struct PendingEffect {
    /// The rare cases are indirect: the queue is as wide as its widest.
    enum Kind {
        /// Answer, then send what the window admits.
        case publish(Origin, PublishOutcome, device: DeviceSlot, cid: DeviceID)
        indirect case welcome(SessionRef, WelcomeEffect)
        indirect case updated(SessionRef, UpdateResult)
        indirect case leased(Origin, [Job])
        indirect case settled(Origin, [ResultVerdict])
        indirect case taskAnswer(Origin, TaskAnswer)
        /// The state of a device, the trace of a message, or what a receipt is answered.
        indirect case told(Effect)
        /// A session's report, or what stands behind one.
        indirect case reported(SessionRef, ReportSign)
        indirect case taskDue(TaskRecord)
        indirect case launched(TaskRecord)
        indirect case firstAck(FirstAck)
        case resume(device: DeviceSlot, cid: DeviceID)
        case directoryReply(Origin, DirectoryReply)
    }
    var ticket: Ticket
    var kind: Kind
}
