internal import Glibc
internal import Platform
internal import Wire

// The handoff API: keep-alive connections that lease jobs and settle them as accepted, in turn.
extension Worker {
    mutating func openAdmins() {
        for index in 0..<adminCount { openAdmin(index, after: nil) }
    }

    var readyAdmins: Int { (0..<adminCount).count { admins[$0].phase == .ready } }

    /// `failure` is the error of the last attempt.
    private mutating func openAdmin(_ index: Int, after failure: String?) {
        admins[index].attempts += 1
        guard admins[index].attempts <= Limits.attemptCount else {
            if tally.fatal == nil {
                tally.fatal = "an admin connection failed \(Limits.attemptCount) times: \(failure ?? "no reason")"
            }
            return
        }
        let (descriptor, error) = Socket.connect(to: plan.credentials.admin, from: 0)
        guard descriptor >= 0 else {
            return restartAdmin(index, "connecting to the admin listener: \(errorText(error))")
        }
        admins[index].descriptor = descriptor
        admins[index].phase = .connecting
        if (try? poller.add(descriptor, token: Kind.admin.rawValue << 32 | UInt64(index))) == nil {
            restartAdmin(index, "epoll: \(errorText(errno))")
        }
    }

    mutating func adminReady(_ index: Int, _ event: Poller.Ready) {
        guard admins[index].descriptor >= 0 else { return }
        if admins[index].phase == .connecting {
            let error = Socket.pendingError(admins[index].descriptor)
            guard error == 0 else {
                return restartAdmin(index, "connecting to the admin listener: \(errorText(error))")
            }
            guard event.isWritable else { return }
            admins[index].phase = .securing
            if !plan.credentials.admin.isSecure { beginAdmin(index) }
        }
        if admins[index].phase == .securing {
            let endpoint = plan.credentials.admin
            switch secure(&admins[index].tls, admins[index].descriptor, endpoint, "an admin connection") {
            case .yes: beginAdmin(index)
            case .notYet: return
            case .no(let text, _): return restartAdmin(index, text)
            }
        }
        let isSecure = admins[index].tls != nil
        if event.isWritable || isSecure { flushAdmin(index) }
        if event.isReadable || event.isHungUp || isSecure { receiveAdmin(index) }
    }

    private mutating func beginAdmin(_ index: Int) {
        admins[index].phase = .ready
        // A connection that was reopened during the measurement continues to lease.
        if isMeasuring, coordinator.gate(.second) != .closed { lease(index) }
    }

    mutating func lease(_ index: Int) {
        guard admins[index].phase == .ready else { return }
        let wait = admins[index].isPatient ? 1 : 0
        let body =
            "{\"channel\":\"apns\",\"max\":\(plan.options.leaseCount),\"leaseSeconds\":60,\"waitSeconds\":\(wait)}"
        admins[index].phase = .leasing
        admins[index].request.removeAll(keepingCapacity: true)
        appendHead(index, path: "lease", bodyByteCount: body.utf8.count)
        admins[index].request.append(contentsOf: body.utf8)
        sendAdmin(index)
    }

    private func appendHead(_ index: Int, path: String, bodyByteCount: Int) {
        let head =
            "POST /v1/handoff/\(path) HTTP/1.1\r\nHost: \(plan.credentials.admin.text)\r\n"
            + "Authorization: Bearer \(plan.credentials.adminToken)\r\nContent-Type: application/json\r\n"
            + "Content-Length: \(bodyByteCount)\r\n\r\n"
        admins[index].request.append(contentsOf: head.utf8)
    }

    private mutating func sendAdmin(_ index: Int) {
        admins[index].sent = 0
        admins[index].sentAt = Clocks.now()
        flushAdmin(index)
    }

    private mutating func flushAdmin(_ index: Int) {
        let connection = admins + index
        while connection.pointee.sent < connection.pointee.request.count {
            let outcome = connection.pointee.request.withUnsafeBytes {
                Socket.send(
                    connection.pointee.descriptor, connection.pointee.tls, $0.baseAddress! + connection.pointee.sent,
                    $0.count - connection.pointee.sent)
            }
            guard case .bytes(let count) = outcome else { return }
            connection.pointee.sent += count
        }
    }

    private mutating func receiveAdmin(_ index: Int) {
        let connection = admins + index
        while connection.pointee.descriptor >= 0 {
            let room = Limits.leaseByteCount - connection.pointee.filled
            let outcome = Socket.receive(
                connection.pointee.descriptor, connection.pointee.tls,
                into: connection.pointee.buffer + connection.pointee.filled, room)
            switch outcome {
            case .wouldBlock: return
            case .ended: return restartAdmin(index, "the gateway closed an admin connection")
            case .failed(let reason):
                _ = noteRefusal(connection.pointee.tls)
                return restartAdmin(index, "an admin connection failed: \(reason)")
            case .bytes(let count):
                now = Clocks.now()
                connection.pointee.filled += count
                guard readAdmin(index) else { return }
                if count < room, connection.pointee.tls == nil { return }
            }
        }
    }

