internal import TextForms

/// The scheme, host and port of a vendor's service, without a path's trailing slash.
///
/// Settings can replace a vendor's address: for a region's host, or for a test double on this machine.
struct ServiceAddress: Sendable, Equatable {
    let text: String

    /// The address of a constant that is known to be valid.
    init(_ text: StaticString) { self.text = "\(text)" }

    /// Reads an `https` address of any host, or an `http` address of this machine.
    init?(setting: String) {
        var text = setting
        while text.hasSuffix("/") { text.removeLast() }
        guard text.utf8.count <= 512,
            text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && !"\\#?@\"<>".utf8.contains($0) })
        else { return nil }
        let isSecure = text.hasPrefix("https://")
        guard isSecure || text.hasPrefix("http://") else { return nil }
        let authority = text.dropFirst(isSecure ? 8 : 7).prefix { $0 != "/" }
        let host = authority.hasPrefix("[") ? authority.prefix { $0 != "]" } + "]" : authority.prefix { $0 != ":" }
        guard !host.isEmpty, authority.hasPrefix("[") || host.isPlain(with: ".-") else { return nil }
        guard isSecure || ["localhost", "127.0.0.1", "[::1]"].contains(String(host)) else { return nil }
        self.text = text
    }
}
