internal import Vendors

/// A channel of the gateway's handoff queue.
enum Channel: Hashable, Sendable {
    case apns
    case vendor(Vendor)

    static let all: [Channel] = [.apns] + Vendor.allCases.map { .vendor($0) }

    init?(name: String) {
        guard let found = Self.all.first(where: { $0.name == name }) else { return nil }
        self = found
    }

    /// The name in the handoff API, in metrics and in the configuration.
    var name: String {
        switch self {
        case .apns: "apns"
        case .vendor(let vendor): vendor.rawValue
        }
    }
}
