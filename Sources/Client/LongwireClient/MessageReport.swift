/// What the user saw or did with a message, for the publisher's reports.
public enum MessageReport: Hashable, Sendable {
    case shown(MessageID)
    /// A custom action, 90001 to 90999; a gateway ignores others.
    case action(UInt32, MessageID)

    /// As it stands in a stored state.
    var line: String {
        switch self {
        case .shown(let id): "shown \(id)"
        case .action(let number, let id): "action \(number) \(id)"
        }
    }

    /// Reads what `line` writes; `nil` for anything else.
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
