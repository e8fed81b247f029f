internal import Delivery
internal import Wire

/// A gateway's identity, sent when it connects to another gateway and as the answer.
struct LinkHello: Codable, Equatable, Sendable {
    var cluster: String
    var node: Int
    /// A random value that distinguishes two processes with the same number.
    var instance: UInt64
    /// The number of the node that the sender connects to; in an answer, the number of the connecting node.
    var wanted: Int
    var release: String
    /// The sender's version of the link protocol, and the lowest one it supports.
    var version: Int
    var lowestVersion: Int
    var parts: Int
}

struct LinkClose: Codable, Equatable, Sendable, CustomStringConvertible {
    enum Code: UInt8, Codable, Sendable {
        /// The peer belongs to another cluster, or has another number of partitions.
        case otherCluster = 1
        case wrongVersion
        /// The wanted number belonged to an earlier process at this address.
        case staleNode
        /// Another process uses the peer's number.
        case duplicate
        case malformed
        /// The gateway is stopping or overloaded, or the link timed out.
        case unavailable
        /// A newer connection of the same peer replaces this one.
        case replaced
    }

    var code: Code
    var reason: String

    var description: String { reason }
}

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

    /// The encoded body; encoding cannot fail, because every field is a text or a number.
    var bytes: [UInt8] { (try? CompactEncoder.encode(self)) ?? [] }
}

extension LinkHello: LinkForm {}
extension LinkClose: LinkForm {}

/// The supported versions of the link protocol: the current one and, from the second release on, the previous one.
struct LinkVersions: Equatable, Sendable {
    /// Incremented with each release that changes the link protocol.
    static let current = LinkVersions(version: 3, lowest: 3)

    var version: Int
    var lowest: Int

    /// Returns the highest version that both sides support, or `nil` without one.
    func common(with other: LinkVersions) -> Int? {
        let common = min(version, other.version)
        return common >= max(lowest, other.lowest) ? common : nil
    }
}

/// The data that precedes a relayed device's connection.
struct RelayPreamble: Sendable {
    var hello: LinkHello
    var peer: String
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
        /// The device's Hello, encoded as in the device protocol.
        var deviceHello: [UInt8]
        /// The parts of the Hello that the accepting gateway removed, for the owner's log.
        var refusedTokens: RefusedTokens?
        var droppedAttributes: [String]?
    }

    private static let secretByteCount = 32
    /// The maximum number of dropped attribute names to accept; a device has fewer attributes.
    private static let droppedNameCount = 16

    /// Decodes a frame's body.
    ///
    /// - Throws: An error for bytes that no gateway sends; the device's Hello must pass the checks of the accepting gateway.
    init(_ body: UnsafeRawBufferPointer) throws {
        let form = try CompactDecoder.decode(Form.self, from: body)
        var device = try form.deviceHello.withUnsafeBytes { try Hello(decoding: $0.bytes) }
        guard device.role == .device, device.tokens.allSatisfy({ (try? $0.cleaned()) == $0 }), !form.cid.isNone,
            form.newSecret.map({ $0.count == Self.secretByteCount }) ?? true, device.hasCleanAttributes
        else { throw LinkFault.malformed("a relayed device's Hello") }
        device.refusedTokens = form.refusedTokens ?? RefusedTokens()
        device.droppedAttributes = (form.droppedAttributes ?? []).prefix(Self.droppedNameCount).map {
            String($0.prefix(32))
        }
        self.init(
            hello: form.hello, peer: form.peer, isSecure: form.isSecure,
            device: AdoptedHello(
                app: form.app, bucket: form.bucket, cid: form.cid, newSecret: form.newSecret,
                transcript: form.transcript, hello: device))
    }

    func encoded() throws -> [UInt8] {
        var deviceHello: [UInt8] = []
        device.hello.appendBody(to: &deviceHello)
        return try CompactEncoder.encode(
            Form(
                hello: hello, peer: peer, isSecure: isSecure, app: device.app, bucket: device.bucket, cid: device.cid,
                newSecret: device.newSecret, transcript: device.transcript, deviceHello: deviceHello,
                refusedTokens: device.hello.refusedTokens, droppedAttributes: device.hello.droppedAttributes))
    }
}

extension Hello {
    fileprivate var hasCleanAttributes: Bool {
        var copy = attributes
        return copy?.clean().isEmpty ?? true
    }
}
