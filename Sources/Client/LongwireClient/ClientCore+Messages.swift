internal import Wire

// Incoming frames, messages to the app, and outgoing acks.
extension ClientCore {
    package mutating func receive(_ bytes: [UInt8], at now: ClientTime) {
        switch phase {
        case .greeting, .ready: break
        default: return
        }
        // Any received byte proves that the connection works.
        pingSentAt = nil
        lastReceivedAt = now.monotonic
        if fetch?.quietAt != nil { fetch?.quietAt = now.monotonic + Limits.fetchQuietMilliseconds }
        if isProbing {
            isProbing = false
            if let seconds = heartbeat.answered() {
                keepHeartbeat()
                update(at: now) { $0.heartbeatSeconds = seconds }
            }
        }
        reader.append(bytes)
        do {
            while let frame = try nextFrame() { receive(frame, at: now) }
        } catch {
            violate(error.code, error.reason, at: now)
        }
    }

    private mutating func nextFrame() throws(FrameReader.Failure) -> IncomingFrame? {
        // After a frame that ended the session, no further frame is read.
        switch phase {
        case .greeting, .ready: try reader.next()
        default: nil
        }
    }

    private mutating func receive(_ frame: IncomingFrame, at now: ClientTime) {
        if case .close(let close) = frame { return receive(close, at: now) }
        guard phase == .ready else {
            if case .welcome(let welcome) = frame { return receive(welcome, at: now) }
            return violate(.unexpectedFrame, "a frame came before Welcome", at: now)
        }
        switch frame {
        case .ping(let ping): send(Pong(nonce: ping.nonce), at: now)
        case .pong(let pong):
            settleRejected(pong.nonce)
            settleReported(pong.nonce, at: now)
        case .deliver(let deliver): receive(deliver, at: now)
        case .revoke(let revoke): receive(revoke, at: now)
        case .updateResult(let result): receive(result, at: now)
        case .upstreamResult(let result): receive(result, at: now)
        case .deviceNamesResult(let result): receive(result, at: now)
        case .welcome: violate(.unexpectedFrame, "a second Welcome", at: now)
        case .misplaced(let type): violate(.unexpectedFrame, "a gateway does not send \(type)", at: now)
        case .close: break
        }
    }

    // MARK: Deliveries

    private mutating func receive(_ deliver: Deliver, at now: ClientTime) {
        guard isSequence(deliver.sequence, at: now) else { return }
        // A Longwire gateway has two streams. Every stream needs room in each Hello and Ack, so the number is limited.
        guard state.streams[deliver.stream] != nil || knownStreamCount < Limits.streamCount else {
            return violate(.floods, "more streams than there can be", at: now)
        }
        let processed = state.streams[deliver.stream] ?? ProcessedSet()
        if processed.contains(deliver.sequence) {
            // The repeated delivery shows that the gateway did not receive the ack.
            owesAck = true
            actions.append(
                .report(.suppressed(deliver.messageID, sequence: deliver.sequence, wasOpened: false)))
            return
        }
        forgetEndedRejections(below: deliver.sequence, stream: deliver.stream)
        if dropRule != .none {
            addHole(deliver.sequence, stream: deliver.stream, at: now)
            actions.append(.report(.droppedWhileSuspended(deliver.messageID, sequence: deliver.sequence)))
            return
        }
        if let rejection = state.rejections.first(where: { $0.isOf(deliver.stream, deliver.sequence) }) {
            // The repeated delivery shows that the gateway did not receive the rejection.
            addHole(deliver.sequence, stream: deliver.stream, at: now)
            pendingRejections.append(rejection)
            actions.append(.report(.suppressed(deliver.messageID, sequence: deliver.sequence, wasOpened: false)))
            return
        }
        // `carriedByVendor` means that the notification held the complete message. Otherwise this copy is still needed, even
        // after the user opened the notification.
        if !configuration.replaysOpened, deliver.carriedByVendor, state.opened.contains(deliver.messageID) {
            settle(deliver.sequence, stream: deliver.stream)
            actions.append(.report(.suppressed(deliver.messageID, sequence: deliver.sequence, wasOpened: true)))
            return
        }
        // The sequence is a hole until the handler has returned: an ack must not cover it before then.
        addHole(deliver.sequence, stream: deliver.stream, at: now)
        var message = ReceivedMessage(deliver)
        message.origin = origin
        message.wasOpened = state.opened.contains(message.messageID)
        if begin(message.stream, message.sequence, message.payload.count, at: now) { actions.append(.handle(message)) }
    }

