internal import Structures
internal import Wire

struct PendingEffect {
    /// Rare cases are indirect because each queue element is as large as the largest case.
    enum Kind {
        /// Answer the publish, then send messages up to the window.
        case publish(Origin, PublishOutcome, device: DeviceSlot, cid: DeviceID)
        indirect case welcome(SessionRef, WelcomeEffect)
        indirect case updated(SessionRef, UpdateResult)
        indirect case leased(Origin, [Job])
        indirect case settled(Origin, [ResultVerdict])
        indirect case answer(Origin, (any Codable & Sendable)?)
        /// Send a device's status, a message's trace or the answer to a receipt.
        indirect case told(Effect)
        /// A session's report, or its frame behind a report.
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
