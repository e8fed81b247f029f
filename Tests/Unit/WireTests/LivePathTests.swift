import Testing
import Wire

@Suite("The live path's encoders and views")
struct LivePathTests {
    private func encoded(_ byteCount: Int, _ encode: (UnsafeMutableRawBufferPointer) -> Int) -> [UInt8] {
        // Guard bytes before and after reveal a write outside.
        var memory = [UInt8](repeating: 0xEE, count: byteCount + 16)
        let written = memory.withUnsafeMutableBytes {
            encode(UnsafeMutableRawBufferPointer(rebasing: $0[8..<(8 + byteCount)]))
        }
        #expect(written == byteCount)
        #expect(memory.prefix(8).allSatisfy { $0 == 0xEE } && memory.suffix(8).allSatisfy { $0 == 0xEE })
        return Array(memory[8..<(8 + byteCount)])
    }

    @Test("a Deliver encoded in place is the same frame as the value's")
    func deliverFrame() {
        var random = Generator("deliver frame")
        for _ in 0..<200 {
            var deliver = Deliver.sample(&random)
            // In place, an alert without text is omitted.
            if deliver.alert == Alert() { deliver.alert = nil }
            var expected: [UInt8] = []
            deliver.appendFrame(to: &expected)
            let texts = [deliver.collapseKey, deliver.alert?.title ?? "", deliver.alert?.body ?? ""].map {
                Array($0.utf8)
            }
            deliver.payload.withUnsafeBytes { payload in
                texts[0].withUnsafeBytes { key in
                    texts[1].withUnsafeBytes { title in
                        texts[2].withUnsafeBytes { body in
                            let frame = DeliverFrame(
                                stream: deliver.stream, sequence: deliver.sequence, messageID: deliver.messageID,
                                taskID: deliver.taskID, payload: payload, isOffline: deliver.offline,
                                acceptedAt: deliver.acceptedAt, alertedAt: deliver.alertedAt, attempt: deliver.attempt,
                                collapseKey: key, alertTitle: title, alertBody: body,
                                isCarriedByVendor: deliver.carriedByVendor)
                            #expect(frame.byteCount == frame.bodyByteCount + FrameHeader.byteCount)
                            #expect(encoded(frame.byteCount) { frame.encode(into: $0) } == expected)
                            guard !deliver.messageID.isNone else { return }
                            let hole = expected[frame.messageIDOffset...].prefix(16)
                            let words = [deliver.messageID.high, deliver.messageID.low]
                            #expect(words.flatMap { withUnsafeBytes(of: $0.bigEndian, Array.init) } == Array(hole))
                        }
                    }
                }
            }
        }
    }

    @Test("a PublishResult encoded in place is the same frame as the value's")
    func publishResultFrame() {
        var random = Generator("publish result")
        let texts: [StaticString] = ["", "noToken", "没有"]
        for _ in 0..<100 {
            var result = PublishResult.sample(&random)
            let (reason, fallbackReason) = (texts[random.below(3)], texts[random.below(3)])
            (result.reason, result.fallbackReason) = ("\(reason)", "\(fallbackReason)")
            var expected: [UInt8] = []
            result.appendFrame(to: &expected)
            let frame = PublishResultFrame(
                request: result.request, code: result.code, reason: reason, messageID: result.messageID,
                taskID: result.taskID, isLive: result.live, fallback: result.fallback, fallbackReason: fallbackReason,
                isFsync: result.fsync, isIDsOnly: result.idsOnly)
            #expect(encoded(frame.byteCount) { frame.encode(into: $0) } == expected)
        }
    }