    /// Handles the answer once it is complete; a connection has one request at a time.
    ///
    /// - Returns: false when the connection was closed.
    private mutating func readAdmin(_ index: Int) -> Bool {
        let bytes = UnsafeRawBufferPointer(start: admins[index].buffer, count: admins[index].filled)
        switch HTTPResponseScanner.scan(bytes, limit: Limits.leaseByteCount / 2) {
        case .incomplete: return true
        case .malformed:
            restartAdmin(index, "an answer of the admin listener that cannot be read")
            return false
        case .response(let response):
            let body = UnsafeRawBufferPointer(rebasing: bytes[response.body])
            let phase = admins[index].phase
            admins[index].filled = 0
            admins[index].attempts = 0
            admins[index].phase = .ready
            guard response.status == 200 else {
                // A retry would be refused again, so the run ends.
                tally.fatal =
                    "the handoff API answered HTTP \(response.status): "
                    + String(decoding: body.prefix(200), as: UTF8.self)
                return false
            }
            switch phase {
            case .leasing: leased(index, body)
            case .settling: settled(index, body)
            case .closed, .connecting, .securing, .ready:
                restartAdmin(index, "an answer of the admin listener without a request")
                return false
            }
            guard response.keepsAlive else {
                restartAdmin(index, "the gateway asked to close an admin connection")
                return false
            }
            return true
        }
    }

    private mutating func leased(_ index: Int, _ body: UnsafeRawBufferPointer) {
        let latency = now - admins[index].sentAt
        var scanner = LeaseScanner(body)
        var count = 0
        var foreign = 0
        var results = [UInt8]("[".utf8)
        while let job = scanner.next() {
            if count > 0 { results.append(UInt8(ascii: ",")) }
            count += 1
            results.append(contentsOf: #"{"jobId":""#.utf8)
            results.append(contentsOf: job.jobID)
            results.append(contentsOf: #"","leaseId":""#.utf8)
            results.append(contentsOf: job.leaseID)
            results.append(contentsOf: #"","outcome":"accepted"}"#.utf8)
            guard let mark = job.mark, mark >> 48 == plan.runTag else {
                foreign += 1
                continue
            }
            if tally.jobs.insert(publisher: Int(mark >> 40 & 0xFF), number: mark & 0xFF_FFFF_FFFF) {
                tally.leased += 1
            } else {
                tally.repeats += 1
            }
        }
        guard count > 0 else {
            // The next lease waits for jobs, so its duration does not count as a latency.
            admins[index].isPatient = true
            return lease(index)
        }
        if !admins[index].isPatient { tally.leaseLatency.record(latency) }
        admins[index].isPatient = false
        admins[index].foreign = foreign
        tally.foreign += foreign
        results.append(UInt8(ascii: "]"))
        admins[index].phase = .settling
        admins[index].request.removeAll(keepingCapacity: true)
        appendHead(index, path: "results", bodyByteCount: results.count)
        admins[index].request += results
        sendAdmin(index)
    }

    private mutating func settled(_ index: Int, _ body: UnsafeRawBufferPointer) {
        tally.settleLatency.record(now - admins[index].sentAt)
        var rest = body
        var recorded = 0
        while let place = ByteSearch.find("\"verdict\":\"", in: rest) {
            rest = UnsafeRawBufferPointer(rebasing: rest[place...])
            let verdict = rest.prefix { $0 != UInt8(ascii: "\"") }
            if verdict.elementsEqual("recorded".utf8) {
                recorded += 1
            } else {
                tally.stale += 1
                fail("a settlement was answered \(String(decoding: verdict, as: UTF8.self))")
            }
        }
        // Jobs of other senders are settled as well, so that they do not block the queue. They are not counted for this run.
        tally.settled += max(0, recorded - admins[index].foreign)
        tally.drainEndedAt = now
        lease(index)
    }

    private mutating func restartAdmin(_ index: Int, _ text: String) {
        closeAdmin(index)
        fail(text)
        tally.failedRequests += 1
        openAdmin(index, after: text)
    }

    mutating func closeAdmin(_ index: Int) {
        Socket.shut(&admins[index].descriptor, &admins[index].tls)
        admins[index].phase = .closed
        admins[index].filled = 0
    }
}

/// A parser for the jobs of a lease answer, in place.
///
/// It depends on the gateway's order: `jobId` first, `leaseId` near the end.
struct LeaseScanner {
    struct Job {
        var jobID: UnsafeRawBufferPointer
        var leaseID: UnsafeRawBufferPointer
        /// The message's number, or `nil` if a load generator did not create the job.
        var mark: UInt64?
    }

    private let bytes: UnsafeRawBufferPointer
    private var offset = 0

    init(_ bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

    /// Returns the next job, or `nil` after the last.
    @inline(__always)
    mutating func next() -> Job? {
        guard let job = ByteSearch.find("\"jobId\":\"", in: bytes, from: offset), job + 32 <= bytes.count else {
            return nil
        }
        offset = job + 32
        guard let lease = ByteSearch.find("\"leaseId\":\"", in: bytes, from: offset), lease + 32 <= bytes.count else {
            return nil
        }
        var mark: UInt64?
        // The search ends within this job, so that it cannot find the next job's number.
        let own = UnsafeRawBufferPointer(rebasing: bytes[..<lease])
        if let title = ByteSearch.find(Payload.alertPrefix, in: own, from: offset), title + 16 <= lease {
            mark = Hex.read(bytes.baseAddress! + title)
        }
        offset = lease + 32
        return Job(
            jobID: UnsafeRawBufferPointer(rebasing: bytes[job..<(job + 32)]),
            leaseID: UnsafeRawBufferPointer(rebasing: bytes[lease..<(lease + 32)]), mark: mark)
    }
}
