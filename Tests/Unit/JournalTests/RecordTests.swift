import Delivery
import Testing

@testable import Journal

@Suite("Records of the journal")
struct RecordTests {
    private static let numbers: [UInt64] = [
        0, 1, 127, 128, 16_383, 16_384, 1 << 41, (1 << 56) - 1, 1 << 56, 1 << 63, .max,
    ]

    @Test("numbers of any size survive encoding, and no truncated number is valid")
    func packedNumbers() {
        for number in Self.numbers {
            var bytes = [UInt8](repeating: 0, count: 9)
            bytes.withUnsafeMutableBytes { bytes in
                guard var next = bytes.baseAddress else { return }
                PackedNumber.write(number, to: &next)
            }
            let count = PackedNumber.byteCount(number)
            for length in 0...count {
                let found = bytes[..<length].withUnsafeBytes { bytes -> (UInt64?, Int) in
                    var offset = 0
                    return (PackedNumber.read(bytes, at: &offset), offset)
                }
                #expect(found.0 == (length == count ? number : nil), "\(number) in \(length) bytes")
                if length == count { #expect(found.1 == count) }
            }
        }
    }

    @Test("an operation has at most the store's number of counters, and survives encoding")
    func operations() throws {
        #expect(OperationHeader.largestByteCount == StoreBounds.operationByteCount)
        for (place, number) in Self.numbers.enumerated() {
            let owner = (high: number ^ 5, low: number &+ 7)
            let kind = [Operation.Kind.put, .delete, .add][place % 3]
            let value = kind == .delete ? [] : [UInt8](repeating: 7, count: place * 40)
            var body: [UInt8] = []
            for isOwnerAsBefore in [false, true] {
                let header = OperationHeader(
                    kind, table: 5, prior: .maybeCold, ownerHigh: owner.high, ownerLow: owner.low,
                    isOwnerAsBefore: isOwnerAsBefore, item: number, wakeAt: Int64(bitPattern: number),
                    coldAlarm: Int64(bitPattern: number), valueByteCount: value.count)
                #expect(header.byteCount <= OperationHeader.largestByteCount)
                var bytes = [UInt8](repeating: 0, count: header.byteCount)
                bytes.withUnsafeMutableBytes { if let start = $0.baseAddress { header.write(to: start) } }
                body += bytes + value
            }
            let header = try Self.header(body, operationCount: 2)
            var count = 0
            let isRead = body.withUnsafeBytes { bytes in
                Operation.readAll(in: bytes, of: header) { operation in
                    count += 1
                    #expect(operation.kind == kind && operation.prior == .maybeCold && operation.table == 5)
                    #expect(operation.ownerHigh == owner.high && operation.ownerLow == owner.low)
                    #expect(operation.item == number && operation.wakeAt == Int64(bitPattern: number))
                    #expect(operation.coldAlarm == Int64(bitPattern: number) && operation.value.elementsEqual(value))
                    #expect(operation.ticket == 9 && operation.bucket == 7)
                }
            }
            #expect(isRead && count == 2)
            // No prefix of the body has two operations.
            for length in body.indices {
                #expect(!body[..<length].withUnsafeBytes { Operation.readAll(in: $0, of: header) { _ in } })
            }
        }
    }

    @Test("an operation that refers to the previous owner needs a previous operation")
    func ownerBefore() throws {
        let header = OperationHeader(
            .delete, table: 5, prior: .nothing, ownerHigh: 1, ownerLow: 2, isOwnerAsBefore: true, item: 0, wakeAt: 0,
            coldAlarm: 0, valueByteCount: 0)
        var body = [UInt8](repeating: 0, count: header.byteCount)
        body.withUnsafeMutableBytes { if let start = $0.baseAddress { header.write(to: start) } }
        let record = try Self.header(body, operationCount: 1)
        #expect(!body.withUnsafeBytes { Operation.readAll(in: $0, of: record) { _ in } })
    }

    @Test("a header of another generation or with a flipped bit is invalid")
    func headers() throws {
        var bytes = Self.headerBytes([], operationCount: 0)
        bytes.withUnsafeBytes { bytes in
            #expect(RecordHeader(in: bytes, at: 0, generation: 3) != nil)
            // The low half of the generation alone is not enough.
            for generation: UInt64 in [2, 3 | 1 << 32] {
                #expect(RecordHeader(in: bytes, at: 0, generation: generation) == nil)
            }
        }
        for bit in 0..<bytes.count * 8 {
            bytes[bit / 8] ^= 1 << UInt8(bit % 8)
            #expect(bytes.withUnsafeBytes { RecordHeader(in: $0, at: 0, generation: 3) } == nil)
            bytes[bit / 8] ^= 1 << UInt8(bit % 8)
        }
    }

    private static func headerBytes(_ body: [UInt8], operationCount: Int) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: RecordHeader.byteCount)
        bytes.withUnsafeMutableBytes { bytes in
            guard let start = bytes.baseAddress else { return }
            RecordHeader.write(
                bodyByteCount: body.count, bucket: 7, operationCount: operationCount, bodyChecksum: 0, ticket: 9,
                to: start)
            RecordHeader.seal(start, generation: 3, groupStart: 64)
        }
        return bytes
    }

    private static func header(_ body: [UInt8], operationCount: Int) throws -> RecordHeader {
        let bytes = headerBytes(body, operationCount: operationCount)
        return try #require(bytes.withUnsafeBytes { RecordHeader(in: $0, at: 0, generation: 3) })
    }
}
