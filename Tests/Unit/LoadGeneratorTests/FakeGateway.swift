import Cryptography
import Foundation
import Glibc
import Synchronization
import Wire

/// A minimal gateway for the generator: it verifies every proof and keeps unacked messages, in one thread and in memory.
///
/// It can lose or repeat messages, to check that the generator notices.
///
/// `@unchecked Sendable` is sound: the settings never change, `counts` are atomics, and only the serving thread uses the state.
final class FakeGateway: @unchecked Sendable {
    struct Behaviour: Sendable {
        /// Every n-th message is accepted and never delivered; 0: none.
        var losesEvery = 0
        /// Every n-th message is delivered twice; 0: none.
        var repeatsEvery = 0
        /// Every n-th publish is refused; 0: none.
        var refusesEvery = 0
        /// The next Hello of each known device is answered with unknownDevice.
        var forgets = false
        /// Every n-th job is leased a second time; 0: none.
        var leasesTwiceEvery = 0
        /// Every n-th publish is refused as busy; 0: none.
        var busyEvery = 0
        /// The n-th broadcast of a run is refused; 0: none.
        var refusesBroadcast = 0
        /// Every n-th message of a batch is refused; 0: none.
        var refusesOfBatch = 0
    }

    private struct Job {
        var id: String
        var title: String
    }

    private struct Connection {
        enum Kind { case device, sender, http }
        var kind: Kind
        var input: [UInt8] = []
        var cid = DeviceID.none
        var isWelcomed = false
    }

    static let adminToken = "bench-admin-token"
    static let appID = "benchApp", appKey = "benchKey", appSecret = "benchSecret", masterSecret = "benchMaster"

    let devicePort: UInt16
    let sendersPort: UInt16
    let httpPort: UInt16
    let registrations = Atomic<Int>(0)
    let badProofs = Atomic<Int>(0)
    let acksBeyond = Atomic<Int>(0)
    let acknowledged = Atomic<Int>(0)
    let pushes = Atomic<Int>(0)
    let broadcasts = Atomic<Int>(0)
    let goodbyes = Atomic<Int>(0)
    let tokens = Atomic<Int>(0)
    /// The maximum number of simultaneous device connections before their Welcome.
    let mostGreeting = Atomic<Int>(0)
    let settlements = Atomic<Int>(0)

    private let behaviour: Behaviour
    private let listeners: [CInt]
    private let isStopping = Atomic<Bool>(false)
    private var handle = pthread_t()
    private var connections: [CInt: Connection] = [:]
    private var secrets: [DeviceID: [UInt8]] = [:]
    private var sessions: [DeviceID: CInt] = [:]
    private var queues: [DeviceID: [Deliver]] = [:]
    private var sequences: [DeviceID: UInt64] = [:]
    private var forgotten: Set<DeviceID> = []
    private var published = 0
    private var dueJobs: [Job] = []
    private var leaseCount: UInt64 = 0
    private var nextCID: UInt64 = 1

    init(_ behaviour: Behaviour = Behaviour()) {
        self.behaviour = behaviour
        let listening = [Self.listen(), Self.listen(), Self.listen()]
        listeners = listening.map(\.descriptor)
        (devicePort, sendersPort, httpPort) = (listening[0].port, listening[1].port, listening[2].port)
        let context = Unmanaged.passRetained(self)
        pthread_create(
            &handle, nil,
            { context in
                Unmanaged<FakeGateway>.fromOpaque(context!).takeRetainedValue().serve()
                return nil
            }, context.toOpaque())
    }

    /// Ends the thread and closes everything; idempotent.
    func stop() {
        guard !isStopping.exchange(true, ordering: .sequentiallyConsistent) else { return }
        pthread_join(handle, nil)
        for descriptor in listeners + Array(connections.keys) { close(descriptor) }
    }

    /// The command line arguments to reach it.
    var arguments: [String] {
        [
            "--app-id", Self.appID, "--app-key", Self.appKey, "--app-secret", Self.appSecret,
            "--master-secret", Self.masterSecret, "--device-address", "127.0.0.1:\(devicePort)",
            "--senders-address", "127.0.0.1:\(sendersPort)", "--http-address", "127.0.0.1:\(httpPort)",
            "--admin-address", "127.0.0.1:\(httpPort)", "--admin-token", Self.adminToken,
        ]
    }

