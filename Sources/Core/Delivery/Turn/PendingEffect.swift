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
        /// Send this effect: a device's status, a message's trace, a receipt's answer or a change of tokens.
        indirect case told(Effect)
        /// Record that a session's report is durable, and send its Pong or `finished`, if the sign asks for it.
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
