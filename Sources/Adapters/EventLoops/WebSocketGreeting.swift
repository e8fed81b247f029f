internal import Cryptography
internal import TextForms

/// The WebSocket opening handshake of a server (RFC 6455, section 4.2), without I/O.
package enum WebSocketGreeting {
    package enum Answer: Equatable {
        case incomplete
        /// The upgrade succeeded; both sides send frames after the response.
        case accepted([UInt8])
        /// The connection ends after the response.
        case refused(status: Int, [UInt8])
    }

    package enum Verdict: Equatable {
        case accept
        case refuse(status: Int, StaticString)

        package static func == (left: Verdict, right: Verdict) -> Bool {
            switch (left, right) {
            case (.accept, .accept): true
            case (.refuse(let one, _), .refuse(let other, _)): one == other
            default: false
            }
        }
    }

    package struct Request {
        package var target: UnsafeRawBufferPointer
        package var host: UnsafeRawBufferPointer
        /// The origin of the requesting page, or `nil` for a client that is no browser.
        package var origin: UnsafeRawBufferPointer?

        /// Whether the page comes from the requested host and port.
        package var isSameOrigin: Bool { origin.flatMap { WebOrigin($0) }?.isServed(at: host) ?? false }
    }

    /// The only subprotocol: the frames of Proto/README.md.
    static let subprotocol: StaticString = "longwire.v1"
    /// The maximum size of a request head, enough for a browser's request with cookies.
    package static let headByteLimit = 8 * 1024

    /// Returns the response to the request in `bytes`; no bytes may follow it, since a client waits for the response.
    package static func answer(
        _ bytes: UnsafeRawBufferPointer, judging judge: (Request) -> Verdict
    ) -> Answer {
        var reader = HTTPReader(headerByteLimit: headByteLimit, bodyByteLimit: 0)
        do throws(HTTPHead.Refusal) {
            let taken = try reader.take(bytes)
            guard case .complete = taken.step else { return .incomplete }
            guard taken.byteCount == bytes.count else {
                return refusal(400, "frames follow the request before its answer")
            }
        } catch {
            return refusal(error.status, error.reason)
        }
        return answer(reader, judge)
    }

    static func answer(_ reader: borrowing HTTPReader, _ judge: (Request) -> Verdict) -> Answer {
        let isShown = reader.method != .head
        func refusal(_ status: Int, _ reason: StaticString) -> Answer { Self.refusal(status, reason, isShown: isShown) }
        let origin: UnsafeRawBufferPointer?
        switch reader.field("origin") {
        case .absent: origin = nil
        case .one(let value): origin = value
        case .several: return refusal(400, "the request has several origins")
        }
        let request = Request(target: reader.target, host: reader.host, origin: origin)
        if case .refuse(let status, let reason) = judge(request) { return refusal(status, reason) }
        guard reader.method == .get else { return refusal(405, "a WebSocket begins with GET") }
        guard !reader.isHTTP10 else { return refusal(400, "a WebSocket begins with HTTP/1.1") }
        guard reader.lists("websocket", in: "upgrade"), reader.lists("upgrade", in: "connection") else {
            return refusal(426, "a WebSocket is served here: send Upgrade: websocket and Connection: Upgrade")
        }
        guard case .one(let version) = reader.field("sec-websocket-version"), version.elementsEqual("13".utf8) else {
            return refusal(426, "the version of WebSockets is 13")
        }
        guard case .one(let key) = reader.field("sec-websocket-key"), Base64.decode(key, .standard)?.count == 16 else {
            return refusal(400, "Sec-WebSocket-Key has to be 16 bytes in base 64")
        }
        var text = Array("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n".utf8)
        text += Array("Sec-WebSocket-Accept: \(accept(key))\r\n".utf8)
        if reader.lists(subprotocol, in: "sec-websocket-protocol", inAnyCase: false) {
            text += Array("Sec-WebSocket-Protocol: \(subprotocol)\r\n".utf8)
        }
        return .accepted(text + [0x0D, 0x0A])
    }

    /// Returns the value of Sec-WebSocket-Accept for a key.
    private static func accept(_ key: UnsafeRawBufferPointer) -> String {
        Base64.encode(SHA1.digest(Array(key) + Array("258EAFA5-E914-47DA-95CA-C5AB0DC85B11".utf8)), .standard)
    }

    private static func refusal(_ status: Int, _ reason: StaticString, isShown: Bool = true) -> Answer {
        var text = "HTTP/1.1 \(status) \(HTTPAnswer.reason(status))\r\nContent-Type: text/plain\r\n"
        if status == 405 { text += "Allow: GET\r\n" }
        if status == 426 { text += "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" }
        text += "Content-Length: \(reason.utf8CodeUnitCount + 1)\r\nConnection: close\r\n\r\n"
        if isShown { text += "\(reason)\n" }
        return .refused(status: status, Array(text.utf8))
    }
}
