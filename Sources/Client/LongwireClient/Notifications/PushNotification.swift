/// The message behind a notification: a tapped one, a silent one, or one in a service extension.
///
/// A notification has the whole `userInfo` of its push. The same message may also arrive over the connection, with the same
/// `messageID`.
public struct PushNotification: Equatable, Sendable {
    /// The task of the push.
    public var taskID: TaskID
    /// The message's id, equal to the `messageID` of the copy on the connection.
    public var messageID: MessageID
    /// The text under `payload`: the publisher's `transmission`, or the push's separate payload for Apple.
    ///
    /// `nil` if the push has no text there; see `content`.
    public var payload: String?
    /// Whether the push only wakes the app: it has `content-available` and no alert.
    public var isSilent: Bool
    /// Whether the app created the notification itself, with `ReceivedMessage.notificationUserInfo`.
    public var isLocal: Bool
    /// Every member of `userInfo`, including `aps` and the gateway's own members.
    ///
    /// Values without a JSON form are dropped.
    public var values: [String: PushValue]

    /// Reads the `userInfo` of a notification; returns `nil` if it is not from the gateway.
    public init?(userInfo: [AnyHashable: Any]) { self.init(values: PushValue.members(userInfo)) }

    init?(values: [String: PushValue]) {
        guard let ids = values[Key.ids]?.text?.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false),
            ids.count == 2, let task = TaskID(text: ids[0]), let message = MessageID(ids[1])
        else { return nil }
        (taskID, messageID, self.values) = (task, message, values)
        payload = values[Key.payload]?.text
        isLocal = values[Key.local] == .boolean(true) || values[Key.local] == .integer(1)
        let aps = values[Key.aps]
        isSilent = aps?["content-available"]?.integer == 1 && aps?["alert"] == nil
    }

    /// The names of the members that the gateway, the client and APNs use; all others are the publisher's.
    enum Key {
        static let aps = "aps"
        static let ids = "_gmid_"
        static let payload = "payload"
        static let media = "longwire_media"
        static let local = "longwire_local"
        static let all: Set<String> = [aps, ids, payload, media, local]
    }

    /// The notification's `userInfo`, for code that needs a dictionary.
    public var userInfo: [String: Any] { values.compactMapValues(\.any) }

    /// The publisher's members other than `aps` and `payload`, such as the data of a jump.
    public var extras: [String: PushValue] { values.filter { !Key.all.contains($0.key) } }

    /// The texts of the alert, or `nil` for a push without an alert.
    public var alert: MessageAlert? {
        switch values[Key.aps]?["alert"] {
        case .text(let body): MessageAlert(body: body)
        case .members(let members):
            MessageAlert(title: members["title"]?.text ?? "", body: members["body"]?.text ?? "")
        default: nil
        }
    }

    /// The page that a tap opens, from the member `url`.
    ///
    /// The client does not check the publisher's text. Open only schemes and hosts that the app knows.
    public var url: String? { values["url"]?.text }

    /// The screen that a tap opens, from the members `class` and `property`: a convention of apps with Getui or JPush.
    public var jump: Jump? {
        guard let name = values["class"]?.text, !name.isEmpty else { return nil }
        return Jump(className: name, properties: values["property"]?.members ?? [:])
    }

    /// A screen of the app and its parameters.
    public struct Jump: Equatable, Sendable {
        /// The screen's name.
        ///
        /// The client does not check the publisher's text. Look it up in a list of screens, and never pass it to
        /// `NSClassFromString`.
        public var className: String
        /// The parameters of the screen; empty if the push has none.
        public var properties: [String: PushValue]
    }

    /// The part of a notification that holds the publisher's content.
    public enum Content: Equatable, Sendable {
        /// The push has a text under `payload`.
        case payload
        /// The push has members beside `aps`, as with the template `transmission: "members"`, and no `payload`.
        case members
        /// The push has only its ids and its alert. The content arrives over the connection, even after a tap.
        case idsOnly
    }

    /// The part of this notification that holds the publisher's content.
    ///
    /// The payload of a push may differ from that of its message. Such a message also arrives over the connection, with
    /// `wasOpened` set after a tap.
    public var content: Content {
        if payload != nil { return .payload }
        return extras.isEmpty ? .idsOnly : .members
    }

    // MARK: The stored form

    var line: String {
        var bytes: [UInt8] = []
        PushValue.members(values).append(to: &bytes)
        return "tap \(ClientState.hex(bytes))"
    }

    /// Parses the form that `line` writes; returns `nil` for any other text.
    init?(stored hex: Substring) {
        guard let bytes = ClientState.bytes(hex: hex) else { return nil }
        var rest = bytes[...]
        guard let values = PushValue(consuming: &rest)?.members, rest.isEmpty else { return nil }
        self.init(values: values)
    }

    /// Whether the stored form is at most `Limits.tapByteCount` bytes long.
    ///
    /// Every push from APNs fits.
    var isKeepable: Bool { line.utf8.count <= Limits.tapByteCount }
}
