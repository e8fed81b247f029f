/// A vendor's way to a device: whose tokens, contents, jobs and leases these are.
///
/// Raw values are stored in four bits and travel in frames: never reuse one. A new channel is a case here, a renderer of
/// its content, and an answer in each place that the compiler then names.
public enum VendorChannel: UInt8, Sendable, CaseIterable, Codable {
    case apns = 0

    /// The name in requests, answers, metrics and logs.
    public var name: StaticString {
        switch self {
        case .apns: "apns"
        }
    }

    /// The channel of this name.
    public init?(named name: String) {
        guard let channel = Self.allCases.first(where: { "\($0.name)" == name }) else { return nil }
        self = channel
    }
}
