internal import Console
internal import EventLoops
internal import PushAPI

/// The console's files on the admin listener, at `/console` and below, and the description of the API at `/openapi.yaml`.
///
/// The root path redirects to the console. The files contain no data of this gateway and need no credential, but the page's calls
/// to the admin API need one.
enum ConsolePage {
    private static let root = Array("/console".utf8)
    private static let files = Dictionary(uniqueKeysWithValues: ConsoleFile.all.map { ($0.name, $0) })
    /// The page may load only its own files and call only this listener; no other page may frame it.
    private static let headers: [(name: String, value: String)] = [
        (
            "Content-Security-Policy",
            """
            default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
            base-uri 'none'; form-action 'none'; frame-ancestors 'none'
            """
        ),
        ("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY"), ("Referrer-Policy", "no-referrer"),
        // Another release of the gateway has different files under the same names.
        ("Cache-Control", "no-cache"),
    ]

    static func isTarget(_ target: UnsafeRawBufferPointer) -> Bool {
        if target.elementsEqual("/".utf8) || target.elementsEqual("/openapi.yaml".utf8) { return true }
        guard target.starts(with: root) else { return false }
        guard target.count > root.count else { return true }
        return [UInt8(ascii: "/"), UInt8(ascii: "?")].contains(target[root.count])
    }

    static func isDevice(_ target: UnsafeRawBufferPointer) -> Bool {
        RequestPath(target).isMade(of: "console", "device")
    }

    /// Returns the file that `target` names, or an error response.
    static func reply(_ method: HTTPMethod, _ target: UnsafeRawBufferPointer) -> HTTPReply {
        guard method == .get || method == .head else {
            return HTTPReply(
                status: 405, headers: [("Allow", "GET, HEAD")], body: Array("the console is read with GET\n".utf8))
        }
        if target.elementsEqual("/".utf8) {
            return HTTPReply(
                status: 302, headers: [("Location", "/console")], body: Array("the console is at /console\n".utf8))
        }
        let path = (target.starts(with: root) ? target.dropFirst(root.count) : target[...]).prefix {
            $0 != UInt8(ascii: "?")
        }
        let name = String(decoding: path.drop { $0 == UInt8(ascii: "/") }, as: UTF8.self)
        guard let file = files[name.isEmpty ? ConsoleFile.all[0].name : name] else {
            return HTTPReply(status: 404, body: Array("the console has no such file; it begins at /console\n".utf8))
        }
        return HTTPReply(status: 200, contentType: file.contentType, headers: headers, body: file.bytes)
    }
}
