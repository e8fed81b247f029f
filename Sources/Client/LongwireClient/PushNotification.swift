/// What a notification of Apple's says about the message behind it: tapped, silent, or in a service extension.
public struct PushNotification: Equatable, Sendable {
    public var taskID: TaskID
    /// The same as the `messageID` of the copy that comes over the connection.
    public var messageID: MessageID
    /// The publisher's `payload`, when the push carried one.
    public var payload: String?
    /// True for a push that only wakes the app: `content-available`, and nothing to show.
    public var isSilent: Bool

    /// Reads the `userInfo` of a notification; `nil`: it is none of the gateway's.
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
