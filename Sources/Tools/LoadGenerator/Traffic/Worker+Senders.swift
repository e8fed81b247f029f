internal import Glibc
internal import Platform
internal import Wire

// Senders: pipelined Publish frames out, PublishResult frames in.
extension Worker {
    mutating func openSenders() {
        for index in 0..<senderCount {
            let (descriptor, error) = Socket.connect(to: plan.credentials.senders, from: 0)
            guard descriptor >= 0 else { return endSender(index, "connecting a sender: \(errorText(error))") }
            senders[index].descriptor = descriptor
            if (try? poller.add(descriptor, token: Kind.sender.rawValue << 32 | UInt64(index))) == nil {
                return endSender(index, "epoll: \(errorText(errno))")
            }
        }
    }

    @inline(__always)
    mutating func senderReady(_ index: Int, _ event: Poller.Ready) {
        let sender = senders + index
        guard sender.pointee.descriptor >= 0 else { return }
        if sender.pointee.phase == .connecting {
            let error = Socket.pendingError(sender.pointee.descriptor)
            guard error == 0 else { return endSender(index, "connecting a sender: \(errorText(error))") }
            guard event.isWritable else { return }
            sender.pointee.phase = .securing
            if !plan.credentials.senders.isSecure { greetAsSender(index) }
        }
        if sender.pointee.phase == .securing {
            switch secure(&sender.pointee.tls, sender.pointee.descriptor, plan.credentials.senders, "a sender") {
            case .yes: greetAsSender(index)
            case .notYet: return
            case .no(let text, _): return endSender(index, text)
            }
        }
        let isSecure = sender.pointee.tls != nil
        if event.isWritable || isSecure { flushSender(index) }
        if event.isReadable || event.isHungUp || isSecure { receiveResults(index) }
    }

    private mutating func greetAsSender(_ index: Int) {
        let sender = senders + index
        sender.pointee.phase = .greeting
        let wall = Int64(Clocks.wallMilliseconds()) + clockOffset
        let frame = Greeting.sender(plan.credentials, timestamp: UInt64(max(0, wall)))
        frame.withUnsafeBytes {
            (sender.pointee.buffer + sender.pointee.tail).copyMemory(from: $0.baseAddress!, byteCount: $0.count)
            sender.pointee.tail += $0.count
        }
        flushSender(index)
    }

    /// Sends pending bytes; unsent bytes stay, and are moved to the front when half of the buffer is used.
    @inline(__always)
    mutating func flushSender(_ index: Int) {
        let sender = senders + index
        let waiting = sender.pointee.tail - sender.pointee.head
        guard waiting > 0, sender.pointee.descriptor >= 0 else { return }
        if case .bytes(let sent) = Socket.send(
            sender.pointee.descriptor, sender.pointee.tls, sender.pointee.buffer + sender.pointee.head, waiting)
        {
            sender.pointee.head += sent
        }
        let rest = sender.pointee.tail - sender.pointee.head
        if rest == 0 {
            (sender.pointee.head, sender.pointee.tail) = (0, 0)
        } else if sender.pointee.head > Limits.sendByteCount / 2 {
            sender.pointee.buffer.copyMemory(from: sender.pointee.buffer + sender.pointee.head, byteCount: rest)
            (sender.pointee.head, sender.pointee.tail) = (0, rest)
        }
    }

    /// Encodes one message for one device, if a sender has room.
    ///
    /// - Returns: false when all senders are full. Nothing was changed then.
    @inline(__always)
    mutating func publish(to device: Int, dueAt: Int64, isMeasured: Bool) -> Bool {
        for _ in 0..<senderCount {
            let index = nextSender
            nextSender = nextSender + 1 == senderCount ? 0 : nextSender + 1
            let sender = senders + index
            guard sender.pointee.phase == .ready, sender.pointee.hasRoom(outgoing.bytes.count) else { continue }
            let number = ledger.append(dueAt: dueAt, isMeasured: isMeasured)
            let mark = Payload.mark(runTag: plan.runTag, worker: plan.index, number: number)
            outgoing.fill(number: number, cid: devices[device].identity.cid, mark: mark)
            outgoing.bytes.withUnsafeBytes {
                (sender.pointee.buffer + sender.pointee.tail).copyMemory(from: $0.baseAddress!, byteCount: $0.count)
            }
            sender.pointee.tail += outgoing.bytes.count
            tally.published += 1
            outstanding += 1
            return true
        }
        return false
    }