    private static func listen() -> (descriptor: CInt, port: UInt16) {
        let descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                _ = bind(descriptor, $0, size)
                _ = Glibc.listen(descriptor, 512)
                _ = getsockname(descriptor, $0, &size)
            }
        }
        return (descriptor, UInt16(bigEndian: address.sin_port))
    }

    private func serve() {
        var chunk = [UInt8](repeating: 0, count: 64 << 10)
        while !isStopping.load(ordering: .sequentiallyConsistent) {
            var watched = (listeners + connections.keys).map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
            guard poll(&watched, nfds_t(watched.count), 20) > 0 else { continue }
            for (index, entry) in watched.enumerated() where entry.revents != 0 {
                if index < 3 {
                    let descriptor = accept(entry.fd, nil, nil)
                    let kind: Connection.Kind = index == 0 ? .device : index == 1 ? .sender : .http
                    if descriptor >= 0 { connections[descriptor] = Connection(kind: kind) }
                    let greeting = connections.values.count { $0.kind == .device && !$0.isWelcomed }
                    _ = mostGreeting.max(greeting, ordering: .relaxed)
                    continue
                }
                let count = recv(entry.fd, &chunk, chunk.count, 0)
                guard count > 0 else {
                    drop(entry.fd)
                    continue
                }
                connections[entry.fd]?.input.append(contentsOf: chunk[..<count])
                if connections[entry.fd]?.kind == .http { readRequests(entry.fd) } else { readFrames(entry.fd) }
            }
        }
    }

    private func drop(_ descriptor: CInt) {
        if let cid = connections[descriptor]?.cid, sessions[cid] == descriptor { sessions[cid] = nil }
        connections[descriptor] = nil
        close(descriptor)
    }

    private func send(_ descriptor: CInt, _ bytes: [UInt8]) {
        var offset = 0
        while offset < bytes.count {
            let count = bytes.withUnsafeBytes {
                Glibc.send(descriptor, $0.baseAddress! + offset, bytes.count - offset, CInt(MSG_NOSIGNAL))
            }
            guard count > 0 else { return }
            offset += count
        }
    }

    private func send(_ descriptor: CInt, _ message: some WireMessage) {
        var bytes: [UInt8] = []
        message.appendFrame(to: &bytes)
        send(descriptor, bytes)
    }

    private func readFrames(_ descriptor: CInt) {
        while let connection = connections[descriptor], connection.input.count >= 4 {
            let input = connection.input
            let end = 4 + (Int(input[1]) << 16 | Int(input[2]) << 8 | Int(input[3]))
            guard input.count >= end else { return }
            connections[descriptor]?.input.removeFirst(end)
            let body = Array(input[4..<end])
            switch FrameType(rawValue: input[0]) {
            case .hello: hello(descriptor, body)
            case .publish: publish(descriptor, body)
            case .ack: acknowledge(connection.cid, body)
            case .close:
                _ = goodbyes.add(1, ordering: .relaxed)
                drop(descriptor)
            case .ping: send(descriptor, Pong(nonce: 0))
            default: break
            }
        }
    }

    private func hello(_ descriptor: CInt, _ body: [UInt8]) {
        guard let hello = try? Hello(decoding: body.span.bytes),
            let transcript = try? HelloTranscript(body: body.span.bytes)
        else { return drop(descriptor) }
        let key: [UInt8]? =
            switch (hello.role, hello.registration) {
            case (.sender, _): Array(Self.masterSecret.utf8)
            case (.device, true): Array(Self.appSecret.utf8)
            case (.device, false): secrets[hello.cid]
            }
        var close = Close()
        guard let key, !(behaviour.forgets && !hello.cid.isNone && forgotten.insert(hello.cid).inserted) else {
            close.code = CloseCode.unknownDevice.rawValue
            send(descriptor, close)
            return drop(descriptor)
        }
        guard hello.appID == Self.appID, HMACSHA256.isCode(transcript.proof, of: transcript.bytes, key: key) else {
            _ = badProofs.add(1, ordering: .relaxed)
            close.code = CloseCode.badProof.rawValue
            send(descriptor, close)
            return drop(descriptor)
        }
        var welcome = Welcome()
        welcome.heartbeatSeconds = 300
        var cid = hello.cid
        if hello.registration {
            cid = DeviceID(high: 0xBE, low: nextCID)
            nextCID += 1
            secrets[cid] = SecureRandom.bytes(32)
            (welcome.cid, welcome.deviceSecret) = (cid, secrets[cid]!)
            _ = registrations.add(1, ordering: .relaxed)
        }
        connections[descriptor]?.isWelcomed = true
        send(descriptor, welcome)
        guard hello.role == .device else { return }
        if hello.tokens.contains(where: { !$0.token.isEmpty }) { _ = tokens.add(1, ordering: .relaxed) }
        connections[descriptor]?.cid = cid
        sessions[cid] = descriptor
        for deliver in queues[cid] ?? [] { send(descriptor, deliver) }
    }

    private func publish(_ descriptor: CInt, _ body: [UInt8]) {
        guard let publish = try? Publish(decoding: body.span.bytes) else { return drop(descriptor) }
        published += 1
        let hits = { (every: Int) in every > 0 && self.published % every == 0 }
        var result = PublishResult()
        result.request = publish.request
        guard secrets[publish.cid] != nil, !hits(behaviour.refusesEvery) else {
            (result.code, result.reason) = (20001, "not today")
            return send(descriptor, result)
        }
        guard !hits(behaviour.busyEvery) else {
            (result.code, result.reason) = (6, "busy")
            return send(descriptor, result)
        }
        send(descriptor, result)
        guard !hits(behaviour.losesEvery) else { return }
        guard publish.strategy != 2 else {
            let job = Job(id: MessageID(high: 1, low: UInt64(published)).description, title: publish.alert?.title ?? "")
            dueJobs.append(job)
            if hits(behaviour.leasesTwiceEvery) { dueJobs.append(job) }
            return
        }
        deliver(publish.payload, to: publish.cid, twice: hits(behaviour.repeatsEvery))
    }

    private func deliver(_ payload: [UInt8], to cid: DeviceID, twice: Bool) {
        sequences[cid, default: 0] += 1
        var deliver = Deliver()
        deliver.sequence = sequences[cid]!
        deliver.messageID = MessageID(high: 1, low: UInt64(published))
        deliver.payload = payload
        deliver.attempt = 1
        queues[cid, default: []].append(deliver)
        guard let session = sessions[cid] else { return }
        send(session, deliver)
        if twice { send(session, deliver) }
    }

    private func acknowledge(_ cid: DeviceID, _ body: [UInt8]) {
        guard let ack = try? Ack(decoding: body.span.bytes), let position = ack.positions.first else { return }
        if position.sequence > sequences[cid, default: 0] { _ = acksBeyond.add(1, ordering: .relaxed) }
        let before = queues[cid]?.count ?? 0
        queues[cid]?.removeAll { $0.sequence <= position.sequence }
        _ = acknowledged.add(before - (queues[cid]?.count ?? 0), ordering: .relaxed)
    }

    private func readRequests(_ descriptor: CInt) {
        while let input = connections[descriptor]?.input {
            let text = String(decoding: input, as: UTF8.self)
            guard let headEnd = text.range(of: "\r\n\r\n") else { return }
            let head = text[..<headEnd.lowerBound]
            guard let lengthLine = head.split(separator: "\r\n").first(where: { $0.hasPrefix("Content-Length: ") }),
                let length = Int(lengthLine.dropFirst(16))
            else { return drop(descriptor) }
            let body = text[headEnd.upperBound...].utf8.prefix(length)
            guard body.count == length else { return }
            connections[descriptor]?.input.removeFirst(head.utf8.count + 4 + length)
            respond(descriptor, String(head), String(body) ?? "")
        }
    }

    private func respond(_ descriptor: CInt, _ head: String, _ body: String) {
        var answer = #"{"code":0,"msg":"success","data":{}}"#
        var status = "200 OK"
        if head.hasPrefix("POST /v2/\(Self.appID)/auth ") {
            let stamp = field("timestamp", body)
            let sign = SHA256.digest(Array((Self.appKey + stamp + Self.masterSecret).utf8)).hex
            answer = #"{"code":0,"msg":"success","data":{"token":"t0ken","expire_time":"1"}}"#
            if field("sign", body) != sign {
                (status, answer) = ("400 Bad", #"{"code":20001,"msg":"sign is invalid"}"#)
            }
        } else if head.hasPrefix("POST /v2/\(Self.appID)/push/single/"), head.contains("\r\ntoken: t0ken") {
            let list = head.contains("/batch/cid ") ? object(body)["msg_list"] as? [[String: Any]] : [object(body)]
            var refused: [Int] = []
            for (index, message) in (list ?? []).enumerated() where !push(message, index) { refused.append(index) }
            if refused.count == list?.count {
                (status, answer) = ("400 Bad", #"{"code":20001,"msg":"target user is invalid"}"#)
            } else if !refused.isEmpty {
                let items = refused.map { #"{"index":\#($0),"code":20001,"msg":"not today"}"# }
                answer =
                    #"{"code":0,"msg":"success","data":{},"longwire":{"refused":[\#(items.joined(separator: ","))]}}"#
            }
        } else if head.hasPrefix("POST /v2/\(Self.appID)/push/all "), head.contains("\r\ntoken: t0ken") {
            if !broadcast(object(body)) { (status, answer) = ("403 No", #"{"code":30014,"msg":"too many"}"#) }
        } else if head.hasPrefix("POST /v1/handoff/"), head.contains("Authorization: Bearer \(Self.adminToken)") {
            answer = head.hasPrefix("POST /v1/handoff/lease ") ? lease(object(body)) : settle(body)
        } else {
            (status, answer) = ("401 No", #"{"code":10001,"msg":"token"}"#)
        }
        let headers = "Content-Type: application/json;charset=utf-8\r\nContent-Length: \(answer.utf8.count)"
        send(descriptor, Array("HTTP/1.1 \(status)\r\n\(headers)\r\n\r\n\(answer)".utf8))
    }

    private func field(_ name: String, _ body: String) -> String {
        guard let start = body.range(of: "\"\(name)\":\"") else { return "" }
        return String(body[start.upperBound...].prefix { $0 != "\"" })
    }

    private func object(_ body: String) -> [String: Any] {
        (try? JSONSerialization.jsonObject(with: Data(body.utf8))) as? [String: Any] ?? [:]
    }

    /// Pushes one message; returns false if it is refused.
    private func push(_ message: [String: Any], _ index: Int) -> Bool {
        _ = pushes.add(1, ordering: .relaxed)
        let audience = (message["audience"] as? [String: Any])?["cid"] as? [String]
        let text = (message["push_message"] as? [String: Any])?["transmission"] as? String
        guard let cid = audience?.first.flatMap({ DeviceID($0) }), secrets[cid] != nil, let text,
            message["request_id"] is String
        else { return false }
        if behaviour.refusesOfBatch > 0, index % behaviour.refusesOfBatch == behaviour.refusesOfBatch - 1 {
            return false
        }
        published += 1
        deliver(Array(text.utf8), to: cid, twice: false)
        return true
    }

    /// Sends one message to every connected device in stream 1; returns false if it is refused.
    private func broadcast(_ request: [String: Any]) -> Bool {
        let count = broadcasts.add(1, ordering: .relaxed).newValue
        let text = (request["push_message"] as? [String: Any])?["transmission"] as? String
        let isRefused = count == behaviour.refusesBroadcast
        guard request["audience"] as? String == "all", let text, !isRefused else { return false }
        var deliver = Deliver()
        (deliver.stream, deliver.sequence) = (1, UInt64(count))
        deliver.messageID = MessageID(high: 2, low: UInt64(count))
        deliver.payload = Array(text.utf8)
        deliver.attempt = 1
        for session in sessions.values {
            published += 1
            if behaviour.losesEvery > 0, published % behaviour.losesEvery == 0 { continue }
            send(session, deliver)
            if behaviour.repeatsEvery > 0, published % behaviour.repeatsEvery == 0 { send(session, deliver) }
        }
        return true
    }

    private func lease(_ request: [String: Any]) -> String {
        let most = request["max"] as? Int ?? 100
        leaseCount += 1
        let jobs = dueJobs.prefix(most).map { job in
            #"{"jobId":"\#(job.id)","msgId":"\#(job.id)","body":{"aps":{"alert":{"title":"\#(job.title)"}}},"#
                + #""attempt":1,"leaseId":"\#(MessageID(high: 7, low: leaseCount).description)","leasedUntil":1}"#
        }
        dueJobs.removeFirst(min(most, dueJobs.count))
        return #"{"jobs":[\#(jobs.joined(separator: ","))]}"#
    }

    private func settle(_ body: String) -> String {
        let results = (try? JSONSerialization.jsonObject(with: Data(body.utf8))) as? [[String: Any]] ?? []
        let verdicts = results.map { result in
            let isGood = result["outcome"] as? String == "accepted" && (result["leaseId"] as? String)?.count == 32
            if isGood { _ = settlements.add(1, ordering: .relaxed) }
            return #"{"jobId":"\#(result["jobId"] as? String ?? "")","verdict":"\#(isGood ? "recorded" : "stale")"}"#
        }
        return #"{"results":[\#(verdicts.joined(separator: ","))]}"#
    }
}
