internal import Wire

/// The result of a look-up; it is passed to a completion because a look-up may need the disk.
package enum Found<Value> {
    case found(Value)
    /// There is no such item, or it has ended.
    case absent
    /// The item could not be read and nothing has changed; the caller retries later.
    case unreadable

    package var isAbsent: Bool { if case .absent = self { true } else { false } }

    package var value: Value? { if case .found(let value) = self { value } else { nil } }
}

extension Found where Value == Bool {
    /// The number of messages that a step ended: 1 if it found the message, otherwise 0; `nil` if the rows could not be read.
    var endedCount: Int? {
        switch self {
        case .found: 1
        case .absent: 0
        case .unreadable: nil
        }
    }
}

extension Found: Sendable where Value: Sendable {}
extension Found: Encodable where Value: Encodable {}
extension Found: Decodable where Value: Decodable {}

/// A row from a look-up; its bytes are valid until the next call into the shard.
struct FoundRow {
    var bytes: LentBytes
    var wakeAt: GatewayTime
}

enum Reading: Equatable {
    case whole
    case unreadable
}
