internal import Glibc
internal import Platform
internal import Wire

// The push API: keep-alive connections, each with up to `pipeline` outstanding requests.
extension Worker {
    mutating func openHTTP() {
        for index in 0..<httpCount { openHTTP(index, after: nil) }
    }

    /// `failure` is the error of the last attempt.
    private mutating func openHTTP(_ index: Int, after failure: String?) {
        https[index].attempts += 1
        guard https[index].attempts <= Limits.attemptCount else {
            if tally.fatal == nil {
                tally.fatal = "an HTTP connection failed \(Limits.attemptCount) times: \(failure ?? "no reason")"
            }
            return
        }
        let (descriptor, error) = Socket.connect(
            to: plan.credentials.http, from: plan.credentials.http.source(of: plan.firstDevice + index))
        guard descriptor >= 0 else { return restart(index, "connecting over HTTP: \(errorText(error))") }
        https[index].descriptor = descriptor
        https[index].phase = .connecting
        if (try? poller.add(descriptor, token: Kind.http.rawValue << 32 | UInt64(index))) == nil {
            restart(index, "epoll: \(errorText(errno))")
        }
    }

    var readyHTTP: Int { (0..<httpCount).count { https[$0].phase == .ready } }

    @inline(__always)
    mutating func httpReady(_ index: Int, _ event: Poller.Ready) {
        let connection = https + index
        guard connection.pointee.descriptor >= 0 else { return }
        if connection.pointee.phase == .connecting {
            let error = Socket.pendingError(connection.pointee.descriptor)
            guard error == 0 else { return restart(index, "connecting over HTTP: \(errorText(error))") }
            guard event.isWritable else { return }
            connection.pointee.phase = .securing
            if !plan.credentials.http.isSecure { beginHTTP(index) }
        }
        if connection.pointee.phase == .securing {
            let endpoint = plan.credentials.http
            switch secure(&connection.pointee.tls, connection.pointee.descriptor, endpoint, "an HTTP connection") {
            case .yes: beginHTTP(index)
            case .notYet: return
            case .no(let text, _): return restart(index, text)
            }
        }
        let isSecure = connection.pointee.tls != nil
        if event.isWritable || isSecure, let start = connection.pointee.output.start,
            case .bytes(let sent) = Socket.send(
                connection.pointee.descriptor, connection.pointee.tls, start, connection.pointee.output.count)
        {
            connection.pointee.output.drop(first: sent)
        }
        if event.isReadable || event.isHungUp || isSecure { receiveAnswers(index) }
    }

    private mutating func beginHTTP(_ index: Int) {
        https[index].phase = .ready
        if publishesHTTP { sendRequests(index) }
    }

    /// Fills the connection up to its pipeline depth, with one send.
    mutating func sendRequests(_ index: Int) {
        let connection = https + index
        guard connection.pointee.phase == .ready, connection.pointee.output.count == 0 else { return }
        var used = 0
        let dueAt = Clocks.now()
        while connection.pointee.outstanding < plan.options.pipeline,
            used + request.bytes.count <= Limits.receiveByteCount
        {
            let first = ledger.count
            for place in 0..<request.messageCount {
                let number = ledger.append(dueAt: dueAt, isMeasured: isMeasuring)
                let cid = devices[randomIndex(below: deviceCount)].identity.cid
                request.fill(
                    place, cidHigh: cid.high, cidLow: cid.low, run: plan.runTag << 8 | UInt64(plan.index & 0xFF),
                    mark: Payload.mark(runTag: plan.runTag, worker: plan.index, number: number))
            }
            request.bytes.withUnsafeBytes { (scratch + used).copyMemory(from: $0.baseAddress!, byteCount: $0.count) }
            used += request.bytes.count
            connection.pointee.push(HTTPConnection.Request(sentAt: dueAt, firstNumber: first))
            tally.published += request.messageCount
        }
        guard used > 0 else { return }
        sendHTTP(index, UnsafeRawBufferPointer(start: scratch, count: used))
    }

