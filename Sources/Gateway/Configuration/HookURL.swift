/// The URL of the hook: HTTPS to any host, or HTTP to this machine.
package struct HookURL: Hashable, Sendable, CustomStringConvertible {
    package let text: String
    /// Whether the scheme is HTTPS; with HTTP, each connection is restricted to loopback addresses.
    package let isSecure: Bool

    package enum Refusal: Error, Equatable {
        case malformed, hasCredentials, plaintextBeyondLoopback
    }

    package init(_ text: String) throws(Refusal) {
        guard text.utf8.count <= 2_048, text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: "\\") })
        else { throw .malformed }
        let rest: Substring
        let lowered = text.lowercased()
        if lowered.hasPrefix("https://") {
            (rest, isSecure) = (text.dropFirst(8), true)
        } else if lowered.hasPrefix("http://") {
            (rest, isSecure) = (text.dropFirst(7), false)
        } else {
            throw .malformed
        }
        guard !rest.contains("#") else { throw .malformed }
        let authority = rest.prefix { $0 != "/" && $0 != "?" }
        guard !authority.contains("@") else { throw .hasCredentials }
        guard let host = Self.host(of: authority) else { throw .malformed }
        guard isSecure || host == "localhost" || ListenAddress.isLoopback(host: host) else {
            throw .plaintextBeyondLoopback
        }
        self.text = text
    }

    package var description: String { text }

    private static func host(of authority: Substring) -> String? {
        var host = authority
        if authority.hasPrefix("[") {
            guard let end = authority.firstIndex(of: "]") else { return nil }
            host = authority[authority.index(after: authority.startIndex)..<end]
            let after = authority[authority.index(after: end)...]
            guard after.isEmpty || after.hasPrefix(":") && isPort(after.dropFirst()) else { return nil }
        } else if let colon = authority.firstIndex(of: ":") {
            guard isPort(authority[authority.index(after: colon)...]) else { return nil }
            host = authority[..<colon]
        }
        return host.isEmpty ? nil : host.lowercased()
    }

    private static func isPort(_ text: Substring) -> Bool {
        guard !text.isEmpty, text.utf8.allSatisfy({ $0 >= 48 && $0 <= 57 }) else { return false }
        return (UInt16(text) ?? 0) != 0
    }
}