    mutating func flushSenders() {
        for index in 0..<senderCount where senders[index].phase == .ready { flushSender(index) }
    }

    private mutating func receiveResults(_ index: Int) {
        let sender = senders + index
        while sender.pointee.descriptor >= 0 {
            let kept = sender.pointee.input.take(into: scratch)
            let room = Limits.receiveByteCount - kept
            switch Socket.receive(sender.pointee.descriptor, sender.pointee.tls, into: scratch + kept, room) {
            case .wouldBlock: return sender.pointee.input.store(scratch, kept)
            case .ended: return endSender(index, "the gateway closed a sender's connection without a Close")
            case .failed(let reason):
                _ = noteRefusal(sender.pointee.tls)
                return endSender(index, "a sender's connection failed: \(reason)")
            case .bytes(let count):
                now = Clocks.now()
                let used = readResults(index, kept + count)
                guard sender.pointee.descriptor >= 0 else { return }
                sender.pointee.input.store(scratch + used, kept + count - used)
                if count < room, sender.pointee.tls == nil { return }
            }
        }
    }

    private mutating func readResults(_ index: Int, _ byteCount: Int) -> Int {
        var offset = 0
        do {
            while let (header, body) = try Frames.next(
                in: UnsafeRawBufferPointer(start: scratch, count: byteCount), from: &offset)
            {
                switch header.type {
                case .publishResult: answered(body)
                case .welcome:
                    senders[index].phase = .ready
                    readySenders += 1
                case .ping:
                    if let ping = try? Ping(decoding: body.bytes) { answerSenderPing(index, ping) }
                case .close:
                    let close = (try? Close(decoding: body.bytes)) ?? Close()
                    endSender(index, "a sender's Close \(close.code) \(close.reason)")
                    return byteCount
                default: break
                }
            }
        } catch {
            endSender(index, "the gateway sent what is no frame: \(error)")
            return byteCount
        }
        return offset
    }

    private mutating func answerSenderPing(_ index: Int, _ ping: Ping) {
        guard senders[index].hasRoom(HeartbeatFrame.largestByteCount) else { return }
        let tail = senders[index].buffer + senders[index].tail
        senders[index].tail += HeartbeatFrame.pong(nonce: ping.nonce).encode(
            into: UnsafeMutableRawBufferPointer(start: tail, count: HeartbeatFrame.largestByteCount))
        flushSender(index)
    }

    @inline(__always)
    private mutating func answered(_ body: UnsafeRawBufferPointer) {
        guard let result = try? PublishResult(decoding: body.bytes) else {
            tally.malformed += 1
            return
        }
        let number = result.request &- PublishTemplate.firstRequest
        let outcome = result.code == 0 ? ledger.markAccepted(number) : ledger.markRefused(number)
        guard case .first(let event) = outcome else {
            tally.malformed += 1
            return fail("a PublishResult for a request that was not waiting")
        }
        if result.code == 0 {
            tally.accepted += 1
            if isMeasuring { tally.measuredAccepted += 1 }
            if event.isMeasured { tally.resultLatency.record(now - event.dueAt) }
        } else if result.code == Limits.busyCode, sendsAgain {
            // The message is sent again after a pause, as a real sender should do.
            tally.busy += 1
            pausedUntil = now + Limits.busyPauseNanoseconds
        } else {
            tally.refused += 1
            fail("publish refused with \(result.code) \(result.reason)")
        }
        if event.isFinished || !waitsForDelivery { outstanding -= 1 }
    }

    private mutating func endSender(_ index: Int, _ text: String) {
        Socket.shut(&senders[index].descriptor, &senders[index].tls)
        if senders[index].phase == .ready { readySenders -= 1 }
        senders[index].phase = .failed
        senders[index].input.clear()
        fail(text)
        // A run with fewer senders would measure something else, so it ends.
        if tally.fatal == nil { tally.fatal = text }
    }
}
