import Wire

/// A message type that can create random values of itself, within the limits of the codec.
protocol Sampled {
    static func sample(_ random: inout Generator) -> Self
}

/// A type-erased value with everything that a test compares.
struct Sample: Sendable {
    var messageName: String
    var frameType: FrameType
    var body: [UInt8]
    var frame: [UInt8]
    /// The value in protobuf's text format, unindented.
    var text: String
    /// Decodes other bytes as the same type and encodes the result again.
    var recode: @Sendable ([UInt8]) throws -> [UInt8]
    /// Returns whether the bytes decode to this sample's value.
    var isEncoded: @Sendable ([UInt8]) throws -> Bool

    init<Message: WireMessage & TextFormatted>(_ message: Message) {
        messageName = "\(Message.self)"
        frameType = Message.frameType
        (body, frame) = ([], [])
        message.appendBody(to: &body)
        message.appendFrame(to: &frame)
        var format = TextFormat()
        message.write(to: &format)
        text = format.text
        recode = { bytes in
            var again: [UInt8] = []
            try Message(decoding: bytes.span.bytes).appendBody(to: &again)
            return again
        }
        isEncoded = { bytes in try Message(decoding: bytes.span.bytes) == message }
    }

    /// Returns samples in the order of the frame types, an empty one first for each.
    static func all(randomCount: Int) -> [Sample] {
        var samples: [Sample] = []
        func add<Message: WireMessage & TextFormatted & Sampled>(_: Message.Type) {
            var random = Generator("\(Message.self)")
            samples.append(Sample(Message()))
            for _ in 0..<randomCount { samples.append(Sample(Message.sample(&random))) }
        }
        add(Hello.self)
        add(Welcome.self)
        add(Close.self)
        add(Ping.self)
        add(Pong.self)
        add(Deliver.self)
        add(Ack.self)
        add(DeviceUpdate.self)
        add(UpdateResult.self)
        add(Feedback.self)
        add(Revoke.self)
        add(Upstream.self)
        add(UpstreamResult.self)
        add(Publish.self)
        add(PublishResult.self)
        add(DeviceNames.self)
        add(DeviceNamesResult.self)
        return samples
    }
}

extension Generator {
    mutating func identifier<ID: WideIdentifier>(_: ID.Type = ID.self) -> ID {
        below(5) == 0 ? .none : ID(high: next(), low: next())
    }

    mutating func applicationState() -> ApplicationState { ApplicationState(rawValue: UInt8(below(3))) ?? .foreground }

    mutating func token() -> VendorToken {
        VendorToken(
            channel: VendorChannel.vendors[below(VendorChannel.vendors.count)],
            kind: VendorToken.Kind.allCases[below(VendorToken.Kind.allCases.count)],
            environment: flag() ? .sandbox : .production,
            topic: text(upTo: 20), token: text(upTo: 40), activity: flag() ? text(upTo: 16) : "")
    }

    mutating func attributes() -> DeviceAttributes {
        var attributes = DeviceAttributes()
        let platforms = DeviceAttributes.Platform.allCases
        attributes.platform = platforms[below(platforms.count)]
        (attributes.brand, attributes.model) = (text(upTo: 20), text(upTo: 20))
        (attributes.systemVersion, attributes.appVersion) = (text(upTo: 10), text(upTo: 10))
        (attributes.locale, attributes.timeZone) = (text(upTo: 10), text(upTo: 10))
        let permissions = DeviceAttributes.NotificationPermission.allCases
        attributes.notificationPermission = permissions[below(permissions.count)]
        return attributes
    }

    mutating func position(stream: UInt32? = nil) -> StreamPosition {
        var position = StreamPosition(stream: stream ?? number(), sequence: number(UInt64.self) >> 1)
        var floor = position.sequence
        for _ in 0..<below(5) {
            let first = floor + 1 + UInt64(below(1_000))
            floor = first + UInt64(below(300))
            position.ranges.append(SequenceRange(first: first, last: floor))
        }
        return position
    }

