@testable import EventLoops

/// A client's bytes become a WebSocket and its payload: the same however they arrive, and never more than came.
///
/// Input: a choice, the number of pieces, a byte for the length of each, then a request or frames.
enum WebSocketFuzz {
    static func run(_ input: [UInt8]) throws {
        var script = Script(input)
        let isGreeting = script.byte() & 1 == 1
        let pieces = (0..<script.choice(16)).map { _ in Int(script.byte()) }
        let stream = script.rest()
        if isGreeting { return try greet(stream) }

        let whole = read(stream, pieces: [])
        let split = read(stream, pieces: pieces)
        try require(whole == split, "pieces change what is read: \(whole) and \(split)")
        try require(whole.payload.count + whole.controlByteCount <= stream.count, "more payload than bytes")
        if let code = whole.code { try require([1002, 1003, 1007].contains(code), "a fault with code \(code)") }
    }

    private struct Reading: Equatable {
        var payload: [UInt8] = []
        var steps: [String] = []
        var controlByteCount = 0
        var code: UInt16?
    }

    /// What a stream does with what arrives, payload in place of the frames.
    private static func read(_ stream: [UInt8], pieces: [Int]) -> Reading {
        var reading = Reading()
        var reader = WebSocketReader()
        var start = 0
        for piece in pieces + [stream.count] where start < stream.count {
            let end = min(stream.count, start + piece)
            // A buffer of its own, so that an access past what has arrived is one past an allocation.
            var arrived = Array(stream[start..<end])
            start = end
            guard take(&arrived, &reader, &reading) else { break }
        }
        return reading
    }

    /// False at the end of the WebSocket.
    private static func take(
        _ arrived: inout [UInt8], _ reader: inout WebSocketReader, _ reading: inout Reading
    ) -> Bool {
        arrived.withUnsafeMutableBytes { bytes in
            guard let target = bytes.baseAddress else { return true }
            var (offset, filled) = (0, 0)
            while true {
                do throws(WebSocketReader.Fault) {
                    let rest = UnsafeRawBufferPointer(rebasing: bytes[offset...])
                    let taken = try reader.take(rest, into: target + filled)
                    offset += taken.byteCount
                    switch taken.step {
                    case .incomplete: return true
                    case .payload(let count):
                        reading.payload += bytes[filled..<filled + count]
                        filled += count
                    case .ping(let payload):
                        reading.controlByteCount += payload.count
                        reading.steps.append("ping \(payload)")
                    case .close(let code):
                        reading.steps.append("close \(code?.rawValue ?? 0)")
                        return false
                    case .pong, .frameEnd: reading.steps.append("\(taken.step)")
                    }
                } catch {
                    reading.code = error.code.rawValue
                    return false
                }
            }
        }
    }

    /// Every prefix of a request that is answered waits for more or is refused, and a proof is given for a key only.
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
            try require([400, 403, 413, 417, 426, 431, 501, 505].contains(status), "a refusal with status \(status)")
            try require(bytes.starts(with: Array("HTTP/1.1 \(status) ".utf8)), "an answer with another status")
        }
    }

    private static func greeting(_ bytes: ArraySlice<UInt8>) -> WebSocketGreeting.Answer {
        // A buffer of its own, as above.
        Array(bytes).withUnsafeBytes {
            WebSocketGreeting.answer($0) { $0.origin == nil || $0.isSameOrigin ? .accept : .refuse(status: 403, "no") }
        }
    }
}