    @Test("heartbeats encoded in place are the same frames as the values'", arguments: [0, 1, 127, 128, 1 << 62, .max])
    func heartbeats(nonce: UInt64) {
        var expected: ([UInt8], [UInt8]) = ([], [])
        Ping(nonce: nonce).appendFrame(to: &expected.0)
        Pong(nonce: nonce).appendFrame(to: &expected.1)
        let (ping, pong) = (HeartbeatFrame.ping(nonce: nonce), HeartbeatFrame.pong(nonce: nonce))
        #expect(encoded(ping.byteCount) { ping.encode(into: $0) } == expected.0)
        #expect(encoded(pong.byteCount) { pong.encode(into: $0) } == expected.1)
        #expect(ping.byteCount <= HeartbeatFrame.largestByteCount)
        #expect(nonce != .max || ping.byteCount == HeartbeatFrame.largestByteCount)
    }

    @Test("a buffer smaller than the frame ends the process and is not overrun")
    func smallBuffer() async {
        await #expect(processExitsWith: .failure) {
            var memory = [UInt8](repeating: 0, count: 5)
            memory.withUnsafeMutableBytes { _ = HeartbeatFrame.ping(nonce: 300).encode(into: $0) }
        }
    }

    @Test("an Ack's view has the same content as the value")
    func ackView() throws {
        var random = Generator("ack view")
        for _ in 0..<300 {
            let ack = Ack.sample(&random)
            var body: [UInt8] = []
            ack.appendBody(to: &body)
            let view = try AckView(decoding: body.span.bytes)
            let direct = ack.positions.first { $0.stream == 0 } ?? StreamPosition()
            #expect(view.sequence == direct.sequence)
            #expect((0..<view.rangeCount).map { view.ranges[$0] } == direct.ranges)
            #expect(view.broadcastSequence == ack.positions.first { $0.stream == 1 }?.sequence ?? 0)
            #expect(view.rejected == ack.rejected)
        }
    }

    @Test("an Ack's view accepts 32 ranges, refuses 33, and also checks ranges of other streams")
    func ackViewLimits() throws {
        func body(_ count: UInt64, stream: UInt32) -> [UInt8] {
            var ack = Ack()
            let ranges = (0..<count).map { SequenceRange(first: $0 * 2 + 2, last: $0 * 2 + 2) }
            ack.positions = [StreamPosition(stream: stream, sequence: 0, ranges: ranges)]
            var bytes: [UInt8] = []
            ack.appendBody(to: &bytes)
            return bytes
        }
        for stream: UInt32 in [0, 1, 9] {
            let (full, over) = (body(32, stream: stream), body(33, stream: stream))
            #expect(try AckView(decoding: full.span.bytes).rangeCount == (stream == 0 ? 32 : 0))
            #expect(throws: WireError.tooMany(field: 3)) { try AckView(decoding: over.span.bytes) }
        }
        let broken: [UInt8] = [0x0A, 8, 0x08, 1, 0x1A, 4, 0x08, 5, 0x10, 4]
        #expect(throws: WireError.badRange(field: 3)) { try AckView(decoding: broken.span.bytes) }
    }

    @Test("a position's numbers may follow its ranges")
    func ackViewOrder() throws {
        // Ranges {first 7, last 9}, then sequence 5, then an explicit stream 0.
        let body: [UInt8] = [0x0A, 10, 0x1A, 4, 0x08, 7, 0x10, 9, 0x10, 5, 0x08, 0]
        let view = try AckView(decoding: body.span.bytes)
        #expect(view.sequence == 5 && view.rangeCount == 1 && view.ranges[0] == SequenceRange(first: 7, last: 9))
    }

    @Test(
        "an Ack that names a stream twice is refused, so that no position is lost", arguments: [0, 1] as [UInt8])
    func ackViewRepeats(stream: UInt8) {
        let position: [UInt8] = [0x0A, 4, 0x08, stream, 0x10, 5]
        let body = position + position
        #expect(throws: WireError.repeated(field: 1)) { try AckView(decoding: body.span.bytes) }
    }

    @Test("a Publish's view points at the value's content")
    func publishView() throws {
        var random = Generator("publish view")
        for _ in 0..<200 {
            let publish = Publish.sample(&random)
            var body: [UInt8] = []
            publish.appendBody(to: &body)
            let view = try PublishView(decoding: body.span.bytes)
            #expect(view.request == publish.request && view.cid == publish.cid && view.strategy == publish.strategy)
            #expect(view.timeToLive == publish.timeToLive ?? 0)
            #expect(view.hasTimeToLive == (publish.hasTimeToLive || publish.timeToLive != nil))
            #expect(view.hasAlert == (publish.alert != nil))
            body.withUnsafeBytes { body in
                func bytes(_ range: BodyRange) -> [UInt8] { Array(range.bytes(of: body)) }
                #expect(bytes(view.payload) == publish.payload && bytes(view.apns) == publish.apns)
                #expect(bytes(view.collapseKey) == Array(publish.collapseKey.utf8))
                #expect(bytes(view.requestID) == Array(publish.requestID.utf8))
                #expect(bytes(view.alertTitle) == Array((publish.alert?.title ?? "").utf8))
                #expect(bytes(view.alertBody) == Array((publish.alert?.body ?? "").utf8))
            }
        }
    }

    @Test("a range of another, shorter body is a precondition failure, not a wild pointer")
    func foreignRange() async {
        await #expect(processExitsWith: .failure) {
            let body: [UInt8] = [0x1A, 3, 1, 2, 3]
            let view = try PublishView(decoding: body.span.bytes)
            body.withUnsafeBytes { _ = view.payload.bytes(of: UnsafeRawBufferPointer(rebasing: $0[0..<4])) }
        }
    }
}

