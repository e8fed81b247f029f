internal import TextForms

/// The address of another server: a name or an IP address, and a port.
///
/// Unlike in a `ListenAddress`, the host may be a name, which is resolved when a connection is made.
package struct HostPort: Hashable, Sendable, CustomStringConvertible {
    /// A name, or a numeric address without brackets.
    package let host: String
    package let port: UInt16

    package init(host: String, port: UInt16) { (self.host, self.port) = (host, port) }

    /// Parses `HOST:PORT` and `[IPV6]:PORT`, port 1 to 65535; `nil` for anything else.
    package init?(_ text: String) {
        guard let colon = text.lastIndex(of: ":") else { return nil }
        let digits = text[text.index(after: colon)...]
        guard 1...5 ~= digits.utf8.count, digits.utf8.allSatisfy(\.isDigit), let port = UInt16(digits), port > 0
        else { return nil }
        let host = String(text[..<colon])
        if host.hasPrefix("[") {
            guard let address = ListenAddress(text) else { return nil }
            self.init(host: address.host, port: port)
            return
        }
        guard Self.isName(host) else { return nil }
        self.init(host: host, port: port)
    }

    package static let allowed = "\"HOST:PORT\", as \"redis-1.example:6379\", \"10.0.0.7:6379\" or \"[fd00::7]:6379\""

    package var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }

    /// Whether the text is a host name: letters, digits, hyphens, underscores and dots; numeric IPv4 addresses match, too.
    private static func isName(_ text: String) -> Bool {
        1...253 ~= text.utf8.count && text.utf8.first != UInt8(ascii: ".") && text.utf8.first != UInt8(ascii: "-")
            && text.isPlain(with: "-_.")
    }
}
