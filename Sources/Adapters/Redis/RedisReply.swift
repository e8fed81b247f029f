/// What a server answered to one command.
package enum RedisReply: Sendable, Equatable {
    case status(String)
    case error(RedisFault)
    case integer(Int64)
    case bytes([UInt8])
    /// No value: the protocol's nil string or nil array.
    case none
    indirect case array([RedisReply])
}

extension RedisReply {
    package var fault: RedisFault? { if case .error(let fault) = self { fault } else { nil } }
    package var integer: Int64? { if case .integer(let number) = self { number } else { nil } }
    package var bytes: [UInt8]? { if case .bytes(let bytes) = self { bytes } else { nil } }
    package var array: [RedisReply]? { if case .array(let replies) = self { replies } else { nil } }
    package var isNone: Bool { if case .none = self { true } else { false } }
    /// The value as text, whether it came as a string or as a status.
    package var text: String? {
        switch self {
        case .status(let text): text
        case .bytes(let bytes): String(decoding: bytes, as: UTF8.self)
        case .integer(let number): "\(number)"
        case .error, .none, .array: nil
        }
    }
}

/// An error reply, with its meaning where the client has to act on it.
package struct RedisFault: Error, Sendable, Equatable, CustomStringConvertible {
    package enum Kind: Sendable, Equatable {
        /// The slot belongs to another server for good.
        case moved(slot: Int, to: RedisAddress?)
        /// The slot is on its way to another server, which has this key already.
        case ask(slot: Int, of: RedisAddress?)
        /// The keys of one command are apart while their slot moves.
        case tryAgain
        /// The cluster does not serve the slot now.
        case clusterDown
        /// The server reads its data after a start.
        case loading
        /// The server is a replica.
        case readOnly
        /// A script has been running for too long.
        case busy
        /// Memory is at `maxmemory`.
        case outOfMemory
        /// The server cannot write to its disk.
        case cannotPersist
        /// The server has fewer replicas than its own settings demand.
        case noReplicas
        /// The server changed its role while a command was waiting.
        case unblocked
        /// The server does not have the script.
        case noScript
        /// The server has as many clients as it takes.
        case tooManyClients
        /// User or password are wrong or missing, or the server takes no clients from elsewhere.
        case notAdmitted
        /// The user may not do it.
        case notAllowed
        /// Any other error.
        case other
    }

    package let kind: Kind
    /// The server's whole text.
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

    /// Errors without a first word of their own.
    private static func kind(ofText text: String) -> Kind {
        // In cluster mode the text also mentions cluster connections.
        if text.hasPrefix("ERR max number of clients") { return .tooManyClients }
        // A password for a user that has none.
        if text.hasPrefix("ERR AUTH") { return .notAdmitted }
        // Redis versions word the refusal of a command inside a script differently.
        let isOfScript =
            text.contains("The user executing the script can't") || text.contains("ACL failure in script")
        return isOfScript ? .notAllowed : .other
    }

    /// `nil` for a redirect that makes no sense; its address is `nil` where the server does not know one.
    private static func redirect(_ words: [Substring]) -> (slot: Int, address: RedisAddress?)? {
        guard words.count >= 3, let slot = Int(words[1]), (0..<RedisSlot.count).contains(slot),
            let address = RedisAddress(words[2])
        else { return nil }
        return (slot, address.host == "?" ? nil : address)
    }

    /// The first word, by which servers tell errors apart.
    package var code: Substring { text.prefix { $0 != " " } }

    /// Whether the same command may succeed in a moment, perhaps at another server.
    package var isPassing: Bool {
        switch kind {
        case .moved, .ask, .tryAgain, .clusterDown, .loading, .readOnly, .busy, .outOfMemory, .cannotPersist,
            .noReplicas, .unblocked, .tooManyClients:
            true
        case .noScript, .notAdmitted, .notAllowed, .other: false
        }
    }

    /// Whether another server, or the same one in a moment, has what was asked for.
    var isOnItsWay: Bool {
        switch kind {
        case .moved, .ask, .tryAgain: true
        default: false
        }
    }

    package var description: String { text }
}
