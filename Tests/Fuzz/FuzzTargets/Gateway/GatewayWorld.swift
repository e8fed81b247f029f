import Configuration
internal import Delivery
internal import Gateway
internal import Glibc
internal import MessageStore
internal import Platform
internal import PushAPI
internal import Wire

/// A gateway in its own folder, with devices, senders and callers that check its answers.
final class GatewayWorld {
    private struct Device {
        var cid: DeviceID
        var secret: [UInt8]
        var app: Int
        var peer: FramePeer?
        var received: [UInt64] = []
        /// Whether the device was welcomed after its registration, so that the gateway never deletes it.
        var hasReturned = false
        var close: Close?
        /// The queue state that an app keeps.
        var epoch: UInt64 = 0
        var positions: [UInt32: UInt64] = [:]
    }

    private static let firstTime: GatewayTime = 1_795_000_000_000
    /// The number of registered devices of each app.
    private static let deviceCounts = [6, 2]
    private static let callerCount = 16

    private let folder: String
    private let file: String
    private var gateway: SteppedGateway?
    private var settings = FuzzSettings()
    private var inForce = FuzzSettings()
    private let words: FuzzWords
    private var callers: [HTTPCaller?] = []
    private var adminCallers: [HTTPCaller?] = []
    /// Connections with one request each.
    private var strangers: [HTTPCaller] = []
    private var devices: [Device] = []
    private var senders: [FramePeer?] = [nil, nil]
    private var nextCaller = 0
    private var nextPublish: UInt64 = 0
    private var requestCount = 0
    private var pendingAtOpening: Int64 = 0
    private var publishBudget = 0
    /// The budget for requests that read every bucket; one costs as much as thousands of others.
    private var wideBudget = 0
    private var isOverload = false

    init() throws {
        let base =
            getenv("TMPDIR").map { String(cString: $0) } ?? (FileSystem.isDirectory("/dev/shm") ? "/dev/shm" : "/tmp")
        var template = Array("\(base)/longwire-fuzz-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw SystemError.last("mkdtemp", base) }
        folder = template.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }
        file = folder + "/longwire.json5"
        let text = settings.text()
        words = FuzzWords(
            try ConfigurationFile.read(Array(text.utf8), file: file), time: Self.firstTime)
        callers = Array(repeating: nil, count: Self.callerCount)
        adminCallers = Array(repeating: nil, count: 2)
        try open()
        try register()
    }

    func takeRequestCount() -> Int {
        defer { requestCount = 0 }
        return requestCount
    }

    // MARK: Start and stop

    private func write(_ settings: FuzzSettings) throws {
        try FileSystem.replace(file, with: Array(settings.text().utf8))
    }

    private func open() throws {
        try write(settings)
        let opened = try SteppedGateway(file: file, time: words.time) { fatalError("the store gave up: \($0)") }
        gateway = opened
        inForce = settings
        words.configuration = try ConfigurationFile.load(file)
        words.time = opened.time
        words.tokens = [[], []]
        pendingAtOpening = opened.books.pending
        while !opened.isReady {
            opened.wait(atMostMilliseconds: 1)
            try turn(opened)
        }
        try authenticate()
    }

    private func close() {
        for index in callers.indices { callers[index]?.end.close() }
        for index in adminCallers.indices { adminCallers[index]?.end.close() }
        for index in strangers.indices { strangers[index].end.close() }
        for index in devices.indices { devices[index].peer?.end.close() }
        for index in senders.indices { senders[index]?.end.close() }
        callers = Array(repeating: nil, count: callers.count)
        adminCallers = Array(repeating: nil, count: adminCallers.count)
        (strangers, senders) = ([], [nil, nil])
        for index in devices.indices { devices[index].peer = nil }
        gateway?.close()
        gateway = nil
    }

    /// Closes the gateway, counts the rows in its folder, and reopens it unchanged, without an app, or from a backup.
    func reopen(round: Int) throws {
        switch round % 4 {
        case 1: try reopen(nil) { [self] in _ = try StoreBackup.make(of: data, at: backup, time: words.time) }
        case 2: try leaveOutSecondApp()
        case 3 where FileSystem.exists(backup): try goBack()
        default: try reopen(nil)
        }
    }

    private var data: String { folder + "/data" }
    private var backup: String { folder + "/backup" }

