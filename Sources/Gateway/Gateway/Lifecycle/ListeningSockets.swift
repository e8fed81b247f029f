internal import Configuration
internal import EventLoops

/// The listening sockets, one per loop and address, bound before the first connection is accepted.
struct ListeningSockets {
    var device: [ListeningSocket.Handle]?
    var deviceTLS: [ListeningSocket.Handle]?
    var senders: [ListeningSocket.Handle]?
    var sendersTLS: [ListeningSocket.Handle]?
    var http: [ListeningSocket.Handle]?
    var httpTLS: [ListeningSocket.Handle]?
    var admin: [ListeningSocket.Handle]?
    var adminTLS: [ListeningSocket.Handle]?

    /// - Throws: An error with the address that cannot be bound, and a remedy.
    init(_ configuration: GatewayConfiguration) throws(ListenFailure) {
        let count = configuration.loopCount
        func group(_ address: ListenAddress?) throws(ListenFailure) -> [ListeningSocket.Handle]? {
            guard let address else { return nil }
            return try ListeningSocket.group(address.description, count: count)
        }
        device = try group(configuration.device.plain)
        deviceTLS = try group(configuration.device.tls?.address)
        senders = try group(configuration.senders.plain)
        sendersTLS = try group(configuration.senders.tls?.address)
        http = try group(configuration.http.plain)
        httpTLS = try group(configuration.http.tls?.address)
        admin = try group(configuration.admin.plain)
        adminTLS = try group(configuration.admin.tls?.address)
    }
}
