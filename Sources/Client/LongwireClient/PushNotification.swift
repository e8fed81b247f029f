/// The message behind an Apple notification: a tapped one, a silent one, or one in a service extension.
public struct PushNotification: Equatable, Sendable {
    /// The task of the push.
    public var taskID: TaskID
    /// The message's id, equal to the `messageID` of the copy on the connection.
    public var messageID: MessageID
    /// The publisher's `payload`, if the push carried one.
    public var payload: String?
    /// Whether the push only wakes the app: it has `content-available` and no alert.
    public var isSilent: Bool

    /// Reads the `userInfo` of a notification; returns `nil` if it is not from the gateway.
    public init?(userInfo: [AnyHashable: Any]) {
        guard let ids = (userInfo["_gmid_"] as? String)?.split(separator: ":"), ids.count == 2,
            let task = TaskID(text: ids[0]), let message = MessageID(ids[1])
        else { return nil }
        (taskID, messageID) = (task, message)
        payload = userInfo["payload"] as? String
        let aps = userInfo["aps"] as? [String: Any] ?? [:]
        isSilent = aps["content-available"] as? Int == 1 && aps["alert"] == nil
    }
}
