// Just enough of the protocol to run at full speed: what the generator must know of a frame, read in place. Everything
// rare (Welcome, Close) goes through module Wire instead. Whatever the bytes are, reading them yields a value or nil.

/// The four bytes before a frame's body.
struct FrameHead: Equatable {
    static let byteCount = 4
    var type: UInt8
    var bodyByteCount: Int

    /// - Returns: `nil` while fewer than four bytes are there.
    @inline(__always)
    init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.count >= Self.byteCount else { return nil }
        type = bytes[0]
        bodyByteCount = Int(bytes[1]) << 16 | Int(bytes[2]) << 8 | Int(bytes[3])
    }
}

/// Reads the fields of a body one by one.
struct FieldScanner {
    private let bytes: UnsafeRawBufferPointer
    private var offset = 0

    enum Value {
        case number(UInt64)
        case bytes(UnsafeRawBufferPointer)
        /// A fixed-width field, which no frame read here has.
        case other
    }

    init(_ bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

    var isAtEnd: Bool { offset >= bytes.count }

    /// The next field; `nil` when what follows is none.
    ///
    /// Check `isAtEnd` first.
    @inline(__always)
    mutating func next() -> (number: UInt64, value: Value)? {
        guard let tag = varint(), tag >> 3 != 0 else { return nil }
        switch tag & 7 {
        case 0:
            guard let value = varint() else { return nil }
            return (tag >> 3, .number(value))
        case 2:
            guard let length = varint(), length <= UInt64(bytes.count - offset) else { return nil }
            let start = offset
            offset += Int(length)
            return (tag >> 3, .bytes(UnsafeRawBufferPointer(rebasing: bytes[start..<offset])))
        case 1, 5:
            let length = tag & 7 == 1 ? 8 : 4
            guard length <= bytes.count - offset else { return nil }
            offset += length
            return (tag >> 3, .other)
        default: return nil
        }
    }

    @inline(__always)
    private mutating func varint() -> UInt64? {
        var value: UInt64 = 0
        var shift: UInt64 = 0
        while offset < bytes.count, shift < 64 {
            let byte = bytes[offset]
            offset += 1
            value |= UInt64(byte & 0x7F) &<< shift
            if byte < 0x80 { return value }
            shift += 7
        }
        return nil
    }
}

/// What the generator wants of a Deliver.
struct DeliverScan: Equatable {
    var stream: UInt64 = 0
    var sequence: UInt64 = 0
    /// The message's number: the payload's first eight bytes, big-endian, or the digits that an HTTP body's begins with.
    ///
    /// `nil` for a shorter payload, which is not ours.
    var mark: UInt64?
    var isOffline = false

    /// - Returns: `nil` when the body is no sequence of fields.
    @inline(__always)
    init?(_ body: UnsafeRawBufferPointer) {
        var scanner = FieldScanner(body)
        while !scanner.isAtEnd {
            guard let (number, value) = scanner.next() else { return nil }
            switch (number, value) {
            case (1, .number(let value)): stream = value
            case (2, .number(let value)): sequence = value
            case (5, .bytes(let payload)) where payload.count >= 8:
                mark = Self.mark(of: payload)
            case (6, .number(let value)): isOffline = value != 0
            default: break
            }
        }
    }
}

extension DeliverScan {
    /// `payload` has eight bytes or more.
    @inline(__always)
    static func mark(of payload: UnsafeRawBufferPointer) -> UInt64 {
        let prefix = HTTPRequestTemplate.payloadPrefix
        let count = prefix.utf8CodeUnitCount
        if payload[0] == prefix.utf8Start[0], payload.count >= count + 16,
            (1..<count).allSatisfy({ payload[$0] == prefix.utf8Start[$0] }),
            let number = Hex.read(payload.baseAddress! + count)
        {
            return number
        }
        return UInt64(bigEndian: payload.loadUnaligned(as: UInt64.self))
    }
}

/// What the generator wants of a PublishResult.
struct ResultScan: Equatable {
    var request: UInt64 = 0
    var code: UInt64 = 0

    /// - Returns: `nil` when the body is no sequence of fields.
    @inline(__always)
    init?(_ body: UnsafeRawBufferPointer) {
        var scanner = FieldScanner(body)
        while !scanner.isAtEnd {
            guard let (number, value) = scanner.next() else { return nil }
            switch (number, value) {
            case (1, .number(let value)): request = value
            case (2, .number(let value)): code = value
            default: break
            }
        }
    }
}
