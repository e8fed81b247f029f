import Quotas
import Delivery
import Directory
import PushAPI
import Testing
import Wire

@testable import Gateway

@Suite("The encoding of messages between gateways")
struct LinkCodecTests {
    static let reader = LinkCodec.Reader(parts: LinkSamples.parts, spares: SpareBatches())

    /// Returns the whole content of a message as text, for comparison.
    static func text(_ message: LoopMessage) -> String {
        switch message {
        case .publishes(let batch):
            var text = ""
            batch.forEach { text += Self.text($0) }
            return text
        case .list(let fanout):
            var text = "\(fanout.targets)"
            fanout.forEach { text += Self.text($0) }
            return text
        default: return String(reflecting: message)
        }
    }

    private static func text(_ command: PublishCommand) -> String {
        var copy = command
        let pieces = [
            command.payload, command.collapseKey, command.alertTitle, command.alertBody, command.customCallback,
        ]
        var text = "\(pieces.map { Array($0) })"
        command.contents.forEach { content in
            var content = content
            text += "\(Array(content.body)) \(Array(content.collapseID))"
            (content.body, content.collapseID) = (
                UnsafeRawBufferPointer(start: nil, count: 0), .init(start: nil, count: 0)
            )
            text += "\(content)"
        }
        let empty = UnsafeRawBufferPointer(start: nil, count: 0)
        (copy.payload, copy.collapseKey, copy.alertTitle, copy.alertBody) = (empty, empty, empty, empty)
        copy.contents = VendorContents()
        copy.customCallback = empty
        return text + "\(copy)"
    }

    static func encoded(_ message: LoopMessage, part: Int = LinkSamples.part) -> (LinkBlock, LinkCodec.Remainder) {
        let block = LinkBlock(capacity: 16)
        var remainder = LinkCodec.Remainder()
        var number: UInt32 = 0
        LinkCodec.encode(message, part: part, into: block, &remainder) {
            number += 1
            return number
        }
        return (block, remainder)
    }

    static func frames(_ block: LinkBlock, _ body: (LinkFrame) -> Void) throws {
        let reader = LinkFrameReader()
        reader.bodyLimit = LinkLimits.frameByteCount
        let count = try block.withBytes { bytes in
            try reader.read(bytes) { frame in
                body(frame)
                return true
            }
        }
        #expect(count == block.byteCount)
    }

    @Test("each message survives encoding and decoding")
    func messages() throws {
        for (message, part) in LinkSamples.sent {
            let (block, remainder) = Self.encoded(message, part: part)
            #expect(remainder.refused.isEmpty)
            var read: [String] = []
            try Self.frames(block) { frame in
                #expect(frame.part == part)
                do throws(LinkCodec.Refusal) {
                    read.append(Self.text(try LinkCodec.message(frame, Self.reader)))
                } catch {
                    Issue.record("\(error) for \(Self.text(message))")
                }
            }
            #expect(read == [Self.text(message)])
        }
    }

    @Test("each answer survives encoding and decoding, in the same order")
    func answers() throws {
        let batch = AnswerBatch()
        let origin = LinkSamples.origin(.request)
        for answer in LinkSamples.publishAnswers { batch.append(answer) }
        for (_, answer) in LinkSamples.answers { batch.append(.answered(origin, answer)) }
        batch.append(.answered(origin, nil))
        let block = LinkBlock()
        LinkCodec.encode(batch, into: block)
        var read: [String] = []
        var types = LinkSamples.answers.map(\.type)[...]
        try Self.frames(block) { frame in
            guard frame.kind == .answer else {
                #expect(LinkCodec.forEachPublished(in: frame.body) { read.append(String(reflecting: $0)) })
                return
            }
            guard let (to, bytes) = LinkCodec.answer(in: frame.body) else {
                Issue.record("no answer")
                return
            }
            #expect(to == origin)
            let type = types.popFirst()
            #expect((bytes == nil) == (type == nil))
            guard let bytes, let type else { return }
            let answer = LinkCodec.answer(to: type, bytes)
            read.append(answer.map { String(reflecting: $0) } ?? "\(type): unread")
        }
        let expected =
            LinkSamples.publishAnswers.map { String(reflecting: $0) }
            + LinkSamples.answers.map { String(reflecting: $0.answer) }
        #expect(read == expected && types.isEmpty)
    }

