internal import Cryptography
internal import Delivery
internal import Wire

// The gateway's edge: the work of `DeviceHandshake`, `DeviceSessions` and `EventLoopHost` between the bytes of a connection and
// the shard.
extension World {
    private static let frameLimit = 64 << 10

    func received(_ link: Link, _ bytes: [UInt8]) {
        guard link.phase != .closed else { return }
        log.note(now, "gateway received", Int64(link.number), Int64(bytes.count))
        if link.phase == .open {
            let loop = loops[link.loop]
            link.identity?.isSuspect = false
            loop.shard.heard(link.session, now: gatewayNow)
            loop.perform()
        }
        link.received += bytes
        link.toGateway.consumedOffset += bytes.count
        cutFrames(link)
    }

    /// Parses complete frames as long as the phase allows.
    func cutFrames(_ link: Link) {
        var offset = 0
        let bytes = link.received
        bytes.withUnsafeBytes { buffer in
            while link.phase == .awaitingHello || link.phase == .open {
                let rest = UnsafeRawBufferPointer(rebasing: buffer[offset...])
                let header: FrameHeader
                do throws(FrameHeader.ParseError) {
                    guard let found = try FrameHeader(parsing: rest.bytes, bodyLimit: Self.frameLimit) else { break }
                    header = found
                } catch {
                    close(link, error.closeCode)
                    break
                }
                if link.phase == .awaitingHello, header.type != .hello {
                    close(link, .unexpectedFrame)
                    break
                }
                let end = FrameHeader.byteCount + header.bodyByteCount
                guard rest.count >= end else { break }
                offset += end
                let body = UnsafeRawBufferPointer(rebasing: rest[FrameHeader.byteCount..<end])
                if link.phase == .awaitingHello {
                    hello(link, body)
                    continue
                }
                do throws(WireError) {
                    try take(link, header.type, body)
                } catch {
                    close(link, .malformed)
                }
            }
        }
        if link.phase == .closed {
            link.received = []
        } else if offset > 0 {
            link.received.removeFirst(offset)
        }
    }

    private func take(_ link: Link, _ type: FrameType, _ body: UnsafeRawBufferPointer) throws(WireError) {
        let loop = loops[link.loop]
        switch type {
        case .ack:
            let ack = try AckView(decoding: body.bytes)
            log.note(now, "ack", Int64(link.number), Int64(ack.sequence), Int64(ack.rangeCount))
            link.lastAck = max(link.lastAck, ack.sequence)
            ack.withRanges { ranges in
                loop.shard.acknowledge(link.session, cumulative: ack.sequence, ranges: ranges, now: gatewayNow)
            }
            loop.perform()
            oracle.didAcknowledge(link, ack)
            if ack.hasBroadcasts {
                loop.shard.acknowledgeBroadcasts(
                    link.session, cumulative: ack.broadcastSequence, ranges: ack.broadcastRanges, now: gatewayNow)
                loop.perform()
                oracle.didAcknowledgeBroadcasts(link, ack)
            }
            for rejected in ack.rejected where rejected.stream <= 1 {
                loop.shard.reject(
                    link.session, stream: rejected.stream, sequence: rejected.sequence, reason: rejected.reason,
                    now: gatewayNow)
                loop.perform()
            }
        case .ping:
            link.owedPongs += 1
            loop.shard.ping(link.session, nonce: try Ping(decoding: body.bytes).nonce, now: gatewayNow)
            loop.perform()
        case .pong: _ = try Pong(decoding: body.bytes)
        case .deviceUpdate:
            let update = try DeviceUpdate(decoding: body.bytes)
            guard link.phase == .open else { return }
            log.note(now, "update", Int64(link.number), Int64(update.request))
            oracle.willUpdate(link, update, loop)
            loop.shard.update(link.session, update, now: gatewayNow)
            oracle.didUpdate(link, loop)
            loop.perform()
        case .feedback:
            let feedback = try Feedback(decoding: body.bytes)
            loop.shard.feedback(link.session, feedback, now: gatewayNow)
            loop.perform()
        case .close:
            _ = try Close(decoding: body.bytes)
            link.isAnnounced = true
            finish(link, isForgotten: false)
        default: close(link, .unexpectedFrame)
        }
    }

    // MARK: Handshake

