// What a look-up ends with. A reader may have to ask the disk, so each answer comes to a completion.

internal import Wire

/// The answer to a look-up.
package enum Found<Value> {
    case found(Value)
    /// There is none, or it has ended.
    case absent
    /// A reader could not read it: the caller repeats later, and nothing has changed.
    case unreadable

    package var isAbsent: Bool {
        switch self {
        case .absent: true
        case .found, .unreadable: false
        }
    }
}

/// A row that was looked up; its bytes are valid until the next call into the shard.
struct FoundRow {
    var bytes: LentBytes
    var wakeAt: GatewayTime
}

/// The end of work that reads any number of rows.
enum Reading: Equatable {
    case whole
    /// A reader could not read some of them.
    case unreadable
}
