internal import EventLoops

/// Parses a byte stream as HTTP requests: every division into pieces yields the same requests and the same end.
///
/// Input: the limits, the number of pieces, a byte for the length of each, then the stream.
enum HTTPFuzz {
    static func run(_ input: [UInt8]) throws {
        var script = Script(input)
        let headerLimit = script.pick([64 << 10, 64, 256])
        let bodyLimit = script.pick([8 << 20, 0, 16])
        let pieces = (0..<script.choice(16)).map { _ in Int(script.byte()) }
        let stream = script.rest()

        let whole = cut(stream, pieces: [], headerLimit, bodyLimit)
        let split = cut(stream, pieces: pieces, headerLimit, bodyLimit)
        try require(whole == split, "pieces change what is read: \(whole) and \(split)")
        for request in whole.requests {
            try require(request.body.count <= bodyLimit, "a body beyond the limit was taken")
            try require(request.target.allSatisfy { $0 > 0x20 && $0 != 0x7F }, "a target with control characters")
            try require(request.isPadded, "no zeros stand behind the body")
            try require(
                request.value?.contains { $0 == 0x0D || $0 == 0x0A || $0 == 0 } != true, "a header with a line break")
        }
        if let refusal = whole.refusal {
            try require([400, 413, 414, 417, 431, 501, 505].contains(refusal), "a refusal with status \(refusal)")
        }
    }

    private struct Request: Equatable {
        var method: HTTPMethod
        var target: [UInt8]
        var value: [UInt8]?
        var body: [UInt8]
        var isPadded: Bool
    }

    private struct Cut: Equatable {
        var requests: [Request] = []
        var refusal: Int?
    }

    /// Parses received bytes as a connection does; each request is answered at once.
    private static func cut(_ stream: [UInt8], pieces: [Int], _ headerLimit: Int, _ bodyLimit: Int) -> Cut {
        var cut = Cut()
        var reader = HTTPReader(headerByteLimit: headerLimit, bodyByteLimit: bodyLimit)
        var (received, consumed) = (0, 0)
        for piece in pieces + [stream.count] {
            received = min(stream.count, received + piece)
            // A separate allocation lets AddressSanitizer detect a read past the received bytes.
            let arrived = Array(stream[consumed..<received])
            var offset = 0
            while offset < arrived.count {
                do throws(HTTPHead.Refusal) {
                    let taken = try take(&reader, arrived, from: offset)
                    offset += taken.byteCount
                    guard case .complete = taken.step else { break }
                } catch {
                    cut.refusal = error.status
                    return cut
                }
                cut.requests.append(request(of: reader))
                reader.next()
            }
            consumed += offset
        }
        return cut
    }

    private static func take(
        _ reader: inout HTTPReader, _ bytes: [UInt8], from offset: Int
    ) throws(HTTPHead.Refusal) -> (byteCount: Int, step: HTTPReader.Step) {
        try bytes.withUnsafeBytes { bytes in
            Result { () throws(HTTPHead.Refusal) in
                try reader.take(UnsafeRawBufferPointer(rebasing: bytes[offset...]))
            }
        }.get()
    }

    private static func request(of reader: borrowing HTTPReader) -> Request {
        let body = reader.body
        let isPadded = (0..<Limits.bodyPaddingByteCount).allSatisfy {
            body.baseAddress?.load(fromByteOffset: body.count + $0, as: UInt8.self) == 0
        }
        let name = Array("x".utf8)
        let value = name.withUnsafeBytes { reader.value($0).map { Array($0) } }
        return Request(
            method: reader.method, target: Array(reader.target), value: value, body: Array(body), isPadded: isPadded)
    }
}
