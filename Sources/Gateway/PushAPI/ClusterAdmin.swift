/// An operator's request to a cluster; the register stores it, and the gateways carry it out.
internal import JSON

package enum ClusterRequest: Sendable, Equatable {
    /// Makes the gateway release all its partitions and claim none; for `nil`, the gateway that gets the request.
    case drain(node: Int?)
    case undrain(node: Int?)
    /// Moves the partition to the gateway, where it stays while the gateway is up; for `nil`, the default owner gets it.
    case move(part: Int, to: Int?)
}

package struct ClusterStatus: Sendable {
    package struct Node: Sendable {
        package var node: Int
        package var address: String
        package var release: String
        /// The remaining time of the gateway's lease, in milliseconds.
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
        /// The owner's number, or 0.
        package var node: Int
        package init(part: Int, state: String, epoch: UInt64, node: Int) {
            (self.part, self.state, self.epoch, self.node) = (part, state, epoch, node)
        }
    }

    package var name: String
    package var node: Int
    /// The time since the last contact with the register.
    package var registerAgeMilliseconds: Int64
    package var registerError: String?
    package var nodes: [Node] = []
    package var parts: [Part] = []

    package init(name: String, node: Int, registerAgeMilliseconds: Int64, registerError: String?) {
        (self.name, self.node) = (name, node)
        (self.registerAgeMilliseconds, self.registerError) = (registerAgeMilliseconds, registerError)
    }
}

package enum ClusterAnswer {
    package static let none = AdminFault(
        .notFound, "this gateway is no member of a cluster; store.redis and cluster make it one"
    ).response

    package static let done = APIResponse(status: 200, body: Array(#"{"status":"accepted"}"#.utf8))

    package static func refused(_ reason: String) -> APIResponse { AdminFault(.invalidParameter, reason).response }

    package static func status(_ status: ClusterStatus) -> APIResponse {
        let nodes = status.nodes.map { node -> JSONObject in
            [
                "node": node.node, "address": node.address, "release": node.release,
                "leaseMilliseconds": node.leaseMilliseconds, "parts": status.parts.count { $0.node == node.node },
                "drained": node.isDrained, "leaving": node.isLeaving,
            ]
        }
        let parts = status.parts.map { part -> JSONObject in
            let owner: any JSONWritable = part.node == 0 ? JSONNull() : part.node
            return ["part": part.part, "state": part.state, "epoch": part.epoch, "node": owner]
        }
        return .object([
            "name": status.name, "node": status.node, "registerAgeMilliseconds": status.registerAgeMilliseconds,
            "registerError": status.registerError, "nodes": nodes, "parts": parts,
        ])
    }
}

extension StrictObject {
    /// Parses the body of `POST /v1/cluster/drain`.
    static func drain(_ body: JSONValue) throws(AdminFault) -> ClusterRequest {
        let fields = try StrictObject(body, known: ["node", "undo"])
        let node = try fields.integer("node", in: 1...1_023).map { Int($0) }
        guard let undo = body["undo"] else { return .drain(node: node) }
        guard let isUndone = undo.bool else { throw .invalid("undo is true or false") }
        return isUndone ? .undrain(node: node) : .drain(node: node)
    }

    /// Parses the body of `POST /v1/cluster/move`.
    static func move(_ body: JSONValue) throws(AdminFault) -> ClusterRequest {
        let fields = try StrictObject(body, known: ["part", "to"])
        guard let part = try fields.integer("part", in: 0...255) else { throw .invalid("part is missing") }
        return .move(part: Int(part), to: try fields.integer("to", in: 1...1_023).map { Int($0) })
    }
}
