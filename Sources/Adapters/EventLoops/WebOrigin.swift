/// The scheme, host and port of a site, as in a browser's header `Origin` (RFC 6454, section 4); the scheme's default port may be
/// omitted: `https://example.com:443` equals `https://example.com`.
package struct WebOrigin: Hashable, Sendable {
    private let isSecure: Bool
    private let host: [UInt8]
    private let port: UInt16

    /// Fails unless the text is `http` or `https`, a host and an optional port.
    package init?(_ text: UnsafeRawBufferPointer) {
        let schemes: [(text: StaticString, isSecure: Bool)] = [("https://", true), ("http://", false)]
        for scheme in schemes {
            let count = scheme.text.utf8CodeUnitCount
            guard text.count > count,
                zip(text, 0..<count).allSatisfy({ Self.lowered($0) == scheme.text.utf8Start[$1] }),
                let (host, port) = Self.split(text[count...], isSecure: scheme.isSecure)
            else { continue }
            (isSecure, self.host, self.port) = (scheme.isSecure, host, port)
            return
        }
        return nil
    }

    package init?(_ text: String) {
        var text = text
        guard let origin = text.withUTF8({ WebOrigin(UnsafeRawBufferPointer($0)) }) else { return nil }
        self = origin
    }

    /// Returns whether the value of a header `Host` names the same site, with the scheme of this origin.
    package func isServed(at host: UnsafeRawBufferPointer) -> Bool {
        guard let (name, port) = Self.split(host[...], isSecure: isSecure) else { return false }
        return name == self.host && port == self.port
    }

    private static func split(
        _ place: Slice<UnsafeRawBufferPointer>, isSecure: Bool
    ) -> (host: [UInt8], port: UInt16)? {
        let standard: UInt16 = isSecure ? 443 : 80
        // The colons of an IPv6 address are in brackets.
        var end = place.endIndex
        if let colon = place.lastIndex(of: 0x3A), !place[colon...].contains(0x5D) { end = colon }
        let digits = place[end...].dropFirst()
        let port = digits.isEmpty ? standard : UInt16(String(decoding: digits, as: UTF8.self))
        guard place.startIndex < end, let port, digits.allSatisfy({ (0x30...0x39).contains($0) }),
            !place[..<end].contains(where: { [0x2F, 0x3F, 0x23, 0x40].contains($0) })
        else { return nil }
        return (place[..<end].map(lowered), port)
    }

    private static func lowered(_ byte: UInt8) -> UInt8 { (0x41...0x5A).contains(byte) ? byte | 0x20 : byte }
}
