internal import Cryptography
package import Delivery
internal import JSON
internal import TextForms
internal import Wire

/// A token that an app's server signs for a device: a JSON Web Token (RFC 7519) with HS256 or RS256.
///
/// HS256 uses the app's masterSecrets of 32 bytes or more; RS256 uses the app's `registration.publicKeys`. Each key has one
/// algorithm, so that a public key is never used as a secret.
package struct ServerToken: Sendable, Equatable {
    /// The claim `sub`: the alias that the device may bind; empty if the token has none.
    package var alias: String
    /// The claim `alias_type`; empty if the token has none.
    package var aliasType: String

    /// The minimum length of a secret for HS256 (RFC 7518, section 3.2).
    package static let secretByteCount = 32
    /// The tolerated difference between the clocks of the server and the gateway, in milliseconds.
    private static let clockTolerance: Int64 = 60_000
    /// The maximum of a time claim in seconds, so that a conversion to milliseconds cannot overflow.
    private static let greatestTime: Int64 = 1 << 40

    package struct Fault: Error, Sendable, Equatable {
        package var reason: StaticString
        package init(reason: StaticString) { self.reason = reason }

        package static func == (left: Fault, right: Fault) -> Bool { "\(left.reason)" == "\(right.reason)" }
    }

    /// Verifies a token and reads its claims.
    ///
    /// - Parameters:
    ///   - text: Three parts in base64url without padding, at most `Wire.Limits.webTokenByteCount` bytes.
    ///   - app: The app of the device.
    ///   - now: Gateway time, in milliseconds.
    /// - Throws: The reason of the first failed check.
    package init(_ text: String, app: App, now: GatewayTime) throws(Fault) {
        let bytes = Array(text.utf8)
        let parts = bytes.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard bytes.count <= Wire.Limits.webTokenByteCount, parts.count == 3,
            let header = Base64.decode(parts[0], .url), let claims = Base64.decode(parts[1], .url),
            let signature = Base64.decode(parts[2], .url)
        else { throw Fault(reason: "the token is no JSON Web Token in three parts") }
        try Self.check(header, signature, of: Array(bytes[..<parts[1].endIndex]), app)
        let parser = JSONParser(byteLimit: Wire.Limits.webTokenByteCount, depthLimit: 8)
        guard let root = Self.object(claims, parser) else {
            throw Fault(reason: "the token's claims are no JSON object")
        }
        guard let audience = root["aud"],
            audience.string == app.appID || audience.elements.contains(where: { $0.string == app.appID })
        else { throw Fault(reason: "the token's aud is not this app's id") }
        guard let end = root["exp"]?.integer, 0...Self.greatestTime ~= end else {
            throw Fault(reason: "the token has no exp in whole seconds")
        }
        guard end * 1_000 + Self.clockTolerance > now else {
            throw Fault(reason: "the token has expired; get a new one from the app's server")
        }
        if let start = root["nbf"] {
            guard let start = start.integer, 0...Self.greatestTime ~= start else {
                throw Fault(reason: "the token's nbf is no whole number of seconds")
            }
            guard start * 1_000 - Self.clockTolerance <= now else { throw Fault(reason: "the token is not valid yet") }
        }
        (alias, aliasType) = ("", "")
        if let subject = root["sub"] {
            guard let text = subject.string else { throw Fault(reason: "the token's sub is no text") }
            alias = text
        }
        if let type = root["alias_type"] {
            guard let text = type.string else { throw Fault(reason: "the token's alias_type is no text") }
            aliasType = text
        }
    }

    private static func check(
        _ header: [UInt8], _ signature: [UInt8], of message: [UInt8], _ app: App
    ) throws(Fault) {
        let parser = JSONParser(byteLimit: Wire.Limits.webTokenByteCount, depthLimit: 8)
        guard let root = object(header, parser) else { throw Fault(reason: "the token's header is no JSON object") }
        // This gateway supports no critical extensions and must therefore refuse them (RFC 7515, section 4.1.11).
        guard root["crit"] == nil else { throw Fault(reason: "the token has critical extensions") }
        switch root["alg"]?.string {
        case "HS256":
            var isSigned = false
            let secrets = app.masterSecrets.filter { $0.utf8.count >= secretByteCount }
            guard !secrets.isEmpty else {
                throw Fault(reason: "HS256 needs a masterSecret of 32 bytes or more")
            }
            for secret in secrets where HMACSHA256.isCode(signature, of: message, key: Array(secret.utf8)) {
                isSigned = true
            }
            guard isSigned else { throw Fault(reason: "no masterSecret of the app signed the token") }
        case "RS256":
            guard app.tokenKeys.contains(where: { $0.isSignature(signature, of: message) }) else {
                throw Fault(reason: "no key of the app's registration.publicKeys signed the token")
            }
        default: throw Fault(reason: "the token's alg must be HS256 or RS256")
        }
    }

    private static func object(_ bytes: [UInt8], _ parser: JSONParser) -> JSONValue? {
        bytes.withUnsafeBytes { bytes in
            guard let root = try? parser.parse(bytes), root.kind == .object, !parser.hasUnreadable else { return nil }
            return root
        }
    }
}