    @Test("each kind of question has a unique number, a sample and a sample answer")
    func samples() {
        let types = Set(PartitionRequests.types.map { ObjectIdentifier($0) })
        #expect(types.count == PartitionRequests.types.count)
        #expect(Set(PartitionRequests.types.map { $0.number }).count == types.count)
        let requests = LinkSamples.sent.compactMap { sample -> ObjectIdentifier? in
            if case .request(let request, _) = sample.message { ObjectIdentifier(type(of: request)) } else { nil }
        }
        #expect(Set(requests) == types)
        let questions = PartitionRequests.types.filter { !$0.isNotice }
        #expect(
            Set(LinkSamples.answers.map { ObjectIdentifier($0.type) }) == Set(questions.map { ObjectIdentifier($0) }))
        #expect(
            Set(LinkSamples.directorySteps.map { LinkSamples.StepCase($0) }) == Set(LinkSamples.StepCase.allCases))
        #expect(Set(LinkSamples.replies.map { LinkSamples.ReplyCase($0) }) == Set(LinkSamples.ReplyCase.allCases))
    }

    @Test("an answer of the wrong form is rejected")
    func foreignAnswers() throws {
        let jobs = try CompactEncoder.encode(LeaseAnswer(jobs: [LinkSamples.job], due: []))
        let read = jobs.withUnsafeBytes { LinkCodec.answer(to: DirectoryCommand.self, $0) }
        #expect(read == nil)
        var questions = LinkQuestions()
        let message = LoopMessage.request(LinkSamples.shardQuestions[0], LinkSamples.origin(.request))
        for question in Self.encoded(message).1.questions { questions.add(question) }
        #expect(questions.take(LinkSamples.origin(.request, 2)) == nil && questions.count == 1)
    }

    @Test("every question has a busy answer, and notices have none")
    func busyForms() {
        for (message, part) in LinkSamples.sent {
            let answers = message.busyAnswers
            switch message {
            case .news: #expect(answers.isEmpty)
            case .request where message.isNotice: #expect(answers.isEmpty)
            case .publishes(let batch): #expect(answers.count == batch.count)
            case .list(let fanout): #expect(answers.count == fanout.targets.count)
            default: #expect(answers.count == 1)
            }
            var questions = LinkQuestions()
            let (block, remainder) = Self.encoded(message, part: part)
            LinkCodec.forEachAsked(in: block) { questions.add($0, number: $1, part: $2) }
            for question in remainder.questions { questions.add(question) }
            #expect(questions.count == answers.count)
            func take(_ answer: LoopAnswer) -> Bool {
                switch answer {
                case .published(let origin, let outcome): questions.take(origin, outcome.cid)
                case .answered(let origin, _): questions.take(origin) != nil
                }
            }
            let taken = answers.map { take($0) }
            #expect(taken.allSatisfy { $0 } && questions.count == 0)
            // A second answer to the same question is ignored.
            let again = answers.map { take($0) }
            #expect(!again.contains(true))
        }
    }

    @Test("large batches and lists are split into several frames in order")
    func largeBatches() throws {
        let batch = LinkSamples.batch(3_000)
        let (block, _) = Self.encoded(.publishes(batch))
        var (requests, frameCount): ([UInt64], Int) = ([], 0)
        try Self.frames(block) { frame in
            frameCount += 1
            #expect(frame.body.count < 2 * LinkLimits.batchByteCount)
            guard case .publishes(let part)? = try? LinkCodec.message(frame, Self.reader) else {
                Issue.record("no publishes")
                return
            }
            part.forEach { requests.append($0.origin.request) }
        }
        #expect(requests == Array(0..<3_000) && frameCount > 1)

        let sample = LinkSamples.fanout
        let target = ListTarget(cid: LinkSamples.cid, bucket: LinkSamples.bucket, digest: 1)
        let large = Fanout(
            task: sample.task, app: sample.app, createdAt: sample.createdAt, content: sample.content, isBulk: true,
            route: sample.route, targets: (0..<200_000).map { ($0, target) })
        var places: [Int] = []
        try Self.frames(Self.encoded(.list(large)).0) { frame in
            guard case .list(let part)? = try? LinkCodec.message(frame, Self.reader) else {
                Issue.record("no list")
                return
            }
            places += part.targets.map(\.place)
        }
        #expect(places == Array(0..<200_000))
    }

    // MARK: Bytes of a stranger

    @Test("a truncated or altered frame is refused or valid, and never traps")
    func damage() throws {
        let answers = AnswerBatch()
        for answer in LinkSamples.publishAnswers { answers.append(answer) }
        for (index, sample) in LinkSamples.answers.enumerated() {
            answers.append(.answered(Origin(route: UInt64(index), request: 1), sample.answer))
        }
        let answered = LinkBlock()
        LinkCodec.encode(answers, into: answered)
        var all = LinkSamples.sent.map { Self.encoded($0.message, part: $0.part).0.copy }
        all.append(answered.copy)
        var random = SystemRandomNumberGenerator()
        for bytes in all {
            for cut in stride(from: 0, to: bytes.count, by: max(1, bytes.count / 200)) {
                // The length is corrected, so that the body is parsed.
                var short = Array(bytes[..<cut])
                if cut >= 8 {
                    let count = UInt32(cut - 8)
                    for place in 0..<4 { short[place] = UInt8(truncatingIfNeeded: count >> UInt32(8 * place)) }
                }
                _ = LinkInspection.problem(in: short, pieceByteCount: 64 << 10)
            }
            for _ in 0..<200 {
                var changed = bytes
                let place = Int.random(in: 4..<changed.count, using: &random)
                changed[place] = UInt8.random(in: 0...255, using: &random)
                let problem = LinkInspection.problem(in: changed, pieceByteCount: 100)
                #expect(problem == nil, "byte \(place) of \(bytes.count)")
            }
        }
    }

    @Test("messages for another partition or beyond a caller's bounds are refused")
    func unsound() throws {
        let elsewhere = Bucket(LinkSamples.bucket.index + 1)
        let record = LinkSamples.record
        var late = record
        late.validUntil = .max
        var forever = record
        forever.content = MessageContent(
            strategy: .liveOnly, timeToLive: .max, vendor: nil, lengths: MessageContent.Lengths(), arena: [])
        func task(_ request: some PartitionRequest) -> LoopMessage { .request(request, .none) }
        let unsound: [LoopMessage] = [
            .request(
                DeviceStatusRequest(
                    device: DeviceAddress(app: LinkSamples.app, bucket: elsewhere, cid: LinkSamples.cid)), .none),
            .request(MessageTraceRequest(message: MessageID(high: .max, low: 1)), .none),
            .request(
                LeaseCommand(
                    origin: .none, channel: .apns, apps: nil, limit: 1 << 40, leaseMilliseconds: 1, leaseID: (1, 1)),
                .none),
            task(CreateTask(late, key: .none, digest: 0)),
            task(CreateTask(forever, key: .none, digest: 0)),
            task(CreateTask(record, key: CallKey(high: 0, low: 1), digest: 0)),
            task(SweepTask(record.id, record.app, LoopShare(index: LinkSamples.part, count: 0))),
            // Part 0 counts.
            .request(CountRates(reports: [LinkSamples.report]), .none), .request(CountQueues(queues: []), .none),
            task(AdvanceBroadcast(record.id, record.app, position: 4_097, during: .open)),
            .request(
                DirectoryCommand(
                    origin: .none, app: LinkSamples.app, bucket: LinkSamples.bucket,
                    step: .count(LinkSamples.expression, first: LinkSamples.part, stride: 0)), .none),
        ]
        for message in unsound {
            try Self.frames(Self.encoded(message).0) { frame in
                #expect(throws: LinkCodec.Refusal.unread(number: 1)) { try LinkCodec.message(frame, Self.reader) }
            }
        }
        // A partition that does not exist.
        try Self.frames(Self.encoded(.news(.jobsAvailable(.apns, part: 1)), part: 16).0) { frame in
            #expect(throws: LinkCodec.Refusal.unread(number: 1)) { try LinkCodec.message(frame, Self.reader) }
        }
    }

    // MARK: Frames

    @Test("frames are reassembled from pieces of any size", arguments: [1, 2, 7, 8, 9, 63, 1_000, 100_000])
    func pieces(size: Int) throws {
        let block = LinkBlock()
        for length in [0, 1, 7, 100, 70_000, 3] {
            let start = block.beginFrame(.heartbeat, part: length & 0xFF)
            block.put([UInt8](repeating: UInt8(truncatingIfNeeded: length), count: length))
            block.endFrame(start)
        }
        let reader = LinkFrameReader()
        var lengths: [Int] = []
        let bytes = block.copy
        for first in stride(from: 0, to: block.byteCount, by: size) {
            let piece = bytes[first..<min(first + size, bytes.count)]
            let count = try piece.withUnsafeBytes {
                try reader.read($0) { frame in
                    #expect(frame.body.allSatisfy { $0 == UInt8(truncatingIfNeeded: frame.body.count) })
                    lengths.append(frame.body.count)
                    return true
                }
            }
            #expect(count == piece.count)
        }
        #expect(lengths == [0, 1, 7, 100, 70_000, 3])
    }

    @Test("a length beyond the bound is refused before its bytes arrive; a reader stops after such a frame")
    func bounds() throws {
        let reader = LinkFrameReader()
        reader.bodyLimit = 10
        let huge: [UInt8] = [255, 255, 255, 255, 1, 0, 0, 0]
        #expect(throws: LinkFault.frameTooLong(0xFFFF_FFFF)) {
            try huge.withUnsafeBytes { _ = try reader.read($0) { _ in true } }
        }
        let other = LinkFrameReader()
        let two: [UInt8] = [1, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, 0, 3, 0, 0, 0]
        let count = try two.withUnsafeBytes { try other.read($0) { _ in false } }
        #expect(count == 9)
        let unknown = LinkFrameReader()
        #expect(throws: LinkFault.unknownKind(200)) {
            try ([0, 0, 0, 0, 200, 0, 0, 0] as [UInt8]).withUnsafeBytes { _ = try unknown.read($0) { _ in true } }
        }
    }
}