    private func hello(_ link: Link, _ body: UnsafeRawBufferPointer) {
        let hello: Hello
        let transcript: HelloTranscript
        do throws(WireError) {
            hello = try Hello(decoding: body.bytes)
            transcript = try HelloTranscript(body: body.bytes)
        } catch {
            return close(link, .malformed)
        }
        guard hello.role == .device else { return close(link, .wrongListener) }
        guard let app = plan.apps.firstIndex(where: { $0.appID == hello.appID }) else {
            return close(link, .unknownApp)
        }
        let identity: Identity?
        var secret: [UInt8]?
        if hello.registration {
            let key = Array(Self.appSecret.utf8)
            guard HMACSHA256.isCode(hello.proof, of: transcript.bytes, key: key) else { return close(link, .badProof) }
            let minted = mintIdentity(for: devices[link.device], app: app)
            secret = minted.secret
            identity = minted
        } else {
            guard !hello.cid.isNone else { return close(link, .malformed) }
            identity = self.identity(hello.cid)
        }
        link.phase = .awaitingWelcome
        let bucket = identity?.bucket ?? Bucket(UInt16(truncatingIfNeeded: hello.cid.high % UInt64(World.bucketCount)))
        let loop = loop(of: bucket)
        link.loop = loop.index
        link.session = loop.sessions.insert(link)
        link.isKnownToShard = true
        link.identity = identity
        link.hello = hello
        link.helloBody = Array(body)
        identity?.callers.append(link)
        log.note(now, "hello", Int64(link.number), Int64(identity?.index ?? -1), hello.registration ? 1 : 0)
        let command = HelloCommand(
            session: link.session, app: plan.apps[app].key, bucket: bucket, cid: identity?.cid ?? hello.cid,
            newSecret: secret, transcript: transcript.bytes, proof: hello.proof, hello: hello)
        loop.shard.hello(command, now: gatewayNow)
        loop.perform()
    }

    /// Replays a recorded Hello, as an eavesdropper does.
    func replayHello() {
        guard isUp else { return }
        let (epoch, began) = (history.epoch(Self.queueEpoch), history.began / 1_000)
        let heard = links.suffix(80).filter {
            // A Hello from before a restore is refused, with two documented exceptions. Its device's clock may have been ahead,
            // or gateway time may be before the start of the history.
            $0.wasWelcomed && !$0.hello.registration && !$0.helloWasDamaged
                && ($0.hello.queueEpoch == epoch || $0.hello.timestamp <= began && began < UInt64(gatewayNow))
        }
        guard !heard.isEmpty else { return }
        let original = chance.one(of: heard)
        faults.note(.helloReplayed)
        eventCount += 1
        let link = Link(number: links.count, device: original.device)
        links.append(link)
        (link.isReplay, link.isOpenAtClient, link.isOpenAtGateway, link.life) = (true, false, true, life)
        link.toClient.isDead = true
        original.helloBody.withUnsafeBytes { hello(link, $0) }
    }

    static let appSecret = "the app's secret"

    func mintIdentity(for device: SimulatedDevice, app: Int) -> Identity {
        let index = identities.count
        let cid = DeviceID(high: chance.next(), low: chance.next() << 16 | UInt64(index))
        let secret = (0..<32).map { _ in UInt8(truncatingIfNeeded: chance.next()) }
        let identity = Identity(
            index: index, cid: cid, bucket: Bucket(UInt16(cid.high % UInt64(World.bucketCount))), app: app,
            secret: secret,
            device: device.index, isHonest: !device.isLiar)
        identities.append(identity)
        return identity
    }

    func identity(_ cid: DeviceID) -> Identity? {
        let index = Int(cid.low & 0xFFFF)
        return index < identities.count && identities[index].cid == cid ? identities[index] : nil
    }

    // MARK: Effects

    func perform(_ effect: Effect, of loop: Loop) {
        switch effect {
        case .deliver(let session, let deliver):
            guard let link = loop.sessions[session], link.phase == .open, let row = MessageRow(deliver.row) else {
                return fail(.fencing, "a Deliver for a session that is not open")
            }
            oracle.willDeliver(link, deliver, row)
            if let task = row.revokedTask {
                var revoke = Revoke()
                (revoke.sequence, revoke.messageID, revoke.taskID) = (deliver.sequence, row.messageID, row.taskID)
                revoke.revokedTaskID = task
                return send(link, revoke)
            }
            let frame = DeliverFrame(
                sequence: deliver.sequence, messageID: row.messageID, taskID: row.taskID, payload: row.payload,
                isOffline: deliver.isOffline, acceptedAt: UInt64(row.acceptedAt),
                alertedAt: UInt64(deliver.alertedAt), attempt: deliver.attempt, collapseKey: row.collapseKey,
                alertTitle: row.alertTitle, alertBody: row.alertBody, isCarriedByVendor: row.vendorCarriesAll)
            let count = frame.byteCount
            let start = link.outbox.count
            link.outbox.append(contentsOf: repeatElement(0, count: count))
            link.outbox.withUnsafeMutableBytes { buffer in
                _ = frame.encode(into: UnsafeMutableRawBufferPointer(rebasing: buffer[start...]))
            }
            markDirty(link)
        case .publishAnswered(let origin, let outcome): answered(Int(origin.request), outcome)
        case .leftBeforeWelcome: break
        case .welcome(let session, let effect):
            guard let link = loop.sessions[session], link.phase == .awaitingWelcome else {
                return fail(.fencing, "a Welcome for a connection that does not wait for one")
            }
            link.phase = .open
            oracle.willWelcome(link, effect, loop)
            send(link, effect.welcome)
        case .ping(let session):
            guard let link = loop.sessions[session] else { return }
            link.identity?.isSuspect = true
            send(link, Ping(nonce: UInt64(bitPattern: gatewayNow)))
        case .pong(let session, let nonce):
            guard let link = loop.sessions[session] else { return }
            link.owedPongs -= 1
            send(link, Pong(nonce: nonce))
        case .keepAlive(let session):
            guard let link = loop.sessions[session] else { return }
            send(link, Ping(nonce: UInt64(bitPattern: gatewayNow)))
        case .finished(let session): if let link = loop.sessions[session] { settled(link) }
        case .updated(let session, let result):
            guard let link = loop.sessions[session] else { return }
            oracle.willConfirm(link, result, loop)
            send(link, result)
        case .close(let session, let code, _):
            guard let link = loop.sessions[session] else { return }
            oracle.closedByShard(link, code)
            sendClose(link, code)
            finish(link, isForgotten: true)
        case .leased(let origin, let jobs): leased(origin, jobs, loop)
        case .settled(let origin, let verdicts): settled(origin, verdicts)
        case .jobsAvailable: break
        case .deviceStatus: break
        case .messageTrace(let origin, let answer): oracle.traced(Int(origin.request), answer.trace)
        case .directoryAnswered(let origin, let reply): directed(Int(origin.request), reply, loop)
        case .receiptAnswered(let origin, let answer): oracle.receiptAnswered(Int(origin.request), answer)
        case .answered(let origin, let answer): taskAnswered(origin, answer)
        case .broadcast(let session, let effect):
            guard let link = loop.sessions[session], link.phase == .open else {
                return fail(.fencing, "a Deliver for a session that is not open")
            }
            let start = link.outbox.count
            link.outbox.append(contentsOf: repeatElement(0, count: effect.frame.count))
            link.outbox.withUnsafeMutableBytes {
                effect.write(into: UnsafeMutableRawBufferPointer(rebasing: $0[start...]))
            }
            oracle.willBroadcast(link, Array(link.outbox[(start + FrameHeader.byteCount)...]))
            markDirty(link)
        case .launched(let record): launched(record)
        case .taskDue(let record):
            guard record.broadcast != nil else { return fail(.content, "a task fell due that nobody scheduled") }
            broadcastDue(record)
        case .firstAck(let first): firstAckTold(first)
        case .tokens(let news): followTokens(news)
        case .log(let event): oracle.logged(event)
        }
    }

