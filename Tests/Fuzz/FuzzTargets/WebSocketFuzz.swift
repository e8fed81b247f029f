internal import EventLoops
internal import EventLoopsKit

/// Parses a client's bytes as a WebSocket: every division into pieces yields the same payload, which is never longer than the
/// input.
///
/// Input: a choice, the number of pieces, a byte for the length of each, then a request or frames.
enum WebSocketFuzz {
    static func run(_ input: [UInt8]) throws {
        var script = Script(input)
        let isGreeting = script.byte() & 1 == 1
        let pieces = (0..<script.choice(16)).map { _ in Int(script.byte()) }
        let stream = script.rest()
        if isGreeting { return try greet(stream) }

        let whole = WebSocketTranscript(stream)
        let split = WebSocketTranscript(stream, pieces: pieces)
        try require(whole == split, "pieces change what is read: \(whole) and \(split)")
        try require(whole.tookAll, "a step that waits for more left bytes: \(whole)")
        try require(whole.payload.count + whole.pingByteCount <= stream.count, "more payload than bytes")
        if let code = whole.fault?.code.rawValue {
            try require([1002, 1003, 1007].contains(code), "a fault with code \(code)")
        }
    }

    /// Checks that every prefix of an accepted request is incomplete or refused, and that only a key gets a proof.
    private static func greet(_ stream: [UInt8]) throws {
        let answer = greeting(stream[...])
        switch answer {
        case .incomplete: break
        case .accepted(let bytes):
            let text = String(decoding: bytes, as: UTF8.self)
            try require(
                text.hasPrefix("HTTP/1.1 101 ") && text.hasSuffix("\r\n\r\n"), "an answer that is none: \(text)")
            try require(text.contains("Sec-WebSocket-Accept: "), "a WebSocket without a proof")
            for count in 0..<stream.count {
                if case .accepted = greeting(stream[..<count]) {
                    throw FuzzFailure(description: "a request is whole before its end")
                }
            }
        case .refused(let status, let bytes):
            try require(
                [400, 403, 405, 413, 414, 417, 426, 431, 501, 505].contains(status), "a refusal with status \(status)")
            try require(bytes.starts(with: Array("HTTP/1.1 \(status) ".utf8)), "an answer with another status")
        }
    }

    private static func greeting(_ bytes: ArraySlice<UInt8>) -> WebSocketGreeting.Answer {
        // A separate allocation, so that AddressSanitizer detects a read past its end.
        Array(bytes).withUnsafeBytes {
            WebSocketGreeting.answer($0) { $0.origin == nil || $0.isSameOrigin ? .accept : .refuse(status: 403, "no") }
        }
    }
}
