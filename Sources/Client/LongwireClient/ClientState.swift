public import Wire

/// The state of a device that must survive a restart of its app.
public struct ClientState: Equatable, Sendable {
    /// The app that this registration belongs to; a state of another app is not used.
    public var appID: String
    /// The device's id, or `none` before the registration.
    public var cid: DeviceID
    /// The device's secret, 32 bytes, created by the gateway.
    ///
    /// It authenticates the device. Protect the file like a password.
    public var deviceSecret: [UInt8]
    /// The greatest timestamp ever sent in a Hello; the next one is greater.
    public var lastTimestamp: UInt64
    /// The timestamp of the last Hello that the gateway accepted.
    public var acceptedTimestamp: UInt64
    /// The gateway's clock minus this machine's, in milliseconds, learnt from Close(clockSkew).
    public var clockOffset: Int64
    /// The epoch of the queue that `streams` belongs to.
    public var queueEpoch: UInt64
    /// The processed sequences by stream: 0 direct, 1 broadcast.
    public var streams: [UInt32: ProcessedSet]
    /// The last 256 messages opened from a notification, oldest first.
    public var opened: [MessageID]
    /// The opened messages that the gateway has not confirmed yet.
    public var unreportedOpened: [MessageID]
    /// Reports of shown messages and actions that the gateway has not confirmed yet: the last 256, oldest first.
    public var unreported: [MessageReport]

    /// Messages that the app rejected, until the gateway has confirmed the rejection; no position covers them until then.
    public internal(set) var rejections: [Rejected] = []

    /// Messages to the app's server that the gateway has not confirmed yet, in order.
    public internal(set) var outgoing: [OutgoingMessage] = []
    /// The number of the last message to the app's server.
    public internal(set) var lastOutgoing: UInt32 = 0

    /// Removed vendor tokens that the gateway has not confirmed yet, each with channel, kind and activity.
    ///
    /// A Hello adds tokens but cannot remove one.
    var removedTokens: [VendorToken] = []

    /// Tapped notifications that `takeTaps` has not returned yet: the last eight, oldest first.
    public internal(set) var taps: [PushNotification] = []

    /// The heartbeats learnt per network; the network used last is last.
    var heartbeats: [NetworkHeartbeat] = []

    public init(appID: String) {
        self.appID = appID
        cid = .none
        deviceSecret = []
        (lastTimestamp, acceptedTimestamp, clockOffset, queueEpoch) = (0, 0, 0, 0)
        (streams, opened, unreportedOpened, unreported) = ([:], [], [], [])
    }

    /// Whether the state holds a device's id and secret.
    public var isRegistered: Bool { !cid.isNone && !deviceSecret.isEmpty }

    /// Records that the user opened this message from its notification; the last 256 are kept.
    mutating func noteOpened(_ id: MessageID) {
        for list in [\ClientState.opened, \ClientState.unreportedOpened] {
            self[keyPath: list].removeAll { $0 == id }
            self[keyPath: list].append(id)
            self[keyPath: list].removeFirst(max(0, self[keyPath: list].count - Limits.openedCount))
        }
    }

    /// Keeps a tap until the app calls `takeTaps`.
    ///
    /// A notification longer than any push is ignored. The caller still records its message as opened.
    mutating func keep(_ tap: PushNotification) {
        guard tap.isKeepable else { return }
        taps = (taps.filter { $0.messageID != tap.messageID } + CollectionOfOne(tap)).suffix(Limits.tapCount)
    }

    mutating func forgetTaps(of ids: [MessageID]) { taps.removeAll { ids.contains($0.messageID) } }

    /// Returns false when the report is already recorded.
    mutating func note(_ report: MessageReport) -> Bool {
        guard !unreported.contains(report) else { return false }
        unreported.append(report)
        unreported.removeFirst(max(0, unreported.count - Limits.reportCount))
        return true
    }

    mutating func note(_ rejection: Rejected) {
        rejections.removeAll { $0.isOf(rejection.stream, rejection.sequence) }
        rejections.append(rejection)
        rejections.removeFirst(max(0, rejections.count - Limits.rejectionCount))
    }

    /// Records a removed token, or that a token is set again; returns false if nothing changes.
    mutating func note(_ token: VendorToken) -> Bool {
        let before = removedTokens
        removedTokens.removeAll { token.token.isEmpty ? $0.isOfSameUse(as: token) : $0.excludes(token) }
        if token.token.isEmpty, isRegistered {
            removedTokens.append(VendorToken(channel: token.channel, kind: token.kind, activity: token.activity))
            removedTokens.removeFirst(max(0, removedTokens.count - Limits.tokenCount))
        }
        return removedTokens != before
    }

