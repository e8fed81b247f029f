internal import Wire

// The network: segments are delayed, split, lost and retransmitted, duplicated or reordered. Each end reassembles them by offset,
// as TCP does. Connections break at one end or at both.
extension World {
    /// Opens a client connection.
    func dial(_ device: SimulatedDevice) -> Link {
        let link = Link(number: links.count, device: device.index)
        links.append(link)
        let delay = chance.time(1, plan.latency * 2)
        if !isUp || !isHealing && chance.perMille(plan.networkWeight / 2) {
            faults.note(.connectionRefused)
            queue.add(.connectFailed(link: link.number), at: now + delay)
        } else {
            queue.add(.connectDone(link: link.number), at: now + delay)
        }
        return link
    }

    func connectDone(_ link: Link) {
        eventCount += 1
        let device = devices[link.device]
        guard link.isOpenAtClient, device.link === link else { return }
        guard isUp else {
            link.isOpenAtClient = false
            device.connectionLost("refused")
            return
        }
        link.isOpenAtGateway = true
        link.life = life
        queue.add(.handshakeTimeout(link: link.number), at: now + 5_000)
        if !isHealing, chance.perMille(5) {
            faults.note(.handshakeStalled)
            link.toGateway.isDead = true
        }
        device.connected()
    }

    func transmit(_ link: Link, toGateway: Bool, _ bytes: [UInt8]) {
        guard !bytes.isEmpty else { return }
        if toGateway {
            transmit(link, true, bytes, &link.toGateway)
        } else {
            transmit(link, false, bytes, &link.toClient)
        }
    }

    private func transmit(_ link: Link, _ toGateway: Bool, _ bytes: [UInt8], _ direction: inout Direction) {
        let start = direction.sentOffset
        direction.sentOffset += bytes.count
        guard !direction.isDead else { return }
        var from = 0
        while from < bytes.count {
            var to = bytes.count
            if bytes.count - from > 1, !isHealing, chance.perMille(plan.splitShare) {
                to = from + chance.between(1, bytes.count - from - 1)
                faults.note(.segmentSplit)
            }
            var time = max(direction.nextTime, now + chance.time(1, plan.latency))
            if !isHealing {
                if chance.perMille(plan.delayShare) {
                    faults.note(.segmentDelayed)
                    time += chance.time(100, 4_000)
                }
                if chance.perMille(plan.lossShare) {
                    // The segment arrives with its retransmission. Later segments wait at the receiver.
                    faults.note(.segmentLost)
                    queue.add(
                        segment(link, toGateway, start + from, bytes[from..<to]), at: time + chance.time(200, 3_000))
                    from = to
                    continue
                }
                if chance.perMille(plan.reorderShare) {
                    faults.note(.segmentsReordered)
                    queue.add(segment(link, toGateway, start + from, bytes[from..<to]), at: time + chance.time(1, 60))
                    from = to
                    continue
                }
                if chance.perMille(plan.duplicateShare) {
                    faults.note(.segmentDuplicated)
                    queue.add(segment(link, toGateway, start + from, bytes[from..<to]), at: time + chance.time(0, 500))
                }
            }
            direction.nextTime = time
            queue.add(segment(link, toGateway, start + from, bytes[from..<to]), at: time)
            from = to
        }
    }

    private func segment(_ link: Link, _ toGateway: Bool, _ offset: Int, _ bytes: ArraySlice<UInt8>) -> Event {
        .segment(link: link.number, toGateway: toGateway, offset: offset, bytes: Array(bytes))
    }

    func arrive(_ link: Link, toGateway: Bool, offset: Int, bytes: [UInt8]) {
        eventCount += 1
        if toGateway ? link.toGateway.isDead : link.toClient.isDead { return }
        guard toGateway ? link.isOpenAtGateway : link.isOpenAtClient else {
            // The other end receives a reset, because this end is closed.
            if toGateway ? link.isOpenAtClient : link.isOpenAtGateway {
                queue.add(
                    .hangUp(link: link.number, toGateway: !toGateway, offset: -1),
                    at: now + chance.time(1, plan.latency))
            }
            return
        }
        let whole =
            toGateway
            ? Self.reassemble(&link.toGateway, offset, bytes) : Self.reassemble(&link.toClient, offset, bytes)
        if !whole.isEmpty {
            if toGateway { received(link, whole) } else { devices[link.device].received(link, whole) }
        }
        endIfReached(link, toGateway: toGateway)
    }