@Suite("The bytes covered by a Hello's proof")
struct HelloTranscriptTests {
    private let label = Array("longwire hello 1".utf8)

    @Test("the transcript of a Hello with its proof is that of the Hello without")
    func proofLeftOut() throws {
        var random = Generator("transcript")
        for _ in 0..<100 {
            var hello = Hello.sample(&random)
            hello.proof = random.bytes(upTo: 40)
            var (with, without): ([UInt8], [UInt8]) = ([], [])
            hello.appendBody(to: &with)
            let proof = hello.proof
            hello.proof = []
            hello.appendBody(to: &without)
            let transcript = try HelloTranscript(body: with.span.bytes)
            #expect(transcript.bytes == label + without)
            #expect(transcript.proof == proof)
            // The encoding of a client that appends the proof at the end.
            let appended = proof.isEmpty ? without : without + [0x32, UInt8(proof.count)] + proof
            #expect(try HelloTranscript(body: appended.span.bytes) == transcript)
            #expect(try Hello(decoding: appended.span.bytes).proof == proof)
        }
    }

    @Test("all other bytes stay unchanged: order, unknown fields and non-minimal numbers")
    func verbatim() throws {
        let before: [UInt8] = [0xA8, 0x80, 0x00, 0x85, 0x00, 0xC1, 0x3E, 1, 2, 3, 4, 5, 6, 7, 8]
        let after: [UInt8] = [0xC5, 0x3E, 1, 2, 3, 4, 0x0A, 1, 65]
        let body = before + [0x32, 2, 9, 8] + after
        let transcript = try HelloTranscript(body: body.span.bytes)
        #expect(transcript.bytes == label + before + after)
        #expect(transcript.proof == [9, 8])
    }

    @Test("a second proof, a proof of the wrong type and a broken body are refused")
    func refused() {
        let cases: [([UInt8], WireError)] = [
            ([0x32, 1, 1, 0x32, 1, 1], .repeated(field: 6)), ([0x32, 0, 0x32, 0], .repeated(field: 6)),
            ([0x30, 1], .wrongWireType(field: 6)), ([0x32, 5, 1], .truncated), ([0x0B], .badTag),
            ([0x32, 65] + [UInt8](repeating: 0, count: 65), .tooLong(field: 6)),
        ]
        for (body, error) in cases {
            #expect(throws: error) { try HelloTranscript(body: body.span.bytes) }
        }
    }
}
