internal import Wire

/// Bodies of all fifteen messages, their in-place views, and the identifiers.
///
/// Input: a byte for the message (0 for identifiers), then its body.
enum MessageFuzz {
    static func run(_ input: [UInt8]) throws {
        guard let first = input.first else { return }
        let body = Array(input.dropFirst())
        guard let type = FrameType(rawValue: first % 16) else { return try identifiers(body) }
        switch type {
        case .hello: if let hello = try roundTrip(Hello.self, body) { try check(hello, body) }
        case .welcome:
            if let welcome = try roundTrip(Welcome.self, body) {
                try require(welcome.dropped.count <= Limits.droppedCount, "too many reasons")
                try require(welcome.deviceSecret.count <= Limits.secretByteCount, "too long a secret")
            }
        case .close:
            if let close = try roundTrip(Close.self, body) {
                try require(close.reason.utf8.count <= Limits.reasonByteCount, "too long a reason")
                try require(close.alternate.utf8.count <= Limits.alternateByteCount, "too long an alternate")
            }
        case .ping:
            if let ping = try roundTrip(Ping.self, body) { try check(HeartbeatFrame.ping(nonce: ping.nonce), ping) }
        case .pong:
            if let pong = try roundTrip(Pong.self, body) { try check(HeartbeatFrame.pong(nonce: pong.nonce), pong) }
        case .deliver: if let deliver = try roundTrip(Deliver.self, body) { try check(deliver) }
        case .ack: try check(try roundTrip(Ack.self, body), body)
        case .deviceUpdate:
            if let update = try roundTrip(DeviceUpdate.self, body) {
                try require(update.tokens.count <= Limits.tokenCount, "too many tokens")
            }
        case .updateResult: try roundTrip(UpdateResult.self, body)
        case .feedback: try roundTrip(Feedback.self, body)
        case .revoke: try roundTrip(Revoke.self, body)
        case .upstream: try roundTrip(Upstream.self, body)
        case .upstreamResult: try roundTrip(UpstreamResult.self, body)
        case .publish: try check(try roundTrip(Publish.self, body), body)
        case .publishResult: try roundTrip(PublishResult.self, body)
        case .deviceNames:
            if let names = try roundTrip(DeviceNames.self, body) {
                try require(names.tags.count <= Limits.deviceTagCount, "too many tags")
            }
        case .deviceNamesResult:
            if let result = try roundTrip(DeviceNamesResult.self, body) {
                try require(result.tags.count <= Limits.deviceTagCount, "too many tags")
            }
        }
    }

    /// Checks that a decoded body encodes to bytes that decode to the same value; `nil` if the body is refused.
    @discardableResult
    private static func roundTrip<Message: WireMessage>(_ type: Message.Type, _ body: [UInt8]) throws -> Message? {
        guard let message = decode(type, body) else { return nil }
        var encoded: [UInt8] = []
        message.appendBody(to: &encoded)
        try require(encoded.count == message.bodyByteCount, "\(type) miscounts its size")
        guard let again = decode(type, encoded) else { throw FuzzFailure(description: "\(type) cannot read itself") }
        try require(again == message, "\(type) changes on its way")
        var frame: [UInt8] = []
        message.appendFrame(to: &frame)
        let header = try FrameHeader(parsing: frame.span.bytes, bodyLimit: Limits.largestFrameBodyByteCount)
        try require(header?.type == Message.frameType && header?.bodyByteCount == encoded.count, "a wrong header")
        try require(Array(frame.dropFirst(FrameHeader.byteCount)) == encoded, "frame and body differ")
        return message
    }

    private static func decode<Message: WireMessage>(_ type: Message.Type, _ body: [UInt8]) -> Message? {
        // Typed throws guarantee that the decoder throws only the documented error.
        do throws(WireError) { return try Message(decoding: body.span.bytes) } catch { return nil }
    }

    // MARK: Hello

    private static func check(_ hello: Hello, _ body: [UInt8]) throws {
        try require(hello.appID.utf8.count <= Limits.appIDByteCount, "too long an app id")
        try require(hello.positions.count <= Limits.positionCount, "too many positions")
        try require(hello.tokens.count <= Limits.tokenCount, "too many tokens")
        try require(hello.opened.count <= Limits.openedCount, "too many opened ids")
        for position in hello.positions { try check(position) }
        for token in hello.tokens {
            try require(token.token.utf8.count <= Limits.tokenByteCount, "too long a token")
            try require(token.topic.utf8.count <= Limits.topicByteCount, "too long a topic")
        }
        if var attributes = hello.attributes {
            _ = attributes.clean()
            let cleaned = attributes
            try require(attributes.clean().isEmpty && attributes == cleaned, "cleaned attributes are dropped")
            try require(attributes.model.utf8.count <= Limits.attributeByteCount, "too long a model")
        }
        let transcript: HelloTranscript
        do throws(WireError) { transcript = try HelloTranscript(body: body.span.bytes) } catch {
            // The decoder takes the last of two proofs. The transcript must refuse them, because one could hide the other.
            guard case .repeated = error else { throw FuzzFailure(description: "no transcript: \(error)") }
            return
        }
        try require(transcript.proof == hello.proof, "transcript and Hello differ in their proof")
        let signed = Array(transcript.bytes.dropFirst(HelloTranscript.label.utf8CodeUnitCount))
        guard var unproven = decode(Hello.self, signed) else {
            throw FuzzFailure(description: "what the proof covers cannot be read")
        }
        try require(unproven.proof.isEmpty, "the proof covers a proof")
        unproven.proof = hello.proof
        try require(unproven == hello, "the proof does not cover the Hello")
    }

