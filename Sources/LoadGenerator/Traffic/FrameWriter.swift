internal import Wire

/// Encodes the generator's own frames of the live path straight into a buffer that has room for them.
enum FrameWriter {
    /// An Ack of one position: header 4, positions tag and length 2, two varint fields of at most 11 and 2 bytes.
    static let largestAckByteCount = 24
    /// A Publish around its payload: header 4, request 11, cid 18, payload's tag and length 6, and slack.
    static let publishOverheadByteCount = 48

    /// Writes an Ack of everything up to `sequence` in `stream`.
    ///
    /// `start` has room for `largestAckByteCount`; the answer is how many bytes were written.
    @inline(__always)
    static func ack(stream: UInt64, sequence: UInt64, at start: UnsafeMutableRawPointer) -> Int {
        // The two length bytes are known only afterwards; both lengths fit one byte each.
        var end = 6
        if stream != 0 { field(1, number: stream & 0x7F, at: start, &end) }
        field(2, number: sequence, at: start, &end)
        head(.ack, bodyByteCount: end - 4, at: start)
        start.storeBytes(of: 1 << 3 | 2, toByteOffset: 4, as: UInt8.self)
        start.storeBytes(of: UInt8(end - 6), toByteOffset: 5, as: UInt8.self)
        return end
    }

    /// Writes a Publish whose payload is `payload` with its first eight bytes replaced by `mark`.
    ///
    /// `fields` are further fields, encoded already. The payload has `Limits.smallestPayloadByteCount` or more; `start` has room for it and for
    /// `publishOverheadByteCount`. The answer is how many bytes were written.
    @inline(__always)
    static func publish(
        request: UInt64, cid: DeviceID, mark: UInt64, payload: UnsafeRawBufferPointer,
        then fields: UnsafeRawBufferPointer = UnsafeRawBufferPointer(start: nil, count: 0),
        at start: UnsafeMutableRawPointer
    ) -> Int {
        var end = 4
        field(1, number: request, at: start, &end)
        start.storeBytes(of: 2 << 3 | 2, toByteOffset: end, as: UInt8.self)
        start.storeBytes(of: 16, toByteOffset: end + 1, as: UInt8.self)
        start.storeBytes(of: cid.high.bigEndian, toByteOffset: end + 2, as: UInt64.self)
        start.storeBytes(of: cid.low.bigEndian, toByteOffset: end + 10, as: UInt64.self)
        end += 18
        start.storeBytes(of: 3 << 3 | 2, toByteOffset: end, as: UInt8.self)
        end += 1
        varint(UInt64(payload.count), at: start, &end)
        (start + end).copyMemory(from: payload.baseAddress!, byteCount: payload.count)
        start.storeBytes(of: mark.bigEndian, toByteOffset: end, as: UInt64.self)
        end += payload.count
        if let more = fields.baseAddress {
            (start + end).copyMemory(from: more, byteCount: fields.count)
            end += fields.count
        }
        head(.publish, bodyByteCount: end - 4, at: start)
        return end
    }

    @inline(__always)
    private static func head(_ type: FrameType, bodyByteCount: Int, at start: UnsafeMutableRawPointer) {
        start.storeBytes(
            of: (UInt32(type.rawValue) << 24 | UInt32(bodyByteCount)).bigEndian, toByteOffset: 0, as: UInt32.self)
    }

    @inline(__always)
    private static func field(
        _ number: UInt8, number value: UInt64, at start: UnsafeMutableRawPointer, _ end: inout Int
    ) {
        start.storeBytes(of: number << 3, toByteOffset: end, as: UInt8.self)
        end += 1
        varint(value, at: start, &end)
    }

    @inline(__always)
    private static func varint(_ value: UInt64, at start: UnsafeMutableRawPointer, _ end: inout Int) {
        var rest = value
        while rest >= 0x80 {
            start.storeBytes(of: UInt8(truncatingIfNeeded: rest) | 0x80, toByteOffset: end, as: UInt8.self)
            rest >>= 7
            end += 1
        }
        start.storeBytes(of: UInt8(rest), toByteOffset: end, as: UInt8.self)
        end += 1
    }
}
