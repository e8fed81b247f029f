internal import Cluster

extension MembershipEvent {
    var logName: LogName {
        switch self {
        case .memberJoined: .memberJoined
        case .memberLeft: .memberLeft
        case .memberExpired: .memberExpired
        case .partTaken: .partTaken
        case .partGiven: .partGiven
        case .partLost: .partLost
        case .openFailed: .partNotOpened
        case .epochTaken: .partEpochTaken
        case .registerCorrected: .registerCorrected
        case .leaseLapsed: .leaseLapsed
        case .left: .clusterLeft
        }
    }

    var level: LogLevel {
        switch self {
        case .memberJoined, .memberLeft, .partTaken, .partGiven, .left: .info
        case .memberExpired, .partLost, .openFailed, .epochTaken, .registerCorrected, .leaseLapsed: .warning
        }
    }

    var text: String {
        func name(_ node: NodeID?) -> String { node.map { "gateway \($0)" } ?? "no gateway" }
        return switch self {
        case .memberJoined(let node, let address, let release): "gateway \(node) at \(address), release \(release)"
        case .memberLeft(let node, let address): "gateway \(node) at \(address)"
        case .memberExpired(let node): "gateway \(node) refuses connections and does not renew its lease"
        case .partTaken(let part, let epoch, let from, let wasPlanned):
            "part \(part) with epoch \(epoch) from \(name(from))\(wasPlanned ? ", which gave it" : "")"
        case .partGiven(let part, let epoch, let to): "part \(part) of epoch \(epoch) to \(name(to))"
        case .partLost(let part, let epoch):
            "part \(part) of epoch \(epoch): a successor, or another program (redisEvent), wrote to its log"
        case .openFailed(let part, let epoch): "part \(part) with epoch \(epoch); tried again"
        case .epochTaken(let part, let epoch, let top):
            "part \(part): its log has epoch \(top), and the register gave \(epoch)"
        case .registerCorrected(let part, let epoch): "part \(part) is this gateway's with epoch \(epoch)"
        case .leaseLapsed(let count): "this gateway's lease ran out, the \(count). time lately"
        case .left: "all parts are given away"
        }
    }
}
