package enum RedisReply: Sendable, Equatable {
    case status(String)
    case error(RedisFault)
    case integer(Int64)
    case bytes([UInt8])
    /// The protocol's nil string or nil array.
    case none
    indirect case array([RedisReply])
}

extension RedisReply {
    package var fault: RedisFault? { if case .error(let fault) = self { fault } else { nil } }
    package var integer: Int64? { if case .integer(let number) = self { number } else { nil } }
    package var bytes: [UInt8]? { if case .bytes(let bytes) = self { bytes } else { nil } }
    package var array: [RedisReply]? { if case .array(let replies) = self { replies } else { nil } }
    package var isNone: Bool { if case .none = self { true } else { false } }
    package var text: String? {
        switch self {
        case .status(let text): text
        case .bytes(let bytes): String(decoding: bytes, as: UTF8.self)
        case .integer(let number): "\(number)"
        case .error, .none, .array: nil
        }
    }
}

/// An error reply, classified where the client must react to it.
package struct RedisFault: Error, Sendable, Equatable, CustomStringConvertible {
    package enum Kind: Sendable, Equatable {
        /// The slot belongs to another server permanently.
        case moved(slot: Int, to: RedisAddress?)
        /// The slot is being moved to another server, which already has this key.
        case ask(slot: Int, of: RedisAddress?)
        /// The keys of one command are on different servers while their slot is moved.
        case tryAgain
        /// The cluster does not serve the slot at present.
        case clusterDown
        /// The server loads its data after a start.
        case loading
        /// The server is a replica.
        case readOnly
        /// A script exceeds the server's time limit.
        case busy
        /// Memory is at `maxmemory`.
        case outOfMemory
        /// The server cannot write to its disk.
        case cannotPersist
        /// The server has fewer replicas than its configuration requires.
        case noReplicas
        /// The server changed its role while a command was waiting.
        case unblocked
        case noScript
        /// The server's maximum number of clients is connected.
        case tooManyClients
        /// The user or password is wrong or missing, or the server accepts only local clients.
        case notAdmitted
        /// The user lacks a right.
        case notAllowed
        case other
    }

    package let kind: Kind
    package let text: String

    package init(_ text: String) {
        self.text = text
        let words = text.split(separator: " ", maxSplits: 3, omittingEmptySubsequences: true)
        kind =
            switch words.first {
            case "MOVED": Self.redirect(words).map { .moved(slot: $0.slot, to: $0.address) } ?? .other
            case "ASK": Self.redirect(words).map { .ask(slot: $0.slot, of: $0.address) } ?? .other
            case "TRYAGAIN": .tryAgain
            case "CLUSTERDOWN": .clusterDown
            case "LOADING": .loading
            case "READONLY", "MASTERDOWN": .readOnly
            case "BUSY": .busy
            case "OOM": .outOfMemory
            case "MISCONF": .cannotPersist
            case "NOREPLICAS": .noReplicas
            case "UNBLOCKED": .unblocked
            case "NOSCRIPT": .noScript
            case "NOAUTH", "WRONGPASS", "DENIED": .notAdmitted
            case "NOPERM": .notAllowed
            default: Self.kind(ofText: text)
            }
    }

    /// Returns the kind of an error without a specific first word.
    private static func kind(ofText text: String) -> Kind {
        // In cluster mode the text also mentions cluster connections.
        if text.hasPrefix("ERR max number of clients") { return .tooManyClients }
        // A password was sent for a user without one.
        if text.hasPrefix("ERR AUTH") { return .notAdmitted }
        // Redis versions use different texts for a denied command in a script.
        let isOfScript =
            text.contains("The user executing the script can't") || text.contains("ACL failure in script")
        return isOfScript ? .notAllowed : .other
    }

    /// Parses a redirect, or returns `nil` if it is malformed; the address is `nil` if the server does not know it.
    private static func redirect(_ words: [Substring]) -> (slot: Int, address: RedisAddress?)? {
        guard words.count >= 3, let slot = Int(words[1]), (0..<RedisSlot.count).contains(slot),
            let address = RedisAddress(words[2])
        else { return nil }
        return (slot, address.host == "?" ? nil : address)
    }

    package var code: Substring { text.prefix { $0 != " " } }

    /// Whether the same command may succeed later, perhaps at another server.
    package var isPassing: Bool {
        switch kind {
        case .moved, .ask, .tryAgain, .clusterDown, .loading, .readOnly, .busy, .outOfMemory, .cannotPersist,
            .noReplicas, .unblocked, .tooManyClients:
            true
        case .noScript, .notAdmitted, .notAllowed, .other: false
        }
    }

    /// Whether the data is available at another server, or at this one after a retry.
    var isOnItsWay: Bool {
        switch kind {
        case .moved, .ask, .tryAgain: true
        default: false
        }
    }

    package var description: String { text }
}