    /// Restores a backup, so that devices connect with positions of the previous history.
    ///
    /// The reopened gateway must accept every device that the restored store has.
    private func goBack() throws {
        let epochs = devices.map(\.epoch)
        let restored = try reopen(nil) { [self] in
            // Half of the restores happen more than a day later, when no device in the backup has reconnected within a day.
            if words.requestCount & 1 == 0 { words.time += 90_000_000 }
            try FileSystem.removeTree(data)
            _ = try StoreBackup.restore(backup, to: data)
            try EmbeddedStore.endCopy(to: data, wall: words.time)
            try FileSystem.removeTree(backup)
        }
        for index in devices.indices {
            try connect(index)
            try settle()
            let (device, answer) = (devices[index], devices[index].close)
            let isWelcome = device.peer?.isWelcome == true && answer == nil
            let shown = answer.map { "\($0.code), \($0.reason)" } ?? "no Close"
            if restored.devices.contains(device.cid) {
                try require(isWelcome, "device \(index) is not welcome after a restore: \(shown)")
                try require(device.epoch != epochs[index], "a queue epoch outlives its history")
            } else {
                // The device was deleted before the backup because it did not reconnect; `hear` checks that it never had.
                try require(
                    answer?.code == CloseCode.unknownDevice.rawValue,
                    "device \(index) is not in the restored store, and is not told so: \(shown)")
                count("unknown after a restore")
            }
        }
        count("restored")
    }

    /// Reopens the gateway without the second app while that app's jobs are stored.
    private func leaveOutSecondApp() throws {
        var settings = FuzzSettings()
        settings.hasSecondApp = false
        try reopen(settings)
        var script = Script(Array(repeating: 1, count: 64))
        try ask(GatewayGrammar.request("POST /v1/handoff/lease", isAdmin: true, &script, words))
        try settle()
        try reopen(nil)
    }

    /// Reopens with these settings, or the default ones, after a change of the closed store.
    ///
    /// - Returns: the content of the folder that is opened.
    @discardableResult
    private func reopen(_ new: FuzzSettings?, _ change: (() throws -> Void)? = nil) throws -> StoredContent {
        close()
        var books = try StoredContent(folder: data)
        try require(books.problem == nil, books.problem ?? "")
        if let change {
            try change()
            books = try StoredContent(folder: data)
        }
        settings = new ?? FuzzSettings()
        try open()
        try require(
            pendingAtOpening == books.pending,
            "a start counts \(pendingAtOpening) pending messages, \(books.pending) are stored")
        try probe()
        return books
    }

    func finish() throws {
        takeOver()
        close()
        let books = try StoredContent(folder: folder + "/data")
        try FileSystem.removeTree(folder)
        try require(books.problem == nil, books.problem ?? "")
    }

    /// Discards the gateway after a failure, without further checks.
    func abandon() {
        takeOver()
        close()
        try? FileSystem.removeTree(folder)
    }

    private func takeOver() { gateway?.takeOver() }

    private var running: SteppedGateway {
        guard let gateway else { preconditionFailure("the gateway is closed") }
        return gateway
    }

    // MARK: An input

    func play(_ script: inout Script) throws {
        takeOver()
        let header = script.byte(), cost = script.byte()
        words.byteBudget = cost < 0xF0 ? 1 << 20 : 12 << 20
        publishBudget = cost < 0xE0 ? 300 : cost < 0xF8 ? 3_000 : 40_000
        wideBudget = cost >= 0xE0 ? 32 : cost & 7 == 0 ? 1 : 0
        isOverload = false
        if let profile = FuzzSettings.profile(header, &script) {
            if try isAllowed(profile) { try reopen(profile) }
        } else if inForce != settings {
            try reload(settings)
        }
        try authenticateIfNeeded()
        var steps = 0
        while !script.isAtEnd, steps < 64, words.byteBudget > 0 {
            steps += 1
            try step(&script)
        }
        try settle()
        try check()
    }