    /// Sends bytes and keeps those that the socket does not accept.
    mutating func sendHTTP(_ index: Int, _ bytes: UnsafeRawBufferPointer) {
        let connection = https + index
        guard let start = bytes.baseAddress else { return }
        switch Socket.send(connection.pointee.descriptor, connection.pointee.tls, start, bytes.count) {
        case .bytes(let sent):
            if sent < bytes.count { connection.pointee.output.append(start + sent, bytes.count - sent) }
        case .wouldBlock: connection.pointee.output.append(start, bytes.count)
        case .ended, .failed: break  // reported by the read side
        }
    }

    private mutating func receiveAnswers(_ index: Int) {
        let connection = https + index
        while connection.pointee.descriptor >= 0 {
            let kept = connection.pointee.input.take(into: scratch)
            let room = Limits.receiveByteCount - kept
            let outcome = Socket.receive(
                connection.pointee.descriptor, connection.pointee.tls, into: scratch + kept, room)
            switch outcome {
            case .wouldBlock:
                connection.pointee.input.store(scratch, kept)
                return
            case .ended: return restart(index, "the gateway closed an HTTP connection")
            case .failed(let reason):
                _ = noteRefusal(connection.pointee.tls)
                return restart(index, "an HTTP connection failed: \(reason)")
            case .bytes(let count):
                now = Clocks.now()
                guard let used = readAnswers(index, kept + count) else { return }
                connection.pointee.input.store(scratch + used, kept + count - used)
                if publishesHTTP { sendRequests(index) }
                if count < room, connection.pointee.tls == nil { return }
            }
        }
    }

    /// - Returns: the number of bytes of complete answers, or `nil` if the connection was closed.
    private mutating func readAnswers(_ index: Int, _ byteCount: Int) -> Int? {
        var offset = 0
        while offset < byteCount {
            let rest = UnsafeRawBufferPointer(start: scratch + offset, count: byteCount - offset)
            switch HTTPResponseScanner.scan(rest) {
            case .incomplete: return offset
            case .malformed:
                restart(index, "an HTTP answer that cannot be read")
                return nil
            case .response(let response):
                let body = UnsafeRawBufferPointer(rebasing: rest[response.body])
                offset += response.body.upperBound
                guard let request = https[index].pop() else {
                    restart(index, "an HTTP answer without a request")
                    return nil
                }
                https[index].attempts = 0
                httpAnswered(response.status, body, request)
                guard response.keepsAlive else {
                    restart(index, "the gateway asked to close an HTTP connection")
                    return nil
                }
            }
        }
        return offset
    }

    private mutating func httpAnswered(_ status: Int, _ body: UnsafeRawBufferPointer, _ sent: HTTPConnection.Request) {
        if plan.job == .broadcast { return broadcastAnswered(status, body, sent) }
        let code = HTTPResponseScanner.code(body)
        if isMeasuring {
            tally.answerLatency.record(now - sent.sentAt)
            tally.measuredAnswers += 1
        }
        let last = sent.firstNumber + UInt64(request.messageCount)
        guard status == 200, code == 0 else {
            for number in sent.firstNumber..<last { _ = ledger.markRefused(number) }
            tally.refused += request.messageCount
            return fail(
                "HTTP \(status), code \(code.map(String.init) ?? "none"): "
                    + (HTTPResponseScanner.text("msg", body) ?? ""))
        }
        let refused = request.messageCount > 1 ? HTTPResponseScanner.refusedIndexes(body) : []
        for number in sent.firstNumber..<last {
            if !refused.isEmpty, refused.contains(Int(number - sent.firstNumber)) {
                _ = ledger.markRefused(number)
                tally.refused += 1
            } else if case .first = ledger.markAccepted(number) {
                tally.accepted += 1
                if isMeasuring { tally.measuredAccepted += 1 }
            }
        }
        if !refused.isEmpty { fail("messages refused within an accepted batch") }
    }

    private mutating func restart(_ index: Int, _ text: String) {
        let connection = https + index
        Socket.shut(&connection.pointee.descriptor, &connection.pointee.tls)
        connection.pointee.phase = .closed
        connection.pointee.input.clear()
        connection.pointee.output.clear()
        fail(text)
        while connection.pointee.pop() != nil { tally.failedRequests += 1 }
        openHTTP(index, after: text)
    }
}