    /// Inserts a segment and returns the bytes that are now complete.
    private static func reassemble(_ direction: inout Direction, _ offset: Int, _ bytes: [UInt8]) -> [UInt8] {
        guard offset <= direction.arrivedOffset else {
            direction.stash.append((offset, bytes))
            return []
        }
        let known = direction.arrivedOffset - offset
        guard known < bytes.count else { return [] }
        var whole = known == 0 ? bytes : Array(bytes[known...])
        direction.arrivedOffset = offset + bytes.count
        var found = !direction.stash.isEmpty
        while found {
            found = false
            for index in direction.stash.indices where direction.stash[index].offset <= direction.arrivedOffset {
                let (start, more) = direction.stash.remove(at: index)
                let skip = direction.arrivedOffset - start
                if skip < more.count {
                    whole += more[skip...]
                    direction.arrivedOffset = start + more.count
                }
                found = true
                break
            }
        }
        return whole
    }

    // MARK: Ends

    /// Closes one end in order; the other end is notified after the last byte.
    func sendEnd(_ link: Link, toGateway: Bool) {
        let direction = toGateway ? link.toGateway : link.toClient
        guard !direction.isDead else { return }
        queue.add(
            .hangUp(link: link.number, toGateway: toGateway, offset: direction.sentOffset),
            at: max(direction.nextTime, now + chance.time(1, plan.latency)))
    }

    func hangUpArrived(_ link: Link, toGateway: Bool, offset: Int) {
        eventCount += 1
        if toGateway ? link.toGateway.isDead : link.toClient.isDead { return }
        guard offset >= 0 else {
            link.isHalfClosed = false
            hangUp(link, toGateway: toGateway)
            return
        }
        if toGateway { link.toGateway.endOffset = offset } else { link.toClient.endOffset = offset }
        endIfReached(link, toGateway: toGateway)
    }

    private func endIfReached(_ link: Link, toGateway: Bool) {
        let direction = toGateway ? link.toGateway : link.toClient
        if direction.endOffset >= 0, direction.arrivedOffset >= direction.endOffset {
            hangUp(link, toGateway: toGateway)
        }
    }

    private func hangUp(_ link: Link, toGateway: Bool) {
        if toGateway {
            if link.isHalfClosed, peerEnded(link) { return }
            gatewayEndHungUp(link)
        } else if link.isOpenAtClient {
            devices[link.device].hungUp(link)
        }
    }

    // MARK: Connection faults

    func breakSomeConnection() {
        let open = links.suffix(60).filter { $0.isOpenAtClient || $0.isOpenAtGateway }
        guard !open.isEmpty else { return }
        let link = chance.one(of: Array(open))
        switch chance.below(6) {
        case 0, 1:
            faults.note(.connectionReset)
            reset(link, tellsGateway: true, tellsClient: true)
        case 2:
            faults.note(.halfOpenTowardsGateway)
            reset(link, tellsGateway: false, tellsClient: true)
        case 3:
            faults.note(.halfOpenTowardsClient)
            reset(link, tellsGateway: true, tellsClient: false)
        default: damage(link)
        }
    }

    /// Resets the connection; all bytes in flight are lost.
    func reset(_ link: Link, tellsGateway: Bool, tellsClient: Bool) {
        (link.toGateway.isDead, link.toClient.isDead) = (true, true)
        if tellsClient, link.isOpenAtClient { devices[link.device].hungUp(link) }
        if tellsGateway { gatewayEndHungUp(link) }
    }

    /// Sends bytes that violate the protocol; the gateway must close the connection.
    private func damage(_ link: Link) {
        guard link.isOpenAtGateway, link.phase == .open, link.received.isEmpty, link.toGateway.stash.isEmpty else {
            return
        }
        faults.note(.frameDamaged)
        var bytes: [UInt8]
        switch chance.below(4) {
        case 0: bytes = [UInt8(chance.between(16, 255)), 0, 0, 0]
        case 1: bytes = [7, 255, 255, 255]
        case 2:
            // An Ack whose body ends within a field.
            bytes = [7, 0, 0, 2, 10, 200]
        default:
            // A frame type that only a gateway sends.
            bytes = [6, 0, 0, 0]
        }
        link.toGateway.isDead = true
        received(link, bytes)
        if link.phase != .closed { fail(.damage, "a connection went on after damaged bytes \(bytes)") }
        if link.isOpenAtClient { devices[link.device].hungUp(link) }
        bytes = []
    }
}