    mutating func rejected() -> Rejected {
        Rejected(stream: number(), sequence: number(), reason: text(upTo: 128))
    }

    mutating func alert() -> Alert? {
        flag() ? Alert(title: text(upTo: 10), body: text(upTo: 30)) : nil
    }
}

extension Hello: Sampled {
    static func sample(_ random: inout Generator) -> Hello {
        var hello = Hello()
        hello.appID = random.text(upTo: 16)
        hello.role = random.flag() ? .sender : .device
        hello.cid = random.identifier()
        hello.registration = random.flag()
        hello.timestamp = random.number()
        hello.proof = random.bytes(upTo: 64)
        hello.queueEpoch = random.number()
        hello.positions = random.list(upTo: 3) { $0.position() }
        hello.applicationState = random.applicationState()
        hello.keepsRunning = random.flag()
        hello.heartbeatSeconds = random.number()
        hello.badge = random.flag() ? random.int32() : nil
        hello.tokens = random.list(upTo: 3) { $0.token() }
        hello.opened = random.list(upTo: 4) { $0.identifier() }
        hello.replayOpened = random.flag()
        hello.client = random.text(upTo: 64)
        hello.window = random.number()
        hello.nonce = random.bytes(upTo: 16)
        hello.registrationToken = random.text(upTo: 40)
        hello.attributes = random.flag() ? random.attributes() : nil
        return hello
    }
}

extension Welcome: Sampled {
    static func sample(_ random: inout Generator) -> Welcome {
        var welcome = Welcome()
        welcome.generation = random.number()
        welcome.queueEpoch = random.number()
        welcome.heartbeatSeconds = random.number()
        welcome.window = random.number()
        welcome.serverTime = random.number()
        welcome.backlog = random.number()
        welcome.dropped = random.list(upTo: 4) { Dropped(reason: $0.text(upTo: 12), count: $0.number()) }
        welcome.cid = random.identifier()
        welcome.deviceSecret = random.bytes(upTo: 64)
        return welcome
    }
}

extension Close: Sampled {
    static func sample(_ random: inout Generator) -> Close {
        var close = Close()
        close.code = random.number()
        close.reason = random.text(upTo: 128)
        close.retryAfterMinimum = random.number()
        close.retryAfterMaximum = random.number()
        close.alternate = random.text(upTo: 66)
        close.serverTime = random.number()
        return close
    }
}

extension Ping: Sampled {
    static func sample(_ random: inout Generator) -> Ping { Ping(nonce: random.number()) }
}

extension Pong: Sampled {
    static func sample(_ random: inout Generator) -> Pong { Pong(nonce: random.number()) }
}

extension Deliver: Sampled {
    static func sample(_ random: inout Generator) -> Deliver {
        var deliver = Deliver()
        deliver.stream = random.number()
        deliver.sequence = random.number()
        deliver.messageID = random.identifier()
        deliver.taskID = random.identifier()
        deliver.payload = random.bytes(upTo: 300)
        deliver.offline = random.flag()
        deliver.carriedByVendor = random.flag()
        deliver.acceptedAt = random.number()
        deliver.alertedAt = random.number()
        deliver.attempt = random.number()
        deliver.collapseKey = random.text(upTo: 16)
        deliver.alert = random.alert()
        return deliver
    }
}

extension Ack: Sampled {
    static func sample(_ random: inout Generator) -> Ack {
        var ack = Ack()
        // Each stream once in any order, because the live path's view refuses an Ack that names one twice.
        var streams: [UInt32] = [0, 1, 2, 7]
        streams.shuffle(using: &random)
        ack.positions = streams.prefix(random.below(4)).map { random.position(stream: $0) }
        ack.rejected = random.list(upTo: 2) { $0.rejected() }
        return ack
    }
}

