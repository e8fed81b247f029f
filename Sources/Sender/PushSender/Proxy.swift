internal import Configuration
internal import TextForms

/// A proxy and the hosts that are reached without it, in the form of `NO_PROXY`.
struct ProxyChoice: Sendable, Equatable {
    var proxy: Proxy
    var exceptions = ""
}

struct Proxy: Sendable, Equatable {
    var host: String
    var port: UInt16
    /// The credentials, `user:password`.
    var credentials: Secret?

    /// The address for display, without the credentials.
    var name: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }

    /// The header `Proxy-Authorization`; the credentials are used for nothing else.
    var authorization: String {
        credentials.map { "Basic " + Base64.encode($0.bytes, .standard) } ?? ""
    }

    static let form = "http://HOST:PORT, a proxy that takes CONNECT in the clear"

    /// Parses `http://[USER:PASSWORD@]HOST[:PORT]`, with percent-encoded credentials; returns `nil` for anything else.
    init?(url: String) {
        guard url.lowercased().hasPrefix("http://") else { return nil }
        var rest = url.dropFirst(7)
        if rest.hasSuffix("/") { rest = rest.dropLast() }
        if let at = rest.lastIndex(of: "@") {
            guard let text = Self.decoded(rest[..<at]), !text.isEmpty else { return nil }
            credentials = Secret(text.contains(":") ? text : text + ":")
            rest = rest[rest.index(after: at)...]
        }
        var (host, port) = (String(rest), UInt16(80))
        let isNumeric6 = host.hasPrefix("[") && host.hasSuffix("]")
        if !isNumeric6, let colon = host.lastIndex(of: ":") {
            guard let number = UInt16(host[host.index(after: colon)...]), number > 0 else { return nil }
            (host, port) = (String(host[..<colon]), number)
        }
        if host.hasPrefix("["), host.hasSuffix("]") {
            host = String(host.dropFirst().dropLast())
            guard ListenAddress("[\(host)]:1") != nil else { return nil }
        } else {
            guard !host.isEmpty, host.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && !"/:@?#[]".utf8.contains($0) }) else {
                return nil
            }
        }
        (self.host, self.port) = (host, port)
    }

    /// Decodes a percent-encoded part; returns `nil` for control characters or a bad escape.
    private static func decoded(_ part: Substring) -> String? {
        guard let bytes = part.utf8.percentDecoded(), bytes.allSatisfy({ $0 >= 0x20 && $0 != 0x7F }) else { return nil }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Whether a list such as `NO_PROXY` contains a host: by its name, a parent domain, or `*`.
    static func isExcepted(_ host: String, by list: String) -> Bool {
        let host = host.lowercased()
        return list.split(whereSeparator: { $0 == "," || $0 == " " }).contains { entry in
            var name = entry.lowercased()
            if name == "*" { return true }
            if let colon = name.lastIndex(of: ":"), UInt16(name[name.index(after: colon)...]) != nil {
                name = String(name[..<colon])
            }
            while name.hasPrefix("*") || name.hasPrefix(".") { name.removeFirst() }
            return !name.isEmpty && (host == name || host.hasSuffix("." + name))
        }
    }
}