    /// Applies a call made without a session; only taps, reports, outgoing messages, verdicts and tokens change the state.
    mutating func keep(_ command: ClientCommand) {
        switch command {
        case .opened(let id): noteOpened(id)
        case .tapped(let tap):
            keep(tap)
            noteOpened(tap.messageID)
        case .tapsTaken(let ids): forgetTaps(of: ids)
        case .report(let report): _ = note(report)
        case .send(let payload, let task): _ = keep(payload, answering: task)
        case .token(let token): _ = note(token)
        case .finish(let message, .processed) where message.origin == .init(cid: cid, queueEpoch: queueEpoch):
            streams[message.stream, default: ProcessedSet()].insertAlone(message.sequence)
        case .finish(let message, .rejected(let reason)) where message.origin == .init(cid: cid, queueEpoch: queueEpoch):
            note(Rejected(message, reason))
        default: break
        }
    }

    /// Removes the registration and its data.
    ///
    /// The clock offset and heartbeats belong to this machine and stay, as do messages that the app's server does not have yet.
    /// Taps and opened messages also stay, so that no tap is lost and no page opens twice.
    mutating func forgetRegistration() {
        let (offset, learnt) = (clockOffset, heartbeats)
        let (messages, last) = (outgoing, lastOutgoing)
        let (tapped, known) = (taps, opened)
        self = ClientState(appID: appID)
        (clockOffset, heartbeats) = (offset, learnt)
        (outgoing, lastOutgoing) = (messages, last)
        (taps, opened) = (tapped, known)
    }
}

// The stored form: lines of `name value…`, readable in a support case. A version comes first and an end mark last, so that a
// truncated file is detected. Unknown names are an error, so that a file of a newer version is refused.
extension ClientState {
    static let firstLine = "longwire state 1"

    /// The stored form of the state: the contents of a `FileStateStore` file.
    public var serialized: [UInt8] {
        var lines = [Self.firstLine, "app \(Self.hex(Array(appID.utf8)))"]
        if isRegistered {
            lines.append("cid \(cid)")
            lines.append("secret \(Self.hex(deviceSecret))")
        }
        lines.append("timestamp \(lastTimestamp) \(acceptedTimestamp)")
        lines.append("offset \(clockOffset)")
        lines.append("epoch \(queueEpoch)")
        for (stream, processed) in streams.sorted(by: { $0.key < $1.key }) {
            let ranges = processed.ranges.map { " \($0.first)-\($0.last)" }.joined()
            lines.append("stream \(stream) \(processed.sequence)\(ranges)")
        }
        for id in opened { lines.append("opened \(id)") }
        for id in unreportedOpened { lines.append("unreported \(id)") }
        for tap in taps { lines.append(tap.line) }
        for report in unreported { lines.append(report.line) }
        for rejection in rejections { lines.append(rejection.line) }
        for token in removedTokens { lines.append(token.removalLine) }
        for heartbeat in heartbeats { lines.append(heartbeat.line) }
        if lastOutgoing > 0 { lines.append("sent \(lastOutgoing)") }
        for message in outgoing { lines.append(message.line) }
        let text = Array((lines.joined(separator: "\n") + "\n").utf8)
        return text + Array("check \(Self.checkSum(of: text))\nend\n".utf8)
    }

    /// Reads the form that `serialized` writes.
    ///
    /// - Throws: `stateDamaged`, with the line number where it applies, for anything else.
    public init(serialized bytes: [UInt8]) throws(LongwireClientError) {
        var lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n")
        guard let first = lines.first, first == Self.firstLine else {
            throw LongwireClientError(
                code: .stateDamaged, message: "this is not a state of version 1; use another state file")
        }
        guard lines.count > 2, lines.last == "end", bytes.last == UInt8(ascii: "\n") else {
            throw LongwireClientError(code: .stateDamaged, message: "the state is cut short; restore or remove it")
        }
        let check = lines.remove(at: lines.count - 2)
        // The checksum covers all bytes before its own line and the end line, each with its line feed.
        guard check == "check \(Self.checkSum(of: bytes.dropLast(check.utf8.count + 5)))" else {
            throw LongwireClientError(
                code: .stateDamaged, message: "the state does not have its check sum; restore or remove it")
        }
        self.init(appID: "")
        for (number, line) in lines.enumerated().dropFirst().dropLast() {
            let words = line.split(separator: " ", omittingEmptySubsequences: false)
            guard read(name: words[0], values: Array(words.dropFirst())) else {
                throw LongwireClientError(
                    code: .stateDamaged, message: "line \(number + 1) of the state is not understood")
            }
        }
    }