    /// The number of streams in which a message was processed or received.
    private var knownStreamCount: Int { Set(state.streams.keys).union(holes.keys).count }

    private mutating func receive(_ revoke: Revoke, at now: ClientTime) {
        guard isSequence(revoke.sequence, at: now) else { return }
        if state.streams[0]?.contains(revoke.sequence) == true {
            owesAck = true
            return
        }
        guard dropRule == .none else { return addHole(revoke.sequence, stream: 0, at: now) }
        // The sequence stays a hole until the app has processed the revoke. If the client crashes before it stores its state, the
        // gateway sends the revoke again.
        addHole(revoke.sequence, stream: 0, at: now)
        guard begin(0, revoke.sequence, 0, at: now) else { return }
        actions.append(.revoke(revoke.revokedTaskID, sequence: revoke.sequence))
    }

    /// The registration and queue that current sequences belong to.
    private var origin: ReceivedMessage.Origin { ReceivedMessage.Origin(cid: state.cid, queueEpoch: state.queueEpoch) }

    /// Records that the app gets a message; returns false if the app already has the message, or the session has ended.
    private mutating func begin(_ stream: UInt32, _ sequence: UInt64, _ byteCount: Int, at now: ClientTime) -> Bool {
        guard phase == .ready else { return false }
        let new = Handling(origin: origin, stream: stream, sequence: sequence, byteCount: byteCount)
        for index in handling.indices
        where (handling[index].origin, handling[index].stream, handling[index].sequence) == (origin, stream, sequence) {
            handling[index].isOfEarlierSession = false
            return false
        }
        guard handling.reduce(byteCount, { $0 + $1.byteCount }) <= Limits.handlingByteCount else {
            violate(.floods, "more bytes un-acked than any window has", at: now)
            return false
        }
        handling.append(new)
        return true
    }

    /// Marks a revoke as processed after the app has received its event.
    package mutating func finishRevoke(_ sequence: UInt64) {
        let origin = origin
        handling.removeAll { ($0.origin, $0.stream, $0.sequence) == (origin, 0, sequence) }
        settle(sequence, stream: 0)
    }

    /// Records the handler's verdict on a message.
    package mutating func finish(_ message: ReceivedMessage, _ verdict: MessageVerdict) {
        guard let index = handling.firstIndex(where: { $0.isOf(message) }) else { return }
        let place = handling.remove(at: index)
        // The sequence belongs to an earlier registration or queue, so the verdict is dropped.
        guard place.origin == origin else { return }
        // The session may have ended since the delivery. Processed messages are recorded nevertheless.
        switch verdict {
        case .deferred: return
        case .processed:
            fetch?.messageCount += 1
            if place.isOfEarlierSession {
                // The current session has not redelivered this message, so nothing is known about neighboring sequences.
                state.streams[message.stream, default: ProcessedSet()].insertAlone(message.sequence)
                isDirty = true
                return
            }
        case .rejected(let reason):
            // The sequence stays a hole until the gateway confirms the rejection. An acked position beyond the sequence would
            // report the message as delivered.
            let rejection = Rejected(message, reason)
            state.note(rejection)
            isDirty = true
            // A gateway accepts a rejection only in the session that delivered the message. A message of an earlier session is
            // rejected after its redelivery.
            if !place.isOfEarlierSession { pendingRejections.append(rejection) }
            return
        }
        settle(message.sequence, stream: message.stream)
    }