    private static func check(_ position: StreamPosition) throws {
        try require(position.ranges.count <= Limits.rangeCount, "too many ranges")
        var floor = position.sequence
        for range in position.ranges {
            try require(range.first > floor && range.last >= range.first, "ranges out of order")
            floor = range.last
        }
    }

    // MARK: Views in place

    private static func check(_ frame: HeartbeatFrame, _ message: some WireMessage) throws {
        var expected: [UInt8] = []
        message.appendFrame(to: &expected)
        try require(encoded(frame.byteCount) { frame.encode(into: $0) } == expected, "a heartbeat differs")
    }

    private static func encoded(_ count: Int, _ encode: (UnsafeMutableRawBufferPointer) -> Int) throws -> [UInt8] {
        var bytes = [UInt8](repeating: 0xEE, count: count)
        let written = bytes.withUnsafeMutableBytes { encode($0) }
        try require(written == count, "an encoder in place miscounts its size")
        return bytes
    }

    private static func check(_ deliver: Deliver) throws {
        // An alert without text exists in the value, but not in the frame.
        if let alert = deliver.alert, alert.title.isEmpty, alert.body.isEmpty { return }
        var expected: [UInt8] = []
        deliver.appendFrame(to: &expected)
        let key = Array(deliver.collapseKey.utf8)
        let title = Array((deliver.alert?.title ?? "").utf8), text = Array((deliver.alert?.body ?? "").utf8)
        let bytes = try deliver.payload.withUnsafeBytes { payload in
            try key.withUnsafeBytes { key in
                try title.withUnsafeBytes { title in
                    try text.withUnsafeBytes { text in
                        let frame = DeliverFrame(
                            stream: deliver.stream, sequence: deliver.sequence, messageID: deliver.messageID,
                            taskID: deliver.taskID, payload: payload, isOffline: deliver.offline,
                            acceptedAt: deliver.acceptedAt, alertedAt: deliver.alertedAt, attempt: deliver.attempt,
                            collapseKey: key, alertTitle: title, alertBody: text,
                            isCarriedByVendor: deliver.carriedByVendor)
                        return try encoded(frame.byteCount) { frame.encode(into: $0) }
                    }
                }
            }
        }
        try require(bytes == expected, "a Deliver encoded in place differs")
    }

    private static func check(_ ack: Ack?, _ body: [UInt8]) throws {
        let view: AckView
        do throws(WireError) { view = try AckView(decoding: body.span.bytes) } catch {
            guard let ack else { return }
            // Only the view refuses a duplicate stream.
            guard case .repeated = error, Set(ack.positions.map(\.stream)).count < ack.positions.count else {
                throw FuzzFailure(description: "the view refuses an Ack: \(error)")
            }
            return
        }
        guard let ack else { throw FuzzFailure(description: "the view takes an Ack that cannot be decoded") }
        let direct = ack.positions.first { $0.stream == 0 } ?? StreamPosition()
        let broadcast = ack.positions.first { $0.stream == 1 } ?? StreamPosition()
        try check(direct)
        let ranges = view.withRanges { Array($0) }
        try require(view.sequence == direct.sequence && ranges == direct.ranges, "view and Ack differ")
        try require(view.broadcastSequence == broadcast.sequence, "view and Ack differ in stream 1")
        try require(view.rejected == ack.rejected, "view and Ack differ in what is rejected")
        try require(ack.rejected.count <= Limits.rejectedCount, "too many rejections")
    }

    private static func check(_ publish: Publish?, _ body: [UInt8]) throws {
        let view: PublishView
        do throws(WireError) { view = try PublishView(decoding: body.span.bytes) } catch {
            return try require(publish == nil, "the view refuses a Publish: \(error)")
        }
        guard let publish else { throw FuzzFailure(description: "the view takes a Publish that cannot be decoded") }
        try body.withUnsafeBytes { bytes in
            func part(_ range: BodyRange) -> [UInt8] { Array(range.bytes(of: bytes)) }
            try require(
                view.request == publish.request && view.cid == publish.cid && view.strategy == publish.strategy
                    && view.timeToLive == publish.timeToLive ?? 0
                    && view.hasTimeToLive == (publish.hasTimeToLive || publish.timeToLive != nil),
                "view and Publish differ in a number")
            try require(
                part(view.payload) == publish.payload && part(view.apns) == publish.apns
                    && part(view.collapseKey) == Array(publish.collapseKey.utf8)
                    && part(view.requestID) == Array(publish.requestID.utf8),
                "view and Publish differ in bytes")
            try require(
                view.hasAlert == (publish.alert != nil)
                    && part(view.alertTitle) == Array((publish.alert?.title ?? "").utf8)
                    && part(view.alertBody) == Array((publish.alert?.body ?? "").utf8),
                "view and Publish differ in the alert")
        }
    }

    // MARK: Identifiers

    private static func identifiers(_ bytes: [UInt8]) throws {
        let text = String(decoding: bytes, as: UTF8.self)
        if let id = MessageID(text) {
            try require(id.description == text, "an id is not written as it was read")
            try require(id.bucket.map { $0.index < 4096 } ?? true, "no such bucket")
        }
        if let id = DeviceID(hex: bytes) { try require(Array(id.description.utf8) == bytes, "a cid changes") }
        if let id = TaskID(text: text) {
            try require(TaskID(text: id.text) == id, "a task id is not read as it was written")
        }
        if let id = DeviceID(bytes: bytes) { try require(id.bytes == bytes, "an id's bytes change") }
        if bytes.count >= 16 {
            let id = TaskID(high: bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }, low: UInt64(bytes[8]))
            _ = (id.kind, id.text)
        }
    }
}
