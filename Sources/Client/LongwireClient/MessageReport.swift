/// An event of a message for the publisher's statistics.
public enum MessageReport: Hashable, Sendable {
    /// The message was shown to the user.
    case shown(MessageID)
    /// A custom action of the user, 90001 to 90999; a gateway ignores other numbers.
    case action(UInt32, MessageID)

    var line: String {
        switch self {
        case .shown(let id): "shown \(id)"
        case .action(let number, let id): "action \(number) \(id)"
        }
    }

    /// Reads the form that `line` writes; returns `nil` for anything else.
    init?(name: Substring, values: [Substring]) {
        guard let id = values.last.flatMap({ MessageID($0) }) else { return nil }
        if name == "shown", values.count == 1 {
            self = .shown(id)
        } else if name == "action", values.count == 2, let number = UInt32(values[0]) {
            self = .action(number, id)
        } else {
            return nil
        }
    }
}
