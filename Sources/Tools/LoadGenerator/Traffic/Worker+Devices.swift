internal import Glibc
internal import Platform
internal import Wire

extension Worker {
    /// Starts to connect all devices in the next turns, `handshakes` at a time.
    mutating func beginConnecting() {
        nextDevice = 0
        tally.connectStartedAt = Clocks.now()
        now = tally.connectStartedAt
    }

    var isConnecting: Bool { nextDevice < deviceCount || !again.isEmpty || opening > 0 }

    mutating func startHandshakes() {
        while opening < plan.handshakes {
            if nextDevice < deviceCount {
                nextDevice += 1
                openDevice(nextDevice - 1)
            } else if let index = again.popLast() {
                openDevice(index)
            } else {
                return
            }
        }
    }

    private mutating func openDevice(_ index: Int) {
        let place = plan.firstDevice + index
        let (descriptor, error) = Socket.connect(
            to: plan.credentials.device, from: plan.credentials.device.source(of: place))
        devices[index].startedAt = Clocks.now()
        devices[index].attempts += 1
        opening += 1
        guard descriptor >= 0 else {
            return giveUp(index, "connecting a device: \(errorText(error))", retries: false)
        }
        devices[index].descriptor = descriptor
        devices[index].phase = .connecting
        if (try? poller.add(descriptor, token: Kind.device.rawValue << 32 | UInt64(index))) == nil {
            giveUp(index, "epoll: \(errorText(errno))", retries: false)
        }
    }

    @inline(__always)
    mutating func deviceReady(_ index: Int, _ event: Poller.Ready) {
        let device = devices + index
        guard device.pointee.descriptor >= 0 else { return }
        if device.pointee.phase == .connecting {
            let error = Socket.pendingError(device.pointee.descriptor)
            guard error == 0 else {
                return giveUp(index, "connecting a device: \(errorText(error))", retries: true)
            }
            guard event.isWritable else { return }
            device.pointee.phase = .securing
            if !plan.credentials.device.isSecure { greet(index) }
        }
        if device.pointee.phase == .securing {
            switch secure(&device.pointee.tls, device.pointee.descriptor, plan.credentials.device, "a device") {
            case .yes: greet(index)
            case .notYet: return
            case .no(let text, let retries): return giveUp(index, text, retries: retries)
            }
        }
        // With TLS, a call in one direction may use up the edge of the other, so both directions are tried.
        let isSecure = device.pointee.tls != nil
        if event.isWritable || isSecure, device.pointee.output.count > 0 { flush(index) }
        if event.isReadable || event.isHungUp || isSecure { receive(index) }
    }

    private mutating func greet(_ index: Int) {
        guard plan.options.speaksWebSocket else {
            devices[index].phase = .greeting
            return sendHello(index)
        }
        devices[index].phase = .upgrading
        let request = WebSocketFrames.request(host: plan.credentials.device.text)
        request.withUnsafeBytes { put(index, $0.baseAddress!, $0.count) }
    }

    private mutating func sendHello(_ index: Int) {
        let wall = Int64(Clocks.wallMilliseconds()) + clockOffset
        let timestamp = max(UInt64(max(0, wall)), devices[index].identity.lastTimestamp + 1)
        devices[index].identity.lastTimestamp = timestamp
        let frame = Greeting.device(
            devices[index].identity, plan.credentials, timestamp: timestamp,
            heartbeatSeconds: plan.options.heartbeatSeconds, hasToken: plan.job == .handoff)
        frame.withUnsafeBytes { write(index, $0.baseAddress!, $0.count) }
    }

    /// Sends a frame, as one message if the device uses a WebSocket.
    @inline(__always)
    mutating func write(_ index: Int, _ start: UnsafeRawPointer, _ count: Int) {
        guard plan.options.speaksWebSocket else { return put(index, start, count) }
        withUnsafeTemporaryAllocation(byteCount: WebSocketFrames.headByteCount + count, alignment: 8) { room in
            // The mask need not be random here: the gateway's cost is the same for every key.
            let mask = UInt32(truncatingIfNeeded: now) | 0x0101_0101
            let bytes = UnsafeRawBufferPointer(start: start, count: count)
            put(index, room.baseAddress!, WebSocketFrames.write(bytes, mask: mask, to: room.baseAddress!))
        }
    }

