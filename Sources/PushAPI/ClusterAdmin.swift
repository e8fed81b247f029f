/// What an operator wishes of a cluster: the register keeps it, and the gateways carry it out.
internal import JSON

package enum ClusterRequest: Sendable, Equatable {
    /// The gateway gives all its parts away and takes none; `nil`: the one that is asked.
    case drain(node: Int?)
    case undrain(node: Int?)
    /// The part goes to the gateway, and stays while that is there; `nil`: to whichever should have it.
    case move(part: Int, to: Int?)
}

/// A cluster as one of its gateways sees it.
package struct ClusterStatus: Sendable {
    package struct Node: Sendable {
        package var node: Int
        package var address: String
        package var release: String
        /// What is left of its lease, in milliseconds.
        package var leaseMilliseconds: Int64
        package var isDrained: Bool
        package var isLeaving: Bool
        package init(
            node: Int, address: String, release: String, leaseMilliseconds: Int64, isDrained: Bool, isLeaving: Bool
        ) {
            (self.node, self.address, self.release) = (node, address, release)
            (self.leaseMilliseconds, self.isDrained, self.isLeaving) = (leaseMilliseconds, isDrained, isLeaving)
        }
    }

    package struct Part: Sendable {
        package var part: Int
        /// `unclaimed`, `claimed`, `open`, `released` or `failed`.
        package var state: String
        package var epoch: UInt64
        /// Who owns it, or 0.
        package var node: Int
        package init(part: Int, state: String, epoch: UInt64, node: Int) {
            (self.part, self.state, self.epoch, self.node) = (part, state, epoch, node)
        }
    }

    package var name: String
    /// The gateway that answers.
    package var node: Int
    /// Since the register was last reached.
    package var registerAgeMilliseconds: Int64
    package var registerError: String?
    package var nodes: [Node] = []
    package var parts: [Part] = []

    package init(name: String, node: Int, registerAgeMilliseconds: Int64, registerError: String?) {
        (self.name, self.node) = (name, node)
        (self.registerAgeMilliseconds, self.registerError) = (registerAgeMilliseconds, registerError)
    }
}

/// Answers of the admin API about a cluster.
package enum ClusterAnswer {
    package static let none = AdminFault(
        .notFound, "this gateway is no member of a cluster; store.redis and cluster make it one"
    ).response

    package static let done = APIResponse(status: 200, body: Array(#"{"status":"accepted"}"#.utf8))

    package static func refused(_ reason: String) -> APIResponse { AdminFault(.invalidParameter, reason).response }

    package static func status(_ status: ClusterStatus) -> APIResponse {
        var writer = JSONWriter(capacity: 256 + 64 * status.parts.count + 128 * status.nodes.count)
        writer.beginObject()
        writer.key("name")
        writer.string(status.name)
        writer.key("node")
        writer.integer(Int64(status.node))
        writer.key("registerAgeMilliseconds")
        writer.integer(status.registerAgeMilliseconds)
        if let error = status.registerError {
            writer.key("registerError")
            writer.string(error)
        }
        writer.key("nodes")
        writer.beginArray()
        for node in status.nodes {
            writer.beginObject()
            writer.key("node")
            writer.integer(Int64(node.node))
            writer.key("address")
            writer.string(node.address)
            writer.key("release")
            writer.string(node.release)
            writer.key("leaseMilliseconds")
            writer.integer(node.leaseMilliseconds)
            writer.key("parts")
            writer.integer(Int64(status.parts.count { $0.node == node.node }))
            writer.key("drained")
            writer.bool(node.isDrained)
            writer.key("leaving")
            writer.bool(node.isLeaving)
            writer.endObject()
        }
        writer.endArray()
        writer.key("parts")
        writer.beginArray()
        for part in status.parts {
            writer.beginObject()
            writer.key("part")
            writer.integer(Int64(part.part))
            writer.key("state")
            writer.string(part.state)
            writer.key("epoch")
            writer.integer(part.epoch)
            writer.key("node")
            if part.node == 0 { writer.null() } else { writer.integer(Int64(part.node)) }
            writer.endObject()
        }
        writer.endArray()
        writer.endObject()
        return APIResponse(status: 200, body: writer.bytes)
    }
}

extension StrictObject {
    /// The wish of `POST /v1/cluster/drain`.
    static func drain(_ body: JSONValue) throws(AdminFault) -> ClusterRequest {
        let fields = try StrictObject(body, known: ["node", "undo"])
        let node = try fields.integer("node", in: 1...1_023).map { Int($0) }
        guard let undo = body["undo"] else { return .drain(node: node) }
        guard let isUndone = undo.bool else { throw .invalid("undo is true or false") }
        return isUndone ? .undrain(node: node) : .drain(node: node)
    }

    /// The wish of `POST /v1/cluster/move`.
    static func move(_ body: JSONValue) throws(AdminFault) -> ClusterRequest {
        let fields = try StrictObject(body, known: ["part", "to"])
        guard let part = try fields.integer("part", in: 0...255) else { throw .invalid("part is missing") }
        return .move(part: Int(part), to: try fields.integer("to", in: 1...1_023).map { Int($0) })
    }
}
