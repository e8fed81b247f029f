internal import Cryptography
internal import EventLoops
internal import Platform
internal import Wire

/// A device's connection to this gateway and the one to its owner, joined: what comes from either goes to the other.
///
/// A side whose outbox is full pauses the reading of the other one until it is empty. Either side's end ends the other,
/// behind what was on its way there. Confined to the loop of the device's connection.
final class Relay {
    /// One of the two streams' delegates.
    private final class Side: StreamDelegate {
        let relay: Relay
        let isDevice: Bool
        init(_ relay: Relay, isDevice: Bool) { (self.relay, self.isDevice) = (relay, isDevice) }

        override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
            isDevice ? relay.deviceSaid(bytes) : relay.ownerSaid(bytes)
        }
        override func outboxFilled(_ stream: ByteStream) {}
        override func outboxDrained(_ stream: ByteStream) { (isDevice ? relay.owner : relay.device)?.resumeReading() }
        override func timedOut(_ stream: ByteStream) { stream.close(.timedOut) }
        override func closed(_ stream: ByteStream, _ reason: CloseReason) { relay.closed(isDevice: isDevice) }
    }

    private let node: Int
    private let part: Int
    private let table: RelayTable
    private let farewell: [UInt8]
    private var ended: (() -> Void)?
    private var device: ByteStream?
    private var owner: ByteStream?
    private let reader = LinkFrameReader()
    /// The owner took the device.
    private var isOpen = false
    /// It counts among those that the owner has not taken yet.
    private var isOpening = false
    private var number: UInt64?

    init(node: Int, part: Int, table: RelayTable, farewell: [UInt8], ended: @escaping () -> Void) {
        (self.node, self.part, self.table, self.farewell, self.ended) = (node, part, table, farewell, ended)
    }

    func start(
        _ connection: DetachedConnection, on loop: EventLoop, to address: RemoteAddress?, _ preamble: RelayPreamble,
        tls: TLSContext, timeoutMilliseconds: UInt64
    ) {
        let outboxByteLimit = LinkLimits.relayOutboxByteCount
        device = ByteStream(
            attaching: connection, on: loop, delegate: Side(self, isDevice: true), outboxByteLimit: outboxByteLimit)
        guard let address, let body = try? preamble.encoded(), body.count <= LinkLimits.firstFrameByteCount else {
            return sayFarewell()
        }
        guard table.beginOpening(to: node) else { return sayFarewell() }
        isOpening = true
        do throws(SystemError) {
            let connection = try DetachedConnection(connectingTo: address)
            owner = ByteStream(
                attaching: connection, on: loop, delegate: Side(self, isDevice: false),
                outboxByteLimit: max(outboxByteLimit, 2 * body.count), tls: tls, serverName: LinkDesk.serverName)
        } catch {
            endOpening()
            return sayFarewell()
        }
        owner?.setTimeout(afterMilliseconds: timeoutMilliseconds)
        let block = LinkBlock()
        let start = block.beginFrame(.relay)
        block.put(body)
        block.endFrame(start)
        // It waits in the outbox until TLS is there.
        block.withBytes { _ = owner?.write($0) }
        number = table.add(self, to: node, part: part, on: loop)
    }

    // MARK: Bytes

    private func deviceSaid(_ bytes: UnsafeRawBufferPointer) -> Int {
        guard isOpen, let owner else {
            device?.pauseReading()
            return 0
        }
        if owner.write(bytes) { return bytes.count }
        device?.pauseReading()
        return 0
    }

    private func ownerSaid(_ bytes: UnsafeRawBufferPointer) -> Int {
        var rest = bytes
        if !isOpen {
            var answer: LinkFrame.Kind?
            do throws(LinkFault) {
                let count = try reader.read(bytes) { frame in
                    answer = frame.kind
                    return false
                }
                rest = UnsafeRawBufferPointer(rebasing: bytes[count...])
            } catch {
                answer = .close
            }
            guard let answer else { return bytes.count }
            guard answer == .relayed else {
                owner?.close()
                return bytes.count
            }
            isOpen = true
            endOpening()
            owner?.clearTimeout()
            device?.resumeReading()
        }
        guard !rest.isEmpty, let device else { return bytes.count }
        if device.write(rest) { return bytes.count }
        owner?.pauseReading()
        return bytes.count - rest.count
    }

    // MARK: End

    private func closed(isDevice: Bool) {
        if isDevice {
            device = nil
            finish()
            owner?.closeAfterFlush()
        } else {
            owner = nil
            endOpening()
            if isOpen { device?.closeAfterFlush() } else { sayFarewell() }
        }
    }

    /// The owner cannot be reached: the device is told to come back.
    private func sayFarewell() {
        _ = farewell.withUnsafeBytes { device?.write($0) }
        device?.closeAfterFlush()
    }

    private func endOpening() {
        guard isOpening else { return }
        isOpening = false
        table.endOpening(to: node)
    }

    /// The owner is gone.
    func close() { owner?.close() }

    private func finish() {
        endOpening()
        if let number { table.remove(number, of: node) }
        number = nil
        ended?()
        ended = nil
    }
}

/// The relays of all loops, by the node that they lead to.
final class RelayTable: Sendable {
    private struct Entry: Sendable {
        let part: Int
        let loop: EventLoop
        let relay: LoopBound<WeakRelay>
    }

    /// The table keeps no relay: its streams do.
    private final class WeakRelay {
        weak var relay: Relay?
        init(_ relay: Relay) { self.relay = relay }
    }

    private struct State {
        var last: UInt64 = 0
        var entries: [Int: [UInt64: Entry]] = [:]
        /// Relays to each node that it has not taken yet.
        var opening: [Int: Int] = [:]
    }

    private let state = Lock(State())

    /// Adds a relay, on its loop.
    func add(_ relay: Relay, to node: Int, part: Int, on loop: EventLoop) -> UInt64 {
        let entry = Entry(part: part, loop: loop, relay: LoopBound(WeakRelay(relay), on: loop))
        return state.withLock { state in
            state.last += 1
            state.entries[node, default: [:]][state.last] = entry
            return state.last
        }
    }

    /// Counts a relay that is about to begin; false when the node has enough to take.
    func beginOpening(to node: Int) -> Bool {
        state.withLock { state in
            let count = state.opening[node, default: 0]
            guard count < LinkLimits.openingRelayCount else { return false }
            state.opening[node] = count + 1
            return true
        }
    }

    func endOpening(to node: Int) {
        state.withLock { state in
            let count = state.opening[node, default: 0]
            state.opening[node] = count > 1 ? count - 1 : nil
        }
    }

    func remove(_ number: UInt64, of node: Int) {
        state.withLock { state in
            state.entries[node]?[number] = nil
            if state.entries[node]?.isEmpty ?? false { state.entries[node] = nil }
        }
    }

    /// Ends the relays to a node, or those of one part: their devices come back and find the new owner.
    func close(_ node: Int, part: Int? = nil) {
        let entries = state.withLock { $0.entries[node] ?? [:] }
        for entry in entries.values where part == nil || entry.part == part {
            entry.loop.submit { entry.relay.wrapped.relay?.close() }
        }
    }
}