extension DeviceUpdate: Sampled {
    static func sample(_ random: inout Generator) -> DeviceUpdate {
        var update = DeviceUpdate()
        update.request = random.number()
        update.applicationState = random.flag() ? random.applicationState() : nil
        update.keepsRunning = random.flag() ? random.flag() : nil
        update.badge = random.flag() ? random.int32() : nil
        update.tokens = random.list(upTo: 3) { $0.token() }
        update.pushModeOff = random.flag() ? random.flag() : nil
        update.heartbeatSeconds = random.number()
        return update
    }
}

extension UpdateResult: Sampled {
    static func sample(_ random: inout Generator) -> UpdateResult {
        var result = UpdateResult()
        result.request = random.number()
        result.code = random.number()
        result.reason = random.text(upTo: 40)
        result.heartbeatSeconds = random.number()
        return result
    }
}

extension Feedback: Sampled {
    static func sample(_ random: inout Generator) -> Feedback {
        var feedback = Feedback()
        feedback.kind = Feedback.Kind(rawValue: UInt8(random.below(3))) ?? .opened
        feedback.messageID = random.identifier()
        feedback.action = random.number()
        return feedback
    }
}

extension Revoke: Sampled {
    static func sample(_ random: inout Generator) -> Revoke {
        var revoke = Revoke()
        revoke.sequence = random.number()
        revoke.messageID = random.identifier()
        revoke.taskID = random.identifier()
        revoke.revokedTaskID = random.identifier()
        return revoke
    }
}

extension Upstream: Sampled {
    static func sample(_ random: inout Generator) -> Upstream {
        var upstream = Upstream()
        upstream.request = random.number()
        upstream.payload = random.bytes(upTo: 300)
        upstream.taskID = random.identifier()
        return upstream
    }
}

extension UpstreamResult: Sampled {
    static func sample(_ random: inout Generator) -> UpstreamResult {
        var result = UpstreamResult()
        result.request = random.number()
        result.code = random.number()
        result.reason = random.text(upTo: 40)
        return result
    }
}

extension DeviceNames: Sampled {
    static func sample(_ random: inout Generator) -> DeviceNames {
        var names = DeviceNames()
        names.request = random.number()
        names.operation = Operation(rawValue: UInt8(random.below(6))) ?? .query
        names.alias = random.text(upTo: 40)
        names.aliasType = random.text(upTo: 10)
        names.tags = (0..<random.below(5)).map { _ in random.text(upTo: 20) }
        names.token = random.text(upTo: 50)
        return names
    }
}

extension DeviceNamesResult: Sampled {
    static func sample(_ random: inout Generator) -> DeviceNamesResult {
        var result = DeviceNamesResult()
        result.request = random.number()
        result.code = random.number()
        result.reason = random.text(upTo: 40)
        result.alias = random.text(upTo: 20)
        result.tags = (0..<random.below(5)).map { _ in random.text(upTo: 20) }
        return result
    }
}

extension Publish: Sampled {
    static func sample(_ random: inout Generator) -> Publish {
        var publish = Publish()
        publish.request = random.number()
        publish.cid = random.identifier()
        publish.payload = random.bytes(upTo: 300)
        publish.timeToLive = random.flag() ? random.int64() : nil
        publish.hasTimeToLive = random.flag()
        publish.strategy = random.number()
        publish.collapseKey = random.text(upTo: 16)
        publish.requestID = random.text(upTo: 32)
        publish.alert = random.alert()
        publish.apns = random.bytes(upTo: 100)
        return publish
    }
}

extension PublishResult: Sampled {
    static func sample(_ random: inout Generator) -> PublishResult {
        var result = PublishResult()
        result.request = random.number()
        result.code = random.number()
        result.reason = random.text(upTo: 40)
        result.messageID = random.identifier()
        result.taskID = random.identifier()
        result.live = random.flag()
        result.fallback = random.number()
        result.fallbackReason = random.text(upTo: 12)
        result.fsync = random.flag()
        result.idsOnly = random.flag()
        return result
    }
}