    func send(_ link: Link, _ message: some WireMessage) {
        message.appendFrame(to: &link.outbox)
        markDirty(link)
    }

    private func markDirty(_ link: Link) {
        guard !link.isDirty else { return }
        link.isDirty = true
        dirtyLinks.append(link)
    }

    func flush(_ link: Link) {
        link.isDirty = false
        if !link.outbox.isEmpty, link.life == life {
            let bytes = link.outbox
            link.outbox = []
            transmit(link, toGateway: false, bytes)
            let backlog = link.toClient.sentOffset - link.toClient.consumedOffset
            if link.phase == .open, backlog > plan.outboxLimit { finish(link, isForgotten: false) }
        }
        if link.phase == .closed, link.isOpenAtGateway {
            link.isOpenAtGateway = false
            sendEnd(link, toGateway: false)
        }
        if link.phase == .open, link.life == life, !link.received.isEmpty { cutFrames(link) }
    }

    // MARK: Ends

    /// Closes the connection on the edge's own decision.
    func close(_ link: Link, _ code: CloseCode) {
        guard link.phase != .closed else { return }
        sendClose(link, code)
        finish(link, isForgotten: false)
    }

    private func sendClose(_ link: Link, _ code: CloseCode) {
        log.note(now, "close", Int64(link.number), Int64(code.rawValue))
        var close = Close()
        close.code = code.rawValue
        close.serverTime = UInt64(gatewayNow)
        (close.retryAfterMinimum, close.retryAfterMaximum) =
            switch code {
            case .overloaded: (1_000, 15_000)
            case .replaced: (30_000, 60_000)
            case .clockSkew: (0, 1_000)
            default: (0, 0)
            }
        send(link, close)
    }

    func finish(_ link: Link, isForgotten: Bool) {
        guard link.phase != .closed else { return }
        link.phase = .closed
        markDirty(link)
        let wasKnown = link.isKnownToShard
        link.isKnownToShard = false
        oracle.sessionEnded(link)
        guard wasKnown else { return }
        let loop = loops[link.loop]
        loop.sessions.remove(link.session)
        if !isForgotten {
            loop.shard.sessionEnded(link.session, announced: link.isAnnounced, now: gatewayNow)
            loop.perform()
        }
    }

    /// Handles the loss of the peer or of the path to it.
    func gatewayEndHungUp(_ link: Link) {
        guard link.isOpenAtGateway, link.life == life else { return }
        log.note(now, "hung up at the gateway", Int64(link.number))
        link.isOpenAtGateway = false
        finish(link, isForgotten: false)
    }

    /// Handles the death of the process that held this end.
    func gatewayEndDied(_ link: Link, isSilent: Bool) {
        link.phase = .closed
        link.isKnownToShard = false
        link.isOpenAtGateway = false
        link.outbox = []
        link.received = []
        if isSilent {
            (link.toGateway.isDead, link.toClient.isDead) = (true, true)
        } else {
            queue.add(.hangUp(link: link.number, toGateway: false, offset: -1), at: now + chance.time(1, plan.latency))
        }
    }
}