    private mutating func settle(_ sequence: UInt64, stream: UInt32) {
        holes[stream]?.removeAll { $0 == sequence }
        let rejected = state.rejections.filter { $0.stream == stream }.map(\.sequence)
        let open = rejected.isEmpty ? holes[stream] ?? [] : Set(rejected).union(holes[stream] ?? []).sorted()
        state.streams[stream, default: ProcessedSet()].insert(sequence, holes: open)
        (owesAck, isDirty) = (true, true)
    }

    /// Removes rejections of messages that have ended at the gateway.
    ///
    /// A stream is in order, so a rejected message that was not redelivered before `sequence` has ended.
    private mutating func forgetEndedRejections(below sequence: UInt64, stream: UInt32) {
        guard !state.rejections.isEmpty else { return }
        let brought = holes[stream] ?? []
        let count = state.rejections.count
        state.rejections.removeAll {
            $0.stream == stream && $0.sequence < sequence && !brought.contains($0.sequence)
        }
        if state.rejections.count != count { isDirty = true }
    }

    /// Settles rejections once the Pong confirms them; from then on positions may cover their sequences.
    private mutating func settleRejected(_ nonce: UInt64) {
        guard let index = sentRejections.firstIndex(where: { $0.nonce == nonce }) else { return }
        for rejection in sentRejections.remove(at: index).rejections {
            let (stream, sequence) = (rejection.stream, rejection.sequence)
            state.rejections.removeAll { $0.isOf(stream, sequence) }
            settle(sequence, stream: stream)
        }
    }

    private mutating func addHole(_ sequence: UInt64, stream: UInt32, at now: ClientTime) {
        var list = holes[stream] ?? []
        // Streams are in order, so the insertion is nearly always at the end.
        var index = list.count
        while index > 0, list[index - 1] > sequence { index -= 1 }
        if index > 0, list[index - 1] == sequence { return }
        list.insert(sequence, at: index)
        holes[stream] = list
        if list.count > Limits.holeCount { violate(.floods, "more un-acked messages than any window", at: now) }
    }

    private mutating func isSequence(_ sequence: UInt64, at now: ClientTime) -> Bool {
        guard sequence > 0, sequence <= Limits.greatestSequence else {
            violate(.malformed, "\(sequence) is no sequence", at: now)
            return false
        }
        return true
    }

    /// Ends a turn: stores the changed state, then acks everything that was processed with one frame.
    package mutating func endTurn(at now: ClientTime) {
        if isDirty { persist() }
        guard phase == .ready, owesAck || !pendingRejections.isEmpty else { return }
        if !pendingRejections.isEmpty {
            for start in stride(from: 0, to: pendingRejections.count, by: Limits.rejectedPerAckCount) {
                var rejection = Ack()
                rejection.rejected = Array(pendingRejections[start...].prefix(Limits.rejectedPerAckCount))
                send(rejection, at: now)
            }
            sentRejections.append((sendPing(at: now), pendingRejections))
            pendingRejections = []
        }
        guard owesAck else { return }
        var ack = Ack()
        ack.positions = state.streams.sorted { $0.key < $1.key }.map { $1.position(stream: $0) }
        owesAck = false
        send(ack, at: now)
    }

    private mutating func settleReported(_ nonce: UInt64, at now: ClientTime) {
        guard let sent = sentReports, sent.nonce == nonce else { return }
        sentReports = nil
        state.unreportedOpened.removeAll { sent.opened.contains($0) }
        state.unreported.removeAll { sent.others.contains($0) }
        isDirty = true
        sendReports(at: now)
    }

    /// Closes the connection with a protocol error, and reconnects after the backoff.
    mutating func violate(_ code: CloseCode, _ reason: String, at now: ClientTime) {
        var close = Close()
        close.code = code.rawValue
        close.reason = reason
        send(close, at: now)
        actions.append(.disconnect)
        actions.append(.report(.disconnected(reason: "the gateway broke the protocol: \(reason)")))
        retry(at: now, error: LongwireClientError(code: .protocolViolation, message: reason))
    }
}
