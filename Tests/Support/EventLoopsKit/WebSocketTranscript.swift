package import EventLoops

/// The result of reading a client's stream: the payload, the steps between, and the error, if any.
///
/// The reader's unit tests and its fuzz target both check it.
package struct WebSocketTranscript: Equatable {
    package private(set) var payload: [UInt8] = []
    package private(set) var steps: [WebSocketReader.Step] = []
    package private(set) var fault: WebSocketReader.Fault?
    /// Whether each `.incomplete` step consumed all available bytes.
    package private(set) var tookAll = true

    /// Feeds the reader pieces of these lengths, then the remaining bytes.
    package init(_ stream: [UInt8], pieces: [Int] = []) {
        var reader = WebSocketReader()
        var start = 0
        for piece in pieces + [stream.count] where start < stream.count {
            let end = min(stream.count, start + piece)
            // Each piece has its own allocation, so that AddressSanitizer detects a read past its end.
            var arrived = Array(stream[start..<end])
            start = end
            guard take(&arrived, &reader) else { return }
        }
    }

    package var pingByteCount: Int {
        steps.reduce(0) { sum, step in
            if case .ping(let payload) = step { sum + payload.count } else { sum }
        }
    }

    /// Returns false after a close step or an error.
    private mutating func take(_ arrived: inout [UInt8], _ reader: inout WebSocketReader) -> Bool {
        arrived.withUnsafeMutableBytes { bytes in
            guard let target = bytes.baseAddress else { return true }
            var (offset, filled) = (0, 0)
            while true {
                do throws(WebSocketReader.Fault) {
                    let rest = UnsafeRawBufferPointer(rebasing: bytes[offset...])
                    let taken = try reader.take(rest, into: target + filled)
                    offset += taken.byteCount
                    switch taken.step {
                    case .incomplete:
                        if offset != bytes.count { tookAll = false }
                        return true
                    case .payload(let count):
                        payload += bytes[filled..<filled + count]
                        filled += count
                    case .close:
                        steps.append(taken.step)
                        return false
                    default: steps.append(taken.step)
                    }
                } catch {
                    fault = error
                    return false
                }
            }
        }
    }
}
