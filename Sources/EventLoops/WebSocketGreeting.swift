internal import Cryptography
internal import TextForms

/// A client's request to turn an HTTP connection into a WebSocket, and the answer to it (RFC 6455, section 4.2); pure.
package enum WebSocketGreeting {
    /// What is answered, as the bytes to send.
    package enum Answer: Equatable {
        /// More bytes are needed.
        case incomplete
        /// From behind the answer on both sides send frames.
        case accepted([UInt8])
        /// The connection ends with the answer.
        case refused(status: Int, [UInt8])
    }

    /// What the server decides about a request that is in order.
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

    /// The parts of a request that a server's own rules look at.
    package struct Request {
        /// As it was sent.
        package var target: UnsafeRawBufferPointer
        package var host: UnsafeRawBufferPointer
        /// The site whose page asks; `nil` for a program that is no browser.
        package var origin: UnsafeRawBufferPointer?

        /// The page comes from the very host and port that it asks.
        package var isSameOrigin: Bool {
            guard let origin, let scheme = WebSocketGreeting.place(of: "://", in: origin) else { return false }
            return WebSocketGreeting.areEqual(UnsafeRawBufferPointer(rebasing: origin[(scheme + 3)...]), host)
        }
    }

    /// The one subprotocol there is: the frames of Proto/README.md.
    static let subprotocol: StaticString = "longwire.v1"
    /// A browser's request with its cookies; more is refused.
    package static let headByteLimit = 8 * 1024

    /// Answers the request at the front of `bytes`, which were the first of a connection.
    ///
    /// Nothing may stand behind the request: a client sends its first frame when it has the answer.
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
        return answer(
            isGet: reader.method == .get, isHTTP10: reader.isHTTP10, target: reader.target,
            value: { reader.value(UnsafeRawBufferPointer(start: $0.utf8Start, count: $0.utf8CodeUnitCount)) }, judge)
    }

    /// Answers a request that was read already; `value` gives a header's.
    static func answer(
        isGet: Bool, isHTTP10: Bool, target: UnsafeRawBufferPointer,
        value: (StaticString) -> UnsafeRawBufferPointer?, _ judge: (Request) -> Verdict
    ) -> Answer {
        guard let host = value("host") else { return refusal(400, "the request names no host") }
        if case .refuse(let status, let reason) = judge(Request(target: target, host: host, origin: value("origin"))) {
            return refusal(status, reason)
        }
        guard isGet, !isHTTP10 else { return refusal(400, "a WebSocket begins with a GET of HTTP/1.1") }
        guard lists("websocket", value("upgrade")), lists("upgrade", value("connection")) else {
            return refusal(426, "a WebSocket is served here: send Upgrade: websocket and Connection: Upgrade")
        }
        guard let version = value("sec-websocket-version"), areEqual(version, bytes("13")) else {
            return refusal(426, "the version of WebSockets is 13")
        }
        guard let key = value("sec-websocket-key"), Base64.decode(key, .standard)?.count == 16 else {
            return refusal(400, "Sec-WebSocket-Key has to be 16 bytes in base 64")
        }
        var text = Array("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n".utf8)
        text += Array("Sec-WebSocket-Accept: \(accept(key))\r\n".utf8)
        if lists(subprotocol, value("sec-websocket-protocol")) {
            text += Array("Sec-WebSocket-Protocol: \(subprotocol)\r\n".utf8)
        }
        return .accepted(text + [0x0D, 0x0A])
    }

    /// What proves that the server read the request as a WebSocket's.
    private static func accept(_ key: UnsafeRawBufferPointer) -> String {
        Base64.encode(SHA1.digest(Array(key) + Array("258EAFA5-E914-47DA-95CA-C5AB0DC85B11".utf8)), .standard)
    }

    private static func refusal(_ status: Int, _ reason: StaticString) -> Answer {
        var text = "HTTP/1.1 \(status) \(HTTPAnswer.reason(status))\r\nContent-Type: text/plain\r\n"
        if status == 426 { text += "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" }
        text += "Content-Length: \(reason.utf8CodeUnitCount + 1)\r\nConnection: close\r\n\r\n\(reason)\n"
        return .refused(status: status, Array(text.utf8))
    }

    // MARK: Texts

    private static func bytes(_ text: StaticString) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount)
    }

    /// Whether a comma-separated header names `word`, in any case.
    private static func lists(_ word: StaticString, _ value: UnsafeRawBufferPointer?) -> Bool {
        guard let value else { return false }
        var start = 0
        while start <= value.count {
            let end = value[start...].firstIndex(of: 0x2C) ?? value.count
            var (first, last) = (start, end)
            while first < last, value[first] == 0x20 || value[first] == 0x09 { first += 1 }
            while last > first, value[last - 1] == 0x20 || value[last - 1] == 0x09 { last -= 1 }
            if areEqual(UnsafeRawBufferPointer(rebasing: value[first..<last]), bytes(word)) { return true }
            start = end + 1
        }
        return false
    }

    /// In any case.
    package static func areEqual(_ one: UnsafeRawBufferPointer, _ other: UnsafeRawBufferPointer) -> Bool {
        func lowered(_ byte: UInt8) -> UInt8 { (0x41...0x5A).contains(byte) ? byte | 0x20 : byte }
        return one.count == other.count && zip(one, other).allSatisfy { lowered($0) == lowered($1) }
    }

    private static func place(of text: StaticString, in value: UnsafeRawBufferPointer) -> Int? {
        let wanted = bytes(text)
        guard value.count >= wanted.count else { return nil }
        return (0...value.count - wanted.count).first { place in
            wanted.indices.allSatisfy { value[place + $0] == wanted[$0] }
        }
    }
}
