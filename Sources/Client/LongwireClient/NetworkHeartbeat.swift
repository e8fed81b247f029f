/// What one network has taught about silent connections, as the state keeps it.
struct NetworkHeartbeat: Equatable, Sendable {
    /// As `networkChanged(named:)` names it; empty: the network without a name.
    var network: String
    var plan: HeartbeatPlan

    /// As it stands in a stored state.
    var line: String {
        "heartbeat -\(ClientState.hex(Array(network.utf8))) \(plan.learnt ?? 0) \(plan.ceiling) \(plan.failed ?? 0)"
    }

    init(network: String, plan: HeartbeatPlan) { (self.network, self.plan) = (network, plan) }

    /// Reads what `line` writes; `nil` for anything else.
    init?(values: [Substring]) {
        guard values.count == 4, values[0].first == "-", let name = ClientState.bytes(hex: values[0].dropFirst()),
            let learnt = UInt32(values[1]), let ceiling = UInt32(values[2]), let failed = UInt32(values[3])
        else { return nil }
        network = String(decoding: name, as: UTF8.self)
        plan = HeartbeatPlan(learnt: learnt, ceiling: ceiling, failed: failed)
    }
}

extension ClientState {
    /// What is known of a network.
    func heartbeat(on network: String) -> HeartbeatPlan {
        heartbeats.first { $0.network == network }?.plan ?? HeartbeatPlan()
    }

    /// Keeps what a network has taught; the network of the last call stands last, and the oldest ones go.
    mutating func keep(_ plan: HeartbeatPlan, on network: String) {
        heartbeats.removeAll { $0.network == network }
        // Nothing is known of a network that nobody named.
        guard !network.isEmpty || plan.learnt != nil || plan.failed != nil else { return }
        heartbeats.append(NetworkHeartbeat(network: network, plan: plan))
        heartbeats.removeFirst(max(0, heartbeats.count - Limits.networkCount))
    }
}
