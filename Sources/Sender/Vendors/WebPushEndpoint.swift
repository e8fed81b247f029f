internal import TextForms

/// A permitted host of Web Push endpoints: `host`, `*.suffix`, and either with `:port`.
struct WebPushHost: Sendable, Equatable {
    private let name: String
    private let isSuffix: Bool
    let port: UInt16

    /// The push services of the common browsers.
    ///
    /// A subscription names one of them; other hosts need configuration.
    static let standard = [
        "fcm.googleapis.com", "updates.push.services.mozilla.com", "*.push.services.mozilla.com", "web.push.apple.com",
        "*.push.apple.com", "*.notify.windows.com",
    ]

    init?(_ text: String) {
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        guard (1...2).contains(parts.count) else { return nil }
        isSuffix = parts[0].hasPrefix("*.")
        name = (isSuffix ? parts[0].dropFirst(2) : parts[0]).lowercased()
        guard WebPushEndpoint.isHostName(name) else { return nil }
        guard parts.count == 2 else {
            port = 443
            return
        }
        guard let number = UInt16(parts[1]), number > 0, !parts[1].hasPrefix("+") else { return nil }
        port = number
    }

    func permits(_ host: String, _ port: UInt16) -> Bool {
        self.port == port && (isSuffix ? host.hasSuffix("." + name) : host == name)
    }
}

/// The endpoint of a subscription.
///
/// Endpoints come from strangers' devices. Without these checks, a device could make this server send requests to internal hosts.
struct WebPushEndpoint: Sendable, Equatable {
    let url: String
    /// Scheme, host and port: the audience of the VAPID token.
    let origin: String

    static let byteCount = 1_536

    enum Refusal: Error, Equatable {
        case malformed, notHTTPS, hasUserInfo, isAddress, hostNotAllowed
    }

    init(_ text: String, allowed: [WebPushHost]) throws(Refusal) { self = try Self(text[...], allowed: allowed) }

    init(_ text: Substring, allowed: [WebPushHost]) throws(Refusal) {
        // Parses the UTF-8 bytes, because a search by `Character` takes many times longer.
        let bytes = text.utf8
        guard bytes.count <= Self.byteCount, bytes.allSatisfy({ Self.isPermitted($0) }) else { throw .malformed }
        guard bytes.prefix(8).elementsEqual("https://".utf8, by: { $0 | 0x20 == $1 || $0 == $1 }) else {
            throw .notHTTPS
        }
        let rest = bytes.dropFirst(8)
        let authority = rest.prefix { $0 != UInt8(ascii: "/") && $0 != UInt8(ascii: "?") }
        guard !authority.contains(UInt8(ascii: "@")) else { throw .hasUserInfo }
        guard !authority.contains(UInt8(ascii: "[")), !authority.contains(UInt8(ascii: "%")) else { throw .isAddress }
        let parts = authority.split(separator: UInt8(ascii: ":"), omittingEmptySubsequences: false)
        guard (1...2).contains(parts.count) else { throw .malformed }
        let host = String(decoding: parts[0].map { Self.isUpper($0) ? $0 | 0x20 : $0 }, as: UTF8.self)
        guard Self.isHostName(host) else { throw Self.looksNumeric(host) ? .isAddress : .malformed }
        var port: UInt16 = 443
        if parts.count == 2 {
            guard parts[1].allSatisfy(\.isDigit), let number = UInt16(Substring(parts[1])), number > 0 else {
                throw .malformed
            }
            port = number
        }
        guard allowed.contains(where: { $0.permits(host, port) }) else { throw .hostNotAllowed }
        // The path is kept, and the authority is rebuilt, so that no other URL parser can find another host in it.
        origin = "https://" + host + (port == 443 ? "" : ":\(port)")
        url = origin + String(Substring(rest.dropFirst(authority.count)))
    }

    private static func isUpper(_ byte: UInt8) -> Bool { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte) }

    /// Whether a byte of a URL needs no escape.
    private static func isPermitted(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "\\"), UInt8(ascii: "#"), UInt8(ascii: "\""), UInt8(ascii: "<"), UInt8(ascii: ">"),
            UInt8(ascii: "^"), UInt8(ascii: "`"), UInt8(ascii: "{"), UInt8(ascii: "|"), UInt8(ascii: "}"):
            false
        default: (0x21...0x7E).contains(byte)
        }
    }

    /// Returns whether a text is a DNS name of at least two labels whose last one is no number.
    ///
    /// Resolvers read `127.1`, `0x7f.1` and `2130706433` as addresses; all end in a label that begins with a digit.
    static func isHostName(_ text: String) -> Bool {
        let labels = text.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard text.utf8.count <= 253, labels.count >= 2, !looksNumeric(text) else { return false }
        let dash = UInt8(ascii: "-")
        return labels.allSatisfy { label in
            (1...63).contains(label.count) && Substring(label).isPlain(with: "-") && label.first != dash
                && label.last != dash
        }
    }

    private static func looksNumeric(_ host: String) -> Bool {
        host.utf8.split(separator: UInt8(ascii: ".")).last?.first?.isDigit ?? false
    }
}

/// A subscription of a browser: `ENDPOINT#P256DH.AUTH`.
struct WebPushSubscription: Sendable, Equatable {
    let endpoint: WebPushEndpoint
    /// The browser's public point: 65 bytes.
    let publicPoint: [UInt8]
    /// The browser's secret: 16 bytes.
    let secret: [UInt8]

    enum Refusal: Error, Equatable {
        case endpoint(WebPushEndpoint.Refusal)
        case keys
    }

    init(token: String, allowed: [WebPushHost]) throws(Refusal) {
        let parts = token.utf8.split(separator: UInt8(ascii: "#"), omittingEmptySubsequences: false)
        guard parts.count == 2 else { throw .keys }
        do throws(WebPushEndpoint.Refusal) {
            endpoint = try WebPushEndpoint(Substring(parts[0]), allowed: allowed)
        } catch {
            throw .endpoint(error)
        }
        let keys = parts[1].split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard keys.count == 2, let point = Base64.decode(keys[0], .url), point.count == 65, point[0] == 4,
            let secret = Base64.decode(keys[1], .url), secret.count == 16
        else { throw .keys }
        (publicPoint, self.secret) = (point, secret)
    }
}
