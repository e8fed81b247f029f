import Testing
import Wire

@Suite("Identifiers")
struct IdentifierTests {
    @Test("the text and the bytes of an id lead back to it")
    func roundTrip() {
        var random = Generator("identifiers")
        for _ in 0..<200 {
            let id = MessageID(high: random.number(), low: random.number())
            #expect(id.description.utf8.count == 32)
            #expect(MessageID(id.description) == id)
            #expect(MessageID(bytes: id.bytes) == id)
        }
        #expect(DeviceID(high: 0x0123_4567_89AB_CDEF, low: 1).description == "0123456789abcdef0000000000000001")
    }

    @Test(
        "only 32 lower-case hex digits are an id",
        arguments: [
            "", "0", "0123456789abcdef000000000000000", "0123456789abcdef00000000000000001",
            "0123456789ABCDEF0000000000000001", "0123456789abcdeg0000000000000001", " 123456789abcdef0000000000000001",
            "0x23456789abcdef0000000000000001", "é123456789abcdef000000000000001",
        ])
    func badText(text: String) {
        #expect(DeviceID(text) == nil)
    }

    @Test("ids order as their bytes do, and only 16 bytes are one")
    func order() {
        let ids = [DeviceID(high: 0, low: .max), DeviceID(high: 1, low: 0), DeviceID(high: 1, low: 1)]
        #expect(ids.sorted() == ids)
        #expect(ids.map(\.bytes).allSatisfy { $0.count == DeviceID.byteCount })
        #expect(DeviceID(bytes: [UInt8](repeating: 0, count: 15)) == nil)
        #expect(DeviceID(bytes: [UInt8](repeating: 0, count: 17)) == nil)
    }

    @Test("a msgId contains its bucket and its time, and a foreign one no bucket")
    func messageID() {
        let id = MessageID(bucket: Bucket(4_095), acceptedAt: 1_700_000_000_123, digest: 7)
        #expect(id.bucket == Bucket(4_095))
        #expect(id.acceptedAtMilliseconds == 1_700_000_000_123)
        #expect(MessageID(high: 4_096 << 48, low: 0).bucket == nil)
        #expect(MessageID(high: .max, low: .max).bucket == nil)
    }

    @Test("the text of a taskId follows Getui's form and leads back to it")
    func taskID() throws {
        let task = TaskID(kind: .single, month: 3, day: 9, random: (0x0A0B_0C0D, 0x0102_0304_0506_0708))
        #expect(task.text == "RASS_0309_0a0b0c0d0102030405060708")
        #expect(task.kind == .single)
        var random = Generator("tasks")
        for _ in 0..<200 {
            let kind = try #require(TaskID.Kind(rawValue: UInt8(1 + random.below(3))))
            let task = TaskID(
                kind: kind, month: 1 + random.below(12), day: 1 + random.below(31),
                random: (random.number(), random.number()))
            #expect(TaskID(text: task.text) == task)
            #expect(task.kind == kind)
        }
    }

    @Test(
        "other texts are refused as taskIds",
        arguments: [
            "", "RASS", "RASS_0309", "RASX_0309_0a0b0c0d0102030405060708", "RASS_309_0a0b0c0d0102030405060708",
            "RASS_+309_0a0b0c0d0102030405060708", "RASS_03a9_0a0b0c0d0102030405060708",
            "RASS_0309_0a0b0c0d010203040506070", "RASS_0309_0A0B0C0D0102030405060708",
            "RASS_0309_0a0b0c0d0102030405060708_", "rass_0309_0a0b0c0d0102030405060708",
        ])
    func badTaskText(text: String) {
        #expect(TaskID(text: text) == nil)
    }

    @Test("any 16 bytes from the wire have a text and do not trap")
    func foreignTask() {
        for task in [TaskID.none, TaskID(high: .max, low: .max), TaskID(high: 0x09FF_FF00_0000_0000, low: 0)] {
            #expect(task.text.hasPrefix("RASS_"))
        }
    }

    @Test("a bucket is below 4096 and is derived from a digest's first 12 bits")
    func bucket() {
        #expect(Bucket(exactly: 4_096) == nil)
        #expect(Bucket(exactly: 4_095)?.index == 4_095)
        #expect(Bucket(digest: 0xABC0_0000_0000_0001).index == 0xABC)
        #expect(Bucket(10).loop(of: 4) == 2)
    }
}