    /// Sends bytes and keeps those that the socket does not accept.
    @inline(__always)
    private mutating func put(_ index: Int, _ start: UnsafeRawPointer, _ count: Int) {
        let device = devices + index
        guard device.pointee.descriptor >= 0 else { return }
        guard device.pointee.output.count == 0 else { return device.pointee.output.append(start, count) }
        switch Socket.send(device.pointee.descriptor, device.pointee.tls, start, count) {
        case .bytes(let sent): if sent < count { device.pointee.output.append(start + sent, count - sent) }
        case .wouldBlock: device.pointee.output.append(start, count)
        case .ended, .failed: break  // the read side reports it, with the gateway's Close if it sent one
        }
    }

    private mutating func flush(_ index: Int) {
        let device = devices + index
        guard let start = device.pointee.output.start else { return }
        if case .bytes(let sent) = Socket.send(
            device.pointee.descriptor, device.pointee.tls, start, device.pointee.output.count)
        {
            device.pointee.output.drop(first: sent)
        }
    }

    private mutating func receive(_ index: Int) {
        let device = devices + index
        while device.pointee.descriptor >= 0 {
            let kept = device.pointee.input.take(into: scratch)
            let room = Limits.receiveByteCount - kept
            let outcome = Socket.receive(device.pointee.descriptor, device.pointee.tls, into: scratch + kept, room)
            switch outcome {
            case .wouldBlock: return device.pointee.input.store(scratch, kept)
            case .ended: return lose(index, "the gateway closed a device's connection without a Close")
            case .failed(let reason):
                if device.pointee.phase != .ready, noteRefusal(device.pointee.tls) {
                    return giveUp(
                        index, "TLS handshake of a device: \(reason.dropFirst("TLS: ".count))", retries: false)
                }
                return lose(index, "a device's connection failed: \(reason)")
            case .bytes(let count):
                // The clock is read for each socket, because hundreds of others may precede it in a turn.
                now = Clocks.now()
                let known = device.pointee.lastSequence
                let used =
                    plan.options.speaksWebSocket ? readMessages(index, kept + count) : readFrames(index, kept + count)
                guard device.pointee.descriptor >= 0 else { return }
                if device.pointee.lastSequence > known { acknowledge(index) }
                device.pointee.input.store(scratch + used, kept + count - used)
                // Edge-triggered: a short read has emptied the socket, and later bytes raise a new edge.
                if count < room, device.pointee.tls == nil { return }
            }
        }
    }

    /// Handles the complete WebSocket messages in `scratch`.
    ///
    /// Frames may continue across messages.
    ///
    /// - Returns: the number of bytes consumed.
    private mutating func readMessages(_ index: Int, _ byteCount: Int) -> Int {
        let device = devices + index
        let bytes = UnsafeRawBufferPointer(start: scratch, count: byteCount)
        if device.pointee.phase == .upgrading {
            guard let count = WebSocketFrames.answerByteCount(bytes) else { return 0 }
            guard count > 0 else {
                giveUp(index, "the gateway does not take WebSockets on this listener", retries: false)
                return byteCount
            }
            device.pointee.phase = .greeting
            sendHello(index)
            // The gateway sends nothing before it has the Hello.
            return byteCount
        }
        var (offset, filled) = (0, 0)
        // The payload is appended to the incomplete frame in `messages`.
        filled = device.pointee.message.take(into: messages)
        while let frame = WebSocketFrames.frame(bytes, from: offset) {
            if frame.opcode == 2 || frame.opcode == 0 {
                guard filled + frame.payload.count <= Limits.receiveByteCount else { break }
                (messages + filled).copyMemory(from: scratch + frame.payload.lowerBound, byteCount: frame.payload.count)
                filled += frame.payload.count
            } else if frame.opcode == 9 {
                answerWebSocketPing(index, UnsafeRawBufferPointer(rebasing: bytes[frame.payload]))
            }
            offset = frame.payload.upperBound
        }
        let used = readFrames(index, filled, in: messages)
        guard device.pointee.descriptor >= 0 else { return byteCount }
        device.pointee.message.store(messages + used, filled - used)
        return offset
    }

