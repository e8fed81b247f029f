import Delivery
import EventLoops
import Glibc
import Platform
import PushAPI
import Testing
import Wire

@testable import Gateway

@Suite("A device's handshake")
struct DeviceHandshakeTests {
    /// Returns a connection's two ends: the gateway's and the test's.
    private static func ends() throws -> (gateway: DetachedConnection, ours: CInt) {
        var ends: (CInt, CInt) = (-1, -1)
        let kind = CInt(SOCK_STREAM.rawValue) | CInt(SOCK_NONBLOCK.rawValue)
        let result = withUnsafeMutableBytes(of: &ends) { bytes in
            bytes.withMemoryRebound(to: CInt.self) { socketpair(AF_UNIX, kind, 0, $0.baseAddress) }
        }
        try #require(result == 0)
        return (DetachedConnection(adopting: ends.0), ends.1)
    }

    /// Receives until the end or until `isEnough`, for a few seconds at most.
    private static func receive(_ end: CInt, until isEnough: ([UInt8]) -> Bool) -> [UInt8] {
        var received: [UInt8] = []
        for _ in 0..<6_000 where !isEnough(received) {
            var look = pollfd(fd: end, events: Int16(POLLIN), revents: 0)
            guard poll(&look, 1, 10) > 0 else { continue }
            var room = [UInt8](repeating: 0, count: 4_096)
            let count = recv(end, &room, room.count, 0)
            guard count > 0 else { break }
            received += room[..<count]
        }
        return received
    }

    private static func frame(_ end: CInt) -> (type: FrameType, body: [UInt8])? {
        func cut(_ bytes: [UInt8]) -> (FrameType, [UInt8])? {
            bytes.withUnsafeBytes {
                guard case .frame(let type, let body, _) = FrameCut($0, from: 0, bodyLimit: 4_096, mustBeHello: false)
                else { return nil }
                return (type, Array(body))
            }
        }
        return cut(receive(end) { cut($0) != nil })
    }

    /// Returns a registration whose proof was verified.
    private static func hello(_ loop: EventLoopHost, _ app: App, _ number: UInt64) -> AdoptedHello {
        var hello = Hello()
        (hello.appID, hello.registration, hello.timestamp) = (app.appID, true, UInt64(loop.now))
        let cid = DeviceID(high: 0x7E57, low: number)
        return AdoptedHello(
            app: app.key, bucket: app.bucket(of: cid), cid: cid, newSecret: [UInt8](repeating: 7, count: 32),
            transcript: [], hello: hello)
    }

    private static func adopt(_ arrival: Arrival, on loop: EventLoopHost) {
        guard let app = loop.registry[arrival.appID] else {
            Issue.record("there is no app")
            return
        }
        for (number, connection) in arrival.connections.enumerated() {
            _ = loop.context.connections.devices.enter(limit: .max)
            let hello = hello(loop, app, UInt64(number))
            DeviceHandshake.adopt(AdoptedConnection(connection: connection, isSecure: false, hello: hello), on: loop)
        }
    }

    private struct Arrival: Sendable {
        var appID: String
        var connections: [DetachedConnection]
    }