    private func step(_ script: inout Script) throws {
        switch script.choice(24) {
        case 0...9: try ask(GatewayGrammar.request(&script, words))
        case 10...12:
            // Several requests of the same kind in a row, as a polling or looping caller sends them.
            var copy = script
            let count = 1 + script.choice(32)
            for _ in 0..<count {
                copy = script
                try ask(GatewayGrammar.request(&copy, words))
                guard words.byteBudget > 0 else { break }
            }
            script = copy
        case 13: try publishFrames(&script, count: 1)
        case 14: try publishFrames(&script, count: script.pick([1, 30, 300, 1_001, 3_000, 30_001]))
        case 15: try connect(script.choice(devices.count))
        case 16: try acknowledge(&script)
        case 17: try tell(&script)
        case 18: try reload(&script)
        case 19: try pass(script.pick([50, 1_000, 3_000, 10_000, 60_000, 600_000, 7_200_000, 86_400_000]))
        case 20: running.requestSpill()
        case 21:
            let index = script.choice(devices.count)
            if script.flag() { try halfClose(index, &script) } else { try hangUp(index) }
        case 22: try babble(&script)
        default: try settle()
        }
        if strangers.count > 4 || requestCount & 63 == 0 { try settle() }
    }

    // MARK: Requests

    func ask(_ request: FuzzRequest) throws {
        if request.isWide {
            guard wideBudget > 0 else { return }
            wideBudget -= 1
        }
        if request.isUncouth {
            var caller = HTTPCaller(
                end: StreamEnd(
                    try running.connect(request.isAdmin ? .admin : .http, loop: nextCaller % running.loopCount)))
            nextCaller += 1
            push(request, on: &caller)
            strangers.append(caller)
            return try settle()
        }
        nextCaller += 1
        if request.isAdmin {
            let place = nextCaller % adminCallers.count
            var caller = try fresh(adminCallers[place]) ?? open(.admin, place)
            push(request, on: &caller)
            adminCallers[place] = caller
        } else {
            let place = nextCaller % callers.count
            var caller = try fresh(callers[place]) ?? open(.http, place)
            push(request, on: &caller)
            callers[place] = caller
        }
    }

    /// A connection near its idle timeout may close with a request in flight, so such a connection is not reused.
    private func fresh(_ caller: HTTPCaller?) -> HTTPCaller? {
        guard var caller else { return nil }
        guard !caller.waiting.isEmpty || caller.usedAt + 60_000 > words.time else {
            caller.end.close()
            return nil
        }
        caller.usedAt = words.time
        return caller
    }

    private func open(_ door: SteppedGateway.Door, _ place: Int) throws -> HTTPCaller {
        HTTPCaller(end: StreamEnd(try running.connect(door, loop: place % running.loopCount)), usedAt: words.time)
    }

    private func push(_ request: FuzzRequest, on caller: inout HTTPCaller) {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(request.body.count + request.target.count + 256)
        request.append(to: &bytes)
        caller.end.write(bytes)
        var kept = request
        kept.body = []
        caller.waiting.append(kept)
    }

    /// Reads every available answer; returns whether there was one.
    private func read(_ caller: inout HTTPCaller) throws -> Bool {
        var hasMoved = caller.end.exchange()
        var isLast = false
        while let request = caller.waiting.first,
            let answer = try FuzzAnswer(caller.end.waiting, isHead: request.method == "HEAD")
        {
            try judge(answer, to: request)
            words.read(answer.body)
            if request.call == "POST /v2/{appId}/auth" { keepToken(answer, request) }
            caller.end.take(answer.byteCount)
            caller.waiting.removeFirst()
            requestCount += 1
            hasMoved = true
            if answer.isLast {
                isLast = true
                break
            }
        }
        if isLast { caller.waiting = [] }
        try require(caller.waiting.isEmpty == false || caller.end.waiting.isEmpty || isLast, "an answer to no request")
        if caller.end.isOver {
            try require(
                caller.waiting.isEmpty,
                "a connection ended with \(caller.waiting.count) requests unanswered, \(caller.waiting.first?.call ?? "")"
            )
        }
        return hasMoved
    }