    private mutating func answerWebSocketPing(_ index: Int, _ payload: UnsafeRawBufferPointer) {
        guard payload.count <= 125 else { return }
        // A mask of zeros leaves the payload unchanged.
        let pong: [UInt8] = [0x8A, 0x80 | UInt8(payload.count), 0, 0, 0, 0] + payload
        pong.withUnsafeBytes { bytes in
            if let start = bytes.baseAddress { put(index, start, bytes.count) }
        }
    }

    private mutating func readFrames(_ index: Int, _ byteCount: Int) -> Int {
        readFrames(index, byteCount, in: scratch)
    }

    /// Handles the complete frames at the start of received bytes.
    ///
    /// - Returns: the number of bytes consumed.
    @inline(__always)
    private mutating func readFrames(_ index: Int, _ byteCount: Int, in scratch: UnsafeMutableRawPointer) -> Int {
        var offset = 0
        do {
            while let (header, body) = try Frames.next(
                in: UnsafeRawBufferPointer(start: scratch, count: byteCount), from: &offset)
            {
                switch header.type {
                case .deliver: delivered(index, body)
                case .ping: answerPing(index, body)
                case .welcome: welcome(index, body)
                case .close:
                    closed(index, body)
                    return byteCount
                default: break
                }
                guard devices[index].descriptor >= 0 else { return byteCount }
            }
        } catch {
            tally.malformed += 1
            lose(index, "the gateway sent what is no frame: \(error)")
            return byteCount
        }
        return offset
    }

    @inline(__always)
    private mutating func delivered(_ index: Int, _ body: UnsafeRawBufferPointer) {
        guard let deliver = try? DeliverView(decoding: body.bytes) else {
            tally.malformed += 1
            return
        }
        guard deliver.stream == stream else { return }
        guard stream == 0 else { return broadcastDelivered(index, deliver, deliver.payload.bytes(of: body)) }
        if deliver.sequence <= devices[index].lastSequence {
            tally.disordered += 1
        } else {
            devices[index].lastSequence = deliver.sequence
        }
        guard let mark = Payload.mark(of: deliver.payload.bytes(of: body)), mark >> 48 == plan.runTag,
            mark >> 40 & 0xFF == UInt64(plan.index & 0xFF)
        else {
            tally.foreign += 1
            return
        }
        switch ledger.markDelivered(mark & 0xFF_FFFF_FFFF) {
        case .first(let event):
            tally.delivered += 1
            tally.drainEndedAt = now
            if event.isMeasured, waitsForDelivery { tally.deliverLatency.record(now - event.dueAt) }
            if isMeasuring { tally.measuredDelivered += 1 }
            if waitsForDelivery, event.isFinished { outstanding -= 1 }
        case .repeated: tally.repeats += 1
        case .unknown: tally.foreign += 1
        }
    }

    @inline(__always)
    private var stream: UInt32 { plan.job == .broadcast ? Self.broadcastStream : 0 }

    /// Sends one cumulative Ack for all messages of one read.
    @inline(__always)
    private mutating func acknowledge(_ index: Int) {
        var ack = Ack()
        ack.positions = [StreamPosition(stream: stream, sequence: devices[index].lastSequence)]
        frame.removeAll(keepingCapacity: true)
        ack.appendFrame(to: &frame)
        frame.withUnsafeBytes { write(index, $0.baseAddress!, $0.count) }
        tally.acks += 1
    }

    private mutating func answerPing(_ index: Int, _ body: UnsafeRawBufferPointer) {
        guard let ping = try? Ping(decoding: body.bytes) else { return }
        heartbeat(index, .pong(nonce: ping.nonce))
    }

    private mutating func heartbeat(_ index: Int, _ frame: HeartbeatFrame) {
        withUnsafeTemporaryAllocation(byteCount: HeartbeatFrame.largestByteCount, alignment: 8) { buffer in
            let count = frame.encode(into: buffer)
            write(index, buffer.baseAddress!, count)
        }
    }

