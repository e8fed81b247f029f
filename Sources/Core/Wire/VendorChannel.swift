/// A push vendor that delivers to devices, with its own tokens, contents, jobs and leases.
///
/// Raw values are stored in four bits and sent in frames, so a value must never be reused. A new channel needs a case here, a
/// renderer of its content, and code in each switch that the compiler then reports.
public enum VendorChannel: UInt8, Sendable, CaseIterable, Codable {
    case apns = 0

    /// The name in requests, answers, metrics and logs.
    public var name: StaticString {
        switch self {
        case .apns: "apns"
        }
    }

    public init?(named name: String) {
        guard let channel = Self.allCases.first(where: { "\($0.name)" == name }) else { return nil }
        self = channel
    }
}