@Suite("The compact coder")
struct CompactCoderTests {
    private struct Newer: Codable, Equatable {
        var number = -5
        var added = [1, 2, 3]
        var inner = Inner()
        var text: String? = "é"
        var last = 7
        struct Inner: Codable, Equatable {
            var deep = ["a": 1]
            var flag = true
        }
    }

    private struct Older: Codable, Equatable {
        var number: Int
        var text: String?
        var missing: Int?
        var last: Int
    }

    @Test("a decoder skips unknown fields and tolerates missing optional ones")
    func versions() throws {
        let bytes = try CompactEncoder.encode(Newer())
        let older = try bytes.withUnsafeBytes { try CompactDecoder.decode(Older.self, from: $0) }
        #expect(older == Older(number: -5, text: "é", missing: nil, last: 7))
        #expect(try bytes.withUnsafeBytes { try CompactDecoder.decode(Newer.self, from: $0) } == Newer())
        // A required field is missing.
        let missing = try CompactEncoder.encode(older)
        #expect(throws: DecodingError.self) {
            try missing.withUnsafeBytes { try CompactDecoder.decode(Newer.self, from: $0) }
        }
    }

    private struct Numbers: Codable, Equatable {
        var a: Int8 = .min
        var b: Int16 = .max
        var c: Int32 = .min
        var d: Int64 = -(1 << 54)
        var e: UInt64 = .max
        var f: UInt8 = 255
        var g: Double = -0.5
        var h: [UInt64: String] = [1: "x"]
        var i: [UInt8] = [0, 255]
        var j: [Bool?] = [true, nil, false]
        var k: Set<Int> = [4]
    }

    @Test("integers of each width survive encoding; one out of range is refused")
    func numbers() throws {
        let bytes = try CompactEncoder.encode(Numbers())
        #expect(try bytes.withUnsafeBytes { try CompactDecoder.decode(Numbers.self, from: $0) } == Numbers())
        func refuses<Value: Codable>(_ value: some Codable, as type: Value.Type) throws {
            let bytes = try CompactEncoder.encode(value)
            #expect(throws: DecodingError.self) {
                try bytes.withUnsafeBytes { try CompactDecoder.decode(type, from: $0) }
            }
        }
        try refuses([300], as: [UInt8?].self)
        try refuses([-1], as: [UInt64].self)
        try refuses([Int64.max], as: [Int64].self)
        try refuses([Int64.min], as: [Int].self)
        try refuses(["x"], as: [Int].self)
    }

    private struct Nested: Codable {
        var inner: [Nested]
    }

    @Test("the depth and lengths that a peer claims are bounded and allocate no memory")
    func bounds() throws {
        var nested = Nested(inner: [])
        for _ in 0..<100 { nested = Nested(inner: [nested]) }
        let deep = try CompactEncoder.encode(nested)
        #expect(throws: DecodingError.self) {
            try deep.withUnsafeBytes { try CompactDecoder.decode(Nested.self, from: $0) }
        }
        let claims: [[UInt8]] = [
            [6, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], [7, 255, 255, 255, 255], [8, 255, 255, 255, 127, 0],
            [3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], [], [99], [6], [7, 0, 0, 0, 0, 0],
        ]
        for claim in claims {
            #expect(throws: DecodingError.self) {
                try claim.withUnsafeBytes { try CompactDecoder.decode([Int].self, from: $0) }
            }
            #expect(throws: DecodingError.self) {
                try claim.withUnsafeBytes { try CompactDecoder.decode(String.self, from: $0) }
            }
        }
    }
}