    private mutating func read(name: Substring, values: [Substring]) -> Bool {
        guard let value = values.first else { return false }
        switch name {
        case "app":
            guard let bytes = Self.bytes(hex: value) else { return false }
            appID = String(decoding: bytes, as: UTF8.self)
        case "cid":
            guard let id = DeviceID(value) else { return false }
            cid = id
        case "secret":
            guard let bytes = Self.bytes(hex: value), !bytes.isEmpty else { return false }
            deviceSecret = bytes
        case "timestamp":
            guard values.count == 2, let last = UInt64(value), let accepted = UInt64(values[1]) else { return false }
            (lastTimestamp, acceptedTimestamp) = (last, accepted)
        case "offset":
            guard let number = Int64(value) else { return false }
            clockOffset = number
        case "epoch":
            guard let number = UInt64(value) else { return false }
            queueEpoch = number
        case "stream":
            return readStream(values)
        case "opened":
            guard let id = MessageID(value) else { return false }
            opened.append(id)
        case "unreported":
            guard let id = MessageID(value) else { return false }
            unreportedOpened.append(id)
        case "tap":
            guard let tap = PushNotification(stored: value) else { return false }
            keep(tap)
        case "shown", "action":
            guard let report = MessageReport(name: name, values: values) else { return false }
            unreported.append(report)
        case "rejected":
            guard let rejection = Rejected(values: values) else { return false }
            rejections.append(rejection)
        case "untoken":
            guard let token = VendorToken(removal: values) else { return false }
            removedTokens.append(token)
        case "sent":
            guard let number = UInt32(value) else { return false }
            lastOutgoing = number
        case "send":
            guard let message = OutgoingMessage(values: values) else { return false }
            outgoing.append(message)
        case "heartbeat":
            guard let heartbeat = NetworkHeartbeat(values: values) else { return false }
            keep(heartbeat.plan, on: heartbeat.network)
        default: return false
        }
        return true
    }

    private mutating func readStream(_ values: [Substring]) -> Bool {
        guard values.count >= 2, let stream = UInt32(values[0]), let sequence = UInt64(values[1]),
            sequence <= Limits.greatestSequence
        else { return false }
        var ranges: [SequenceRange] = []
        for value in values.dropFirst(2) {
            let ends = value.split(separator: "-")
            guard ends.count == 2, let first = UInt64(ends[0]), let last = UInt64(ends[1]) else { return false }
            ranges.append(SequenceRange(first: first, last: last))
        }
        streams[stream] = ProcessedSet(sequence: sequence, ranges: ranges)
        return true
    }

    /// Returns the 64-bit FNV-1a hash; it detects disk errors, and is no protection against tampering.
    static func checkSum(of bytes: some Sequence<UInt8>) -> String {
        let sum = bytes.reduce(0xCBF2_9CE4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
        return hex((0..<8).map { UInt8(truncatingIfNeeded: sum >> (56 - 8 * $0)) })
    }

    static func hex(_ bytes: [UInt8]) -> String {
        let digits = Array("0123456789abcdef")
        return String(bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] })
    }

    static func bytes(hex text: Substring) -> [UInt8]? {
        let digits = text.utf8.map { Character(UnicodeScalar($0)).hexDigitValue }
        guard digits.count % 2 == 0 else { return nil }
        var bytes: [UInt8] = []
        for index in stride(from: 0, to: digits.count, by: 2) {
            guard let high = digits[index], let low = digits[index + 1] else { return nil }
            bytes.append(UInt8(high << 4 | low))
        }
        return bytes
    }
}

extension Rejected {
    init(_ message: ReceivedMessage, _ reason: String) {
        // Unicode scalars, because a Swift character may have any number of bytes.
        let text = String(reason.unicodeScalars.prefix(Limits.reasonScalarCount))
        self.init(stream: message.stream, sequence: message.sequence, reason: text)
    }

    func isOf(_ stream: UInt32, _ sequence: UInt64) -> Bool { (self.stream, self.sequence) == (stream, sequence) }

    fileprivate var line: String { "rejected \(stream) \(sequence) \(ClientState.hex(Array(reason.utf8)))" }

    /// Reads the form that `line` writes; returns `nil` for anything else.
    fileprivate init?(values: [Substring]) {
        guard values.count == 3, let stream = UInt32(values[0]), let sequence = UInt64(values[1]),
            sequence <= Limits.greatestSequence, let reason = ClientState.bytes(hex: values[2])
        else { return nil }
        self.init(stream: stream, sequence: sequence, reason: String(decoding: reason, as: UTF8.self))
    }
}

extension VendorToken {
    /// Whether this removal, sent after the token, would remove it.
    func excludes(_ token: VendorToken) -> Bool {
        channel == token.channel && kind == token.kind && (activity.isEmpty || activity == token.activity)
    }

    /// Whether this is the removal that `removal` records.
    func isRemoval(_ removal: VendorToken) -> Bool {
        token.isEmpty && (channel, kind, activity) == (removal.channel, removal.kind, removal.activity)
    }

    fileprivate var removalLine: String {
        "untoken \(channel.rawValue) \(kind.rawValue) \(ClientState.hex(Array(activity.utf8)))"
    }

    /// Reads the form that `removalLine` writes; returns `nil` for anything else.
    fileprivate init?(removal values: [Substring]) {
        guard values.count == 3, let channel = UInt8(values[0]).flatMap(VendorChannel.init(rawValue:)),
            let kind = UInt8(values[1]).flatMap(Kind.init(rawValue:)), let activity = ClientState.bytes(hex: values[2])
        else { return nil }
        self.init(channel: channel, kind: kind, activity: String(decoding: activity, as: UTF8.self))
    }
}
