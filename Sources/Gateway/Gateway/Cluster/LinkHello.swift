internal import Delivery
internal import Wire

/// What a gateway says of itself when it connects to another, and what the other one answers.
struct LinkHello: Codable, Equatable, Sendable {
    var cluster: String
    /// The sender's number.
    var node: Int
    /// Tells two processes with one number apart.
    var instance: UInt64
    /// The number of the node that the sender wants to talk to; in an answer, the number of the asker.
    var wanted: Int
    var release: String
    /// The link's version that the sender speaks, and the lowest one that it understands.
    var version: Int
    var lowestVersion: Int
    var parts: Int
}

/// Why a gateway ends a connection, as its Close frame says.
struct LinkClose: Codable, Equatable, Sendable, CustomStringConvertible {
    enum Code: UInt8, Codable, Sendable {
        /// The peer is of another cluster, or its number of parts differs.
        case otherCluster = 1
        case wrongVersion
        /// The node that the peer wants is not this one: its number is of an earlier process at this address.
        case staleNode
        /// Another process has the peer's number.
        case duplicate
        /// The peer broke the protocol.
        case malformed
        /// The gateway stops, or has no room.
        case unavailable
        /// A newer connection of the same peer takes this one's place.
        case replaced
    }

    var code: Code
    var reason: String

    var description: String { reason }
}

/// The forms of both in a frame.
protocol LinkForm: Codable {}

extension LinkForm {
    init?(_ body: UnsafeRawBufferPointer) {
        guard let value = try? CompactDecoder.decode(Self.self, from: body) else { return nil }
        self = value
    }

    init?(_ bytes: [UInt8]) {
        guard let value = bytes.withUnsafeBytes({ Self($0) }) else { return nil }
        self = value
    }

    /// The frame's body; texts and numbers have a form always.
    var bytes: [UInt8] { (try? CompactEncoder.encode(self)) ?? [] }
}

extension LinkHello: LinkForm {}
extension LinkClose: LinkForm {}

/// Which versions of the link a gateway speaks: its own and, from the second release on, the one before it.
struct LinkVersions: Equatable, Sendable {
    /// Rises by one with each release that changes what a link carries.
    static let current = LinkVersions(version: 2, lowest: 2)

    var version: Int
    var lowest: Int

    /// The version that both sides speak; `nil`: there is none.
    func common(with other: LinkVersions) -> Int? {
        let common = min(version, other.version)
        return common >= max(lowest, other.lowest) ? common : nil
    }
}

/// What goes before a device's connection to the gateway that owns the device.
struct RelayPreamble: Sendable {
    var hello: LinkHello
    /// The device's address, for the log.
    var peer: String
    /// The device's connection is a TLS one.
    var isSecure: Bool
    var device: AdoptedHello
}

extension RelayPreamble {
    private struct Form: Codable {
        var hello: LinkHello
        var peer: String
        var isSecure: Bool
        var app: AppKey
        var bucket: Bucket
        var cid: DeviceID
        var newSecret: [UInt8]?
        var transcript: [UInt8]
        /// As the device sent it, in the form of the device's own protocol.
        var deviceHello: [UInt8]
    }

    private static let secretByteCount = 32

    /// Reads a frame's body.
    ///
    /// - Throws: for bytes that no gateway sends: the device's Hello is held to what the gateway that took it checked.
    init(_ body: UnsafeRawBufferPointer) throws {
        let form = try CompactDecoder.decode(Form.self, from: body)
        let device = try form.deviceHello.withUnsafeBytes { try Hello(decoding: $0.bytes) }
        guard device.role == .device, device.tokens.allSatisfy({ (try? $0.cleaned()) == $0 }), !form.cid.isNone,
            form.newSecret.map({ $0.count == Self.secretByteCount }) ?? true
        else { throw LinkFault.malformed("a relayed device's Hello") }
        self.init(
            hello: form.hello, peer: form.peer, isSecure: form.isSecure,
            device: AdoptedHello(
                app: form.app, bucket: form.bucket, cid: form.cid, newSecret: form.newSecret,
                transcript: form.transcript, hello: device))
    }

    /// The frame's body.
    func encoded() throws -> [UInt8] {
        var deviceHello: [UInt8] = []
        device.hello.appendBody(to: &deviceHello)
        return try CompactEncoder.encode(
            Form(
                hello: hello, peer: peer, isSecure: isSecure, app: device.app, bucket: device.bucket, cid: device.cid,
                newSecret: device.newSecret, transcript: device.transcript, deviceHello: deviceHello))
    }
}