    private func judge(_ answer: FuzzAnswer, to request: FuzzRequest) throws {
        let shown = "\(answer.status) to \(request.call): \(String(decoding: answer.body.prefix(160), as: UTF8.self))"
        if answer.isText, !request.call.hasSuffix("/metrics") {
            // The server itself refuses requests that are too large or not HTTP.
            try require(request.isUncouth && [400, 413, 414, 431].contains(answer.status), shown)
            return count("http \(answer.status)")
        }
        if request.isAdmin {
            try require([200, 201, 400, 401, 403, 404, 405, 409, 413, 503].contains(answer.status), shown)
            if answer.status >= 400, request.method != "HEAD", !request.call.hasSuffix("/readyz") {
                // A push is answered in Getui's format. An earlier refusal has the admin API's format.
                let isPush = request.call.hasSuffix("/push") && answer.body.starts(with: #"{"code":"#.utf8)
                try require(isPush || answer.body.starts(with: #"{"error":{"code":"#.utf8), shown)
            }
            // Only the app's settings determine the topic of a job.
            if request.call.hasSuffix("/handoff/lease") {
                let text = String(decoding: answer.body, as: UTF8.self)
                try require(!text.contains(#""topic":"""#), "a job was leased without a topic")
            }
            count("admin \(answer.status)")
        } else if request.call.hasSuffix("/readyz") || request.call.hasSuffix("/healthz") {
            try require(answer.status == 200 || answer.status == 503, shown)
        } else if request.call.hasSuffix("/v2/check") {
            try require(answer.status == 200, shown)
        } else {
            let digits = answer.body.dropFirst(8).prefix { (48...57).contains($0) }
            let code = Int(String(decoding: digits, as: UTF8.self)).flatMap { GetuiCode(rawValue: $0) }
            try require(answer.body.starts(with: #"{"code":"#.utf8) && code != nil, shown)
            try require(code?.httpStatus == answer.status, shown)
            count("code \(code?.rawValue ?? -1)")
        }
        if answer.body.first == UInt8(ascii: "{") { try require(JSONFuzz.isJSON(Array(answer.body)), shown) }
    }

    private func count(_ what: String) { GatewayFuzz.tally.withLock { $0[what, default: 0] += 1 } }

    // MARK: Tokens

    private func authenticateIfNeeded() throws {
        guard words.tokens[0].isEmpty || words.time > tokensExpireAt else { return }
        words.tokens = [[], []]
        try authenticate()
    }

    private var tokensExpireAt: GatewayTime = 0

    private func authenticate() throws {
        for app in FuzzWords.appIDs.indices where words.configuration.app(id: FuzzWords.appIDs[app]) != nil {
            for _ in 0..<2 {
                // Past its end a script yields zeros, the simplest form of a production. These ones avoid the form with random
                // bytes.
                var script = Script(Array(repeating: 1, count: 64))
                var request = GatewayGrammar.request("POST /v2/{appId}/auth", isAdmin: false, &script, words)
                request.target = Array("/v2/\(FuzzWords.appIDs[app])/auth".utf8)
                request.body = GatewayGrammar.authentication(words, app)
                try ask(request)
            }
        }
        try settle()
        tokensExpireAt = words.time + 20 * 3_600_000
        try require(isOverload || !words.tokens[0].isEmpty, "no token was given")
    }

    private func keepToken(_ answer: FuzzAnswer, _ request: FuzzRequest) {
        let text = String(decoding: answer.body, as: UTF8.self)
        guard let start = text.firstRange(of: #""token":""#)?.upperBound else { return }
        let app = request.target.starts(with: "/v2/two".utf8) ? 1 : 0
        let token = String(text[start...].prefix { $0 != "\"" })
        if words.tokens[app].count > 3 { words.tokens[app].remove(at: 1) }
        words.tokens[app].append(token)
    }

    // MARK: Turns

    /// Runs one round: sends the pending requests, runs every loop, reads the answers.
    private func turn(_ gateway: SteppedGateway) throws {
        gateway.turn()
        for index in callers.indices where callers[index] != nil {
            guard var caller = callers[index] else { continue }
            callers[index] = nil
            if !caller.waiting.isEmpty || caller.end.hasOutgoing { hasMoved = try read(&caller) || hasMoved }
            callers[index] = caller.end.isOpen ? caller : nil
            if callers[index] == nil { caller.end.close() }
        }
        for index in adminCallers.indices {
            guard var caller = adminCallers[index] else { continue }
            adminCallers[index] = nil
            if !caller.waiting.isEmpty || caller.end.hasOutgoing { hasMoved = try read(&caller) || hasMoved }
            adminCallers[index] = caller.end.isOpen ? caller : nil
            if adminCallers[index] == nil { caller.end.close() }
        }
        var left: [HTTPCaller] = []
        for var caller in strangers {
            hasMoved = try read(&caller) || hasMoved
            if caller.waiting.isEmpty || !caller.end.isOpen { caller.end.close() } else { left.append(caller) }
        }
        strangers = left
        for index in devices.indices {
            guard var peer = devices[index].peer else { continue }
            hasMoved = peer.end.exchange() || hasMoved
            try hear(index, &peer)
            if !peer.end.isOpen {
                try require(
                    !peer.end.isHalfClosed || peer.owedCount == 0 || peer.closeCode != nil,
                    "a half-closed session ended with \(peer.owedCount) answers owed")
                peer.end.close()
            }
            devices[index].peer = peer.end.isOpen ? peer : nil
        }
        for index in senders.indices {
            guard var peer = senders[index] else { continue }
            hasMoved = peer.end.exchange() || hasMoved
            try hearSender(&peer)
            if !peer.end.isOpen {
                try require(
                    peer.unanswered.isEmpty || peer.closeCode != nil,
                    "a sender's connection ended with \(peer.unanswered.count) publishes unanswered")
                peer.end.close()
            }
            senders[index] = peer.end.isOpen ? peer : nil
        }
    }

    private var hasMoved = false

    private var isOwedAnswers: Bool {
        callers.contains { $0?.waiting.isEmpty == false } || adminCallers.contains { $0?.waiting.isEmpty == false }
            || !strangers.isEmpty || senders.contains { $0.map { !$0.unanswered.isEmpty || !$0.isWelcome } ?? false }
            || devices.contains { $0.peer.map { !$0.isWelcome || $0.end.isHalfClosed } ?? false }
            || senders.contains { $0?.end.isHalfClosed ?? false }
    }

    /// Runs until every answer has arrived.
    func settle() throws {
        let gateway = running
        var idleRounds = 0
        for _ in 0..<2 {
            try turn(gateway)
        }
        while isOwedAnswers {
            hasMoved = false
            try turn(gateway)
            if hasMoved {
                idleRounds = 0
                continue
            }
            idleRounds += 1
            gateway.wait(atMostMilliseconds: 1)
            // Advances time for work that waits for it, such as a long poll or a retry.
            if idleRounds > 20 { try advance(50) }
            try require(idleRounds < 20_000, "no answer comes: \(owed)")
        }
        try advance(50)
    }

    private var owed: String {
        let calls =
            (callers + adminCallers).compactMap { $0?.waiting.first?.call }
            + strangers.compactMap { $0.waiting.first?.call }
        let publishes = senders.reduce(0) { $0 + ($1?.unanswered.count ?? 0) }
        return "\(calls), \(publishes) publishes, \(devices.count { $0.peer?.isWelcome == false }) Hellos"
    }

    private func advance(_ milliseconds: Int64) throws {
        running.advance(milliseconds)
        words.time = running.time
    }

    private func pass(_ milliseconds: Int64) throws {
        try settle()
        try advance(milliseconds)
        // Connections that were idle this long are closed or closing.
        if milliseconds >= 10_000 {
            for index in callers.indices { callers[index]?.end.close() }
            for index in adminCallers.indices { adminCallers[index]?.end.close() }
            callers = Array(repeating: nil, count: callers.count)
            adminCallers = Array(repeating: nil, count: adminCallers.count)
        }
        try settle()
        try authenticateIfNeeded()
    }

    // MARK: Frames

    private func register() throws {
        for (app, count) in Self.deviceCounts.enumerated() {
            for number in 0..<count {
                var peer = FramePeer(end: StreamEnd(try running.connect(.device, loop: number % running.loopCount)))
                var hello = Hello()
                hello.appID = FuzzWords.appIDs[app]
                hello.registration = true
                hello.timestamp = UInt64(words.time)
                // The vendor can reach half of the devices.
                if number % 2 == 0 { hello.tokens = [VendorToken(environment: .sandbox, token: "aabb\(app)\(number)")] }
                try peer.send(hello, key: Array("app-secret-\(app)".utf8))
                devices.append(Device(cid: .none, secret: [], app: app, peer: peer))
                let index = devices.count - 1
                try settle()
                try require(!devices[index].cid.isNone, "device \(number) of app \(app) could not register")
            }
        }
        try probe()
    }

    private func connect(_ index: Int) throws {
        try hangUp(index)
        try advance(1)
        var peer = FramePeer(end: StreamEnd(try running.connect(.device, loop: index % running.loopCount)))
        var hello = Hello()
        hello.appID = FuzzWords.appIDs[devices[index].app]
        hello.cid = devices[index].cid
        hello.timestamp = UInt64(words.time)
        hello.window = 32
        hello.queueEpoch = devices[index].epoch
        hello.positions = devices[index].positions.sorted { $0.key < $1.key }.map {
            StreamPosition(stream: $0.key, sequence: $0.value)
        }
        try peer.send(hello, key: devices[index].secret)
        devices[index].peer = peer
        devices[index].received = []
        devices[index].close = nil
    }

    private func hangUp(_ index: Int) throws {
        guard devices[index].peer != nil else { return }
        try settle()
        devices[index].peer?.end.close()
        devices[index].peer = nil
        try settle()
    }

    private func hear(_ index: Int, _ peer: inout FramePeer) throws {
        while let (type, body) = try peer.next() {
            switch type {
            case .welcome:
                let welcome = try decode(Welcome.self, body)
                peer.isWelcome = true
                if welcome.queueEpoch != devices[index].epoch {
                    (devices[index].epoch, devices[index].positions) = (welcome.queueEpoch, [:])
                }
                guard devices[index].cid.isNone else {
                    devices[index].hasReturned = true
                    break
                }
                devices[index].cid = welcome.cid
                devices[index].secret = welcome.deviceSecret
                words.cids[devices[index].app].append(welcome.cid.description)
                words.secrets[welcome.cid.description] = welcome.deviceSecret
            case .deliver:
                let deliver = try decode(Deliver.self, body)
                try require(
                    deliver.sequence > peer.highest[deliver.stream, default: 0] || deliver.attempt > 1,
                    "sequence \(deliver.sequence) came after \(peer.highest[deliver.stream, default: 0])")
                peer.highest[deliver.stream] = max(peer.highest[deliver.stream, default: 0], deliver.sequence)
                devices[index].positions[deliver.stream] = max(
                    devices[index].positions[deliver.stream, default: 0], deliver.sequence)
                if deliver.stream == 0 { devices[index].received.append(deliver.sequence) }
                words.messages.add(deliver.messageID.description)
            case .revoke: devices[index].received.append(try decode(Revoke.self, body).sequence)
            case .ping: peer.send(Pong(nonce: try decode(Ping.self, body).nonce))
            case .close:
                let close = try decode(Close.self, body)
                (peer.closeCode, devices[index].close) = (close.code, close)
                try require(
                    close.code != CloseCode.unknownDevice.rawValue || !devices[index].hasReturned,
                    "device \(index) had returned and is unknown")
                // After a Close the fuzzer expects no Welcome.
                peer.isWelcome = true
            case .updateResult, .pong: peer.owedCount -= 1
            default: throw FuzzFailure(description: "a device was sent \(type)")
            }
        }
    }

    /// Reports, sends a Ping, closes the sending half, and checks that all answers arrive before the gateway closes its half.
    private func halfClose(_ index: Int, _ script: inout Script) throws {
        if devices[index].peer == nil {
            try connect(index)
            try settle()
        }
        guard devices[index].peer?.isWelcome == true else { return }
        try tell(&script, as: index, settles: false)
        if script.flag() {
            devices[index].peer?.send(Ping(nonce: script.word()))
            devices[index].peer?.owedCount += 1
        }
        devices[index].peer?.end.halfClose()
        try settle()
        count("half-closed")
    }

    private func acknowledge(_ script: inout Script) throws {
        let index = script.choice(devices.count)
        guard devices[index].peer?.isWelcome == true else { return }
        var ack = Ack()
        let received = devices[index].received
        switch script.choice(6) {
        case 0...2: ack.positions = [StreamPosition(sequence: received.max() ?? 0)]
        case 3: ack.positions = [StreamPosition(sequence: received.min() ?? 0)]
        case 4:
            ack.rejected = received.prefix(script.choice(33)).map {
                Rejected(sequence: $0, reason: script.text(upTo: 64))
            }
        default: ack.positions = [StreamPosition(stream: UInt32(script.choice(3)), sequence: script.number())]
        }
        devices[index].peer?.send(ack)
        try settle()
    }

    private func tell(_ script: inout Script) throws {
        try tell(&script, as: script.choice(devices.count), settles: true)
    }

    private func tell(_ script: inout Script, as index: Int, settles: Bool) throws {
        guard devices[index].peer?.isWelcome == true else { return }
        if script.flag() {
            var update = DeviceUpdate()
            update.request = UInt32(script.byte())
            update.applicationState = script.pick([.foreground, .background, .terminated])
            if script.flag() { update.pushModeOff = script.flag() }
            if script.flag() { update.badge = Int32(truncatingIfNeeded: script.number()) }
            if script.flag() {
                let count = script.size(Wire.Limits.tokenCount)
                update.tokens = (0..<count).map { number in
                    VendorToken(
                        kind: VendorToken.Kind.allCases[number % 3],
                        topic: String(repeating: "t", count: script.size(Wire.Limits.topicByteCount)),
                        token: String(repeating: "f", count: script.size(Wire.Limits.tokenByteCount)))
                }
            }
            devices[index].peer?.send(update)
            devices[index].peer?.owedCount += 1
        } else {
            let count = 1 + script.choice(64)
            for number in 0..<count {
                var feedback = Feedback()
                feedback.kind = script.pick([.opened, .shown, .action])
                feedback.messageID = MessageID(words.messages.pick(&script, otherwise: "")) ?? .none
                feedback.action = UInt32(truncatingIfNeeded: script.number()) &+ UInt32(number)
                devices[index].peer?.send(feedback)
            }
        }
        if settles { try settle() }
    }

    private func publishFrames(_ script: inout Script, count: Int) throws {
        let app = script.choice(8) == 0 ? 1 : 0
        if senders[app] == nil {
            var peer = FramePeer(end: StreamEnd(try running.connect(.senders, loop: app % running.loopCount)))
            var hello = Hello()
            hello.appID = FuzzWords.appIDs[app]
            hello.role = .sender
            hello.timestamp = UInt64(words.time)
            try peer.send(hello, key: Array("master-secret-\(app)".utf8))
            senders[app] = peer
            try settle()
        }
        guard senders[app]?.isWelcome == true, senders[app]?.closeCode == nil else { return }
        var publish = publish(&script, app)
        let size = publish.bodyByteCount
        let affordable = min(count, publishBudget, max(1, words.byteBudget / max(1, size)))
        publishBudget -= affordable
        words.byteBudget -= affordable * size
        let spreads = script.flag()
        for number in 0..<affordable {
            nextPublish += 1
            publish.request = nextPublish
            if number > 0 { publish.requestID = "" }
            if spreads { publish.cid = DeviceID(words.cids[app][number % words.cids[app].count]) ?? .none }
            senders[app]?.unanswered.insert(nextPublish)
            senders[app]?.send(publish)
            if number % 512 == 511 { try turn(running) }
            guard senders[app] != nil else { break }
        }
        if script.choice(16) == 7 {
            senders[app]?.end.halfClose()
            self.count("sender half-closed")
        }
        try settle()
    }

    private func publish(_ script: inout Script, _ app: Int) -> Publish {
        var publish = Publish()
        let frame = words.configuration.limits.frameBytes
        publish.cid = DeviceID(GatewayGrammar.cid(&script, words, app)) ?? .none
        let way = script.byte()
        publish.payload = [UInt8](repeating: way, count: script.size(PushAPI.Limits.payloadByteCount))
        if way & 1 != 0 {
            publish.hasTimeToLive = true
            publish.timeToLive = script.edge(-1...words.app(app).push.longestTTL)
        }
        publish.strategy = UInt32(script.choice(6))
        if way & 2 != 0 {
            publish.collapseKey = String(repeating: "k", count: script.size(PushAPI.Limits.collapseKeyByteCount))
        }
        if way & 4 != 0 {
            publish.requestID = String(
                repeating: "q", count: script.size(PushAPI.Limits.requestIDCharacterCount.upperBound))
        }
        if way & 8 != 0 {
            publish.alert = Alert(
                title: String(repeating: "t", count: script.size(64)),
                body: String(repeating: "b", count: script.size(PushAPI.Limits.apnsBodyByteCount)))
        }
        if way & 16 != 0 {
            var json = JSONText()
            GatewayGrammar.ios(&script, &json)
            publish.apns = json.bytes
        }
        if way & 0xE0 == 0xE0 {
            let room = frame - publish.bodyByteCount
            let spare = script.pick([16, 8, 5, 4, 3, 2, 0, -8])
            publish.alert = Alert(title: "", body: String(repeating: "b", count: max(0, room - spare)))
        }
        return publish
    }

    private func hearSender(_ peer: inout FramePeer) throws {
        while let (type, body) = try peer.next() {
            switch type {
            case .welcome: peer.isWelcome = true
            case .publishResult:
                let result = try decode(PublishResult.self, body)
                try require(
                    peer.unanswered.remove(result.request) != nil, "publish \(result.request) was answered twice")
                let code = PublishResultCode(rawValue: result.code)
                try require(code != nil, "a publish was answered \(result.code)")
                try require(
                    (code == .accepted) != result.messageID.isNone, "accepted without an id, or refused with one")
                requestCount += 1
                count("publish \(result.code)")
            case .close:
                peer.closeCode = try decode(Close.self, body).code
                (peer.isWelcome, peer.unanswered) = (true, [])
            case .pong: break
            default: throw FuzzFailure(description: "a sender was sent \(type)")
            }
        }
    }

    /// Sends random bytes on a new connection or within a session.
    private func babble(_ script: inout Script) throws {
        let bytes = script.bytes(upTo: 255)
        switch script.choice(4) {
        case 0:
            let index = script.choice(devices.count)
            guard devices[index].peer != nil else { return }
            devices[index].peer?.end.write(bytes)
            try settle()
            try hangUp(index)
        default:
            var end = StreamEnd(
                try running.connect(script.pick(SteppedGateway.Door.allCases), loop: script.choice(running.loopCount)))
            end.write(bytes)
            for _ in 0..<4 {
                _ = end.exchange()
                try turn(running)
            }
            end.close()
            try turn(running)
        }
    }

    // MARK: Configuration

    private func isAllowed(_ settings: FuzzSettings) throws -> Bool {
        do throws(ConfigurationError) {
            _ = try ConfigurationFile.read(Array(settings.text().utf8), file: file)
            return true
        } catch {
            try require(!error.problems.isEmpty, "refused without a reason")
            return false
        }
    }

    private func reload(_ script: inout Script) throws {
        try settle()
        try reload(inForce.changed(&script))
    }

    private func reload(_ next: FuzzSettings) throws {
        try write(next)
        let isAllowed: Bool
        do throws(ConfigurationError) {
            words.configuration = try ConfigurationFile.load(file).applied(over: words.configuration)
            isAllowed = true
        } catch {
            try require(!error.problems.isEmpty, "refused without a reason")
            isAllowed = false
        }
        try require(
            running.reload() == isAllowed, "a configuration is \(isAllowed ? "allowed" : "refused"), a reload not")
        if isAllowed { inForce = next } else { try write(inForce) }
        count(isAllowed ? "reloaded" : "reload refused")
    }

    // MARK: Invariants

    private func check() throws {
        let books = running.books
        try require(books.damagedRows == 0, "\(books.damagedRows) rows cannot be read")
        let pending = pendingAtOpening + Int64(books.accepted) - Int64(books.ended)
        try require(
            books.pending == pending,
            "accepted \(books.accepted), ended \(books.ended), pending \(books.pending) and \(pendingAtOpening) at first"
        )
    }

    /// Checks that an idle gateway accepts a message.
    private func probe() throws {
        try settle()
        guard let cid = words.cids[0].first else { return }
        let before = GatewayFuzz.tally.withLock { $0["code 30019", default: 0] }
        words.requestCount += 1
        var request = FuzzRequest(
            call: "POST /v2/{appId}/push/single/cid", isAdmin: false, target: Array("/v2/one/push/single/cid".utf8))
        request.credential = "token: \(words.tokens[0].first ?? "")"
        request.body = Array(
            (#"{"request_id":"request-\#(words.requestCount)","settings":{"ttl":0,"strategy":{"default":3}},"#
                + #""audience":{"cid":["\#(cid)"]},"push_message":{"transmission":"p"}}"#).utf8)
        try ask(request)
        try settle()
        let after = GatewayFuzz.tally.withLock { $0["code 30019", default: 0] }
        try require(before == after, "a gateway that was just opened is too busy for one message")
    }
}
