/// The operator's log, one line per occurrence.
struct SenderLog: Sendable {
    var write: @Sendable (_ event: String, _ text: String) -> Void

    /// The level of an event, as in the gateway's log, and its priority in syslog(3).
    static func level(of event: String) -> (name: String, priority: Int) {
        switch event {
        case "started", "reloaded", "stopping", "stopped", "terminalClosed": ("info", 6)
        case "credentialRefused", "noCredential", "reloadRefused": ("error", 3)
        default: ("warning", 4)
        }
    }

    /// Whether the failure number `count` is logged: the first three, then each time the number doubles.
    static func isLogged(_ count: Int) -> Bool { count <= 3 || count & (count - 1) == 0 }

    func connectionFailed(_ lane: String, _ host: String, _ reason: String, count: Int) {
        guard Self.isLogged(count) else { return }
        write("connectionFailed", "\(lane): \(host): \(reason) (\(count) in a row)")
    }
}