    private mutating func welcome(_ index: Int, _ body: UnsafeRawBufferPointer) {
        guard devices[index].phase == .greeting, let welcome = try? Welcome(decoding: body.bytes) else {
            tally.malformed += 1
            return lose(index, "the gateway sent a Welcome that does not belong there")
        }
        if devices[index].identity.cid.isNone {
            guard !welcome.cid.isNone, !welcome.deviceSecret.isEmpty else {
                return giveUp(index, "a registration's Welcome has no cid or secret", retries: false)
            }
            devices[index].identity.cid = welcome.cid
            devices[index].identity.secret = welcome.deviceSecret
        }
        devices[index].phase = .ready
        opening -= 1
        tally.connected += 1
        tally.connectEndedAt = now
        tally.connectLatency.record(now - devices[index].startedAt)
        let heartbeat = Int64(welcome.heartbeatSeconds) * 1_000_000_000
        if heartbeat > 0, heartbeatNanoseconds == 0 || heartbeat < heartbeatNanoseconds {
            heartbeatNanoseconds = heartbeat
            nextHeartbeatAt = now + heartbeat / Int64(deviceCount)
        }
        // These jobs only need the registration or the token. The devices disconnect again.
        if plan.job == .register || plan.job == .handoff { leave(index) }
    }

    /// Handles a Close; the connection is retried after codes 300, 301, 1xx and 2xx.
    private mutating func closed(_ index: Int, _ body: UnsafeRawBufferPointer) {
        guard let close = try? Close(decoding: body.bytes) else {
            tally.malformed += 1
            return lose(index, "the gateway sent a Close that is malformed")
        }
        let text = "Close \(close.code) \(close.reason)"
        guard devices[index].phase == .greeting else { return lose(index, text) }
        switch CloseCode(rawValue: close.code) {
        case .clockSkew where close.serverTime > 0:
            clockOffset = Int64(clamping: close.serverTime) - Int64(Clocks.wallMilliseconds())
            giveUp(index, text, retries: true)
        case .unknownDevice:
            // The gateway no longer knows the device, which registers anew.
            devices[index].identity = DeviceIdentity(cid: .none, secret: [])
            giveUp(index, text, retries: true)
        default: giveUp(index, text, retries: close.code / 100 == 1 || close.code / 100 == 2)
        }
    }

    private mutating func lose(_ index: Int, _ text: String) {
        guard devices[index].phase == .ready else { return giveUp(index, text, retries: true) }
        tally.lostConnections += 1
        fail(text)
        shut(index, .absent)
    }

    /// Ends a failed attempt to connect; it is retried if another attempt may succeed.
    private mutating func giveUp(_ index: Int, _ text: String, retries: Bool) {
        opening -= 1
        fail(text)
        if retries, devices[index].attempts < Limits.attemptCount {
            shut(index, .absent)
            again.append(index)
        } else {
            shut(index, .failed)
            tally.failedDevices += 1
        }
    }

    /// Disconnects a device after a Close, so that the gateway knows immediately that the device is unreachable.
    mutating func leave(_ index: Int) {
        guard devices[index].descriptor >= 0 else { return }
        var close = Close()
        close.code = CloseCode.goodbye.rawValue
        var frame: [UInt8] = []
        close.appendFrame(to: &frame)
        frame.withUnsafeBytes { write(index, $0.baseAddress!, $0.count) }
        shut(index, .absent)
    }

    private mutating func shut(_ index: Int, _ phase: DeviceConnection.Phase) {
        Socket.shut(&devices[index].descriptor, &devices[index].tls)
        devices[index].phase = phase
        devices[index].input.clear()
        devices[index].output.clear()
        devices[index].message.clear()
    }

    /// Sends each device's Ping once per heartbeat, spread evenly, at most 64 per turn.
    @inline(__always)
    mutating func keepAlive() {
        guard heartbeatNanoseconds > 0, now >= nextHeartbeatAt else { return }
        let step = max(1, heartbeatNanoseconds / Int64(max(1, deviceCount)))
        var left = 64
        while now >= nextHeartbeatAt, left > 0 {
            if devices[heartbeatCursor].phase == .ready { heartbeat(heartbeatCursor, .ping(nonce: 0)) }
            heartbeatCursor = (heartbeatCursor + 1) % deviceCount
            nextHeartbeatAt += step
            left -= 1
        }
    }
}