    /// Connects `count` devices in one turn in which nothing becomes durable; `work` adopts their connections.
    ///
    /// - Returns: the frames that each device received, and the number of Hellos waiting for the store before and after.
    private static func come(
        _ count: Int, _ gateway: Gateway, _ work: @escaping @Sendable (Partition, Arrival) -> Void
    ) throws -> (told: [CloseCode?], room: Int, waiting: Int) {
        var (connections, ours): ([DetachedConnection], [CInt]) = ([], [])
        for _ in 0..<count {
            let ends = try ends()
            connections.append(ends.gateway)
            ours.append(ends.ours)
        }
        defer { for end in ours { close(end) } }
        let figures = Lock<(room: Int, waiting: Int)?>(nil)
        let arrival = Arrival(appID: try #require(gateway.demo?.appID), connections: connections)
        gateway.context.submit(to: 0) { partition in
            let room = partition.host.welcomes.standingRoom
            work(partition, arrival)
            figures.withLock { $0 = (room, partition.sessions.openingCount) }
        }
        let told = try ours.map { end throws -> CloseCode? in
            let frame = try #require(Self.frame(end))
            guard frame.type == .close else { return nil }
            let close = try Close(decoding: frame.body.span.bytes)
            #expect(close.retryAfterMinimum == 1_000 && close.retryAfterMaximum == 15_000)
            return CloseCode(rawValue: close.code)
        }
        let (room, waiting) = try #require(figures.withLock { $0 })
        return (told, room, waiting)
    }

    @Test("devices of a partition with a stalled store wait only up to a bound that leaves room for others")
    func standing() throws {
        try SmallGateway.run { gateway in
            let (told, room, waiting) = try Self.come(200, gateway) { partition, arrival in
                partition.stuckSeconds = 1
                Self.adopt(arrival, on: partition.host)
            }
            #expect((1..<200).contains(room) && waiting == room)
            #expect(told == (0..<200).map { $0 < room ? nil : .overloaded })
        }
    }

    @Test("Hellos that arrived before a stall was detected are refused above the bound")
    func surplus() throws {
        try SmallGateway.run { gateway in
            let (told, room, waiting) = try Self.come(200, gateway) { partition, arrival in
                Self.adopt(arrival, on: partition.host)
                #expect(partition.sessions.openingCount == 200)
                partition.sendStandingAway()
                #expect(partition.sessions.openingCount == 200)
                partition.stuckSeconds = 1
                partition.sendStandingAway()
            }
            #expect((1..<200).contains(room) && waiting == room)
            #expect(told.count { $0 == nil } == room && told.count { $0 == .overloaded } == 200 - room)
        }
    }

    @Test("a Hello after a WebSocket request has the full timeout")
    func secondStep() throws {
        try SmallGateway.run { gateway in
            let ends = try Self.ends()
            defer { close(ends.ours) }
            let places = Lock<[UInt32]>([])
            func place(after begin: @escaping @Sendable (EventLoopHost) -> Void) {
                let isDone = Flag()
                gateway.context.hosts[0].submit { loop in
                    begin(loop)
                    if let waiting = loop.handshakes.longestWaiting(preferring: nil) {
                        places.withLock { $0.append(waiting.handshakePlace) }
                    }
                    isDone.set()
                }
                #expect(SmallGateway.isSet(isDone))
            }
            let connection = ends.gateway
            place { loop in
                #expect(loop.admit(.device, from: nil))
                DeviceHandshake.begin(connection, tls: nil, on: loop)
            }
            let request = """
                GET /v1/device HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r
                Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n
                """
            let bytes = Array(request.utf8)
            #expect(send(ends.ours, bytes, bytes.count, 0) == bytes.count)
            let answer = Self.receive(ends.ours) { $0.suffix(4).elementsEqual("\r\n\r\n".utf8) }
            #expect(String(decoding: answer, as: UTF8.self).hasPrefix("HTTP/1.1 101 "))
            place { _ in }
            let (first, second) = try #require(places.withLock { $0.count == 2 ? ($0[0], $0[1]) : nil })
            #expect(first != second && second != HandshakeQueue.none)
        }
    }

    @Test("a connection that waits again is queued last, and a closed one stays closed")
    func renewal() {
        final class Waiting: Handshaking {
            var handshakePlace = HandshakeQueue.none
            let kind = ConnectionKind.device
            func handshakeTimedOut() {}
            func handshakeDisplaced() {}
        }
        var queue = HandshakeQueue()
        let all = [Waiting(), Waiting(), Waiting()]
        for (place, one) in all.enumerated() {
            one.handshakePlace = queue.append(one, network: UInt64(place), deadline: 10)
        }
        all[0].handshakePlace = queue.renew(all[0].handshakePlace, deadline: 20)
        queue.remove(all[1].handshakePlace)
        #expect(queue.renew(all[1].handshakePlace, deadline: 30) == HandshakeQueue.none)
        #expect(queue.count == 2 && queue.longestWaiting(preferring: 0) === all[0])
        #expect(queue.popDue(now: 19) === all[2])
        #expect(queue.popDue(now: 19) == nil)
        #expect(queue.popDue(now: 20) === all[0])
        #expect(queue.count == 0 && queue.popDue(now: 100) == nil)
    }
}
