import Cryptography
import Glibc
import Platform
import Wire

/// Devices that reconnect after their gateway fails, as the client does, and the time at which the last one is served.
///
///     longwire-return-benchmark [--handshakes N] APP DEVICES-FILE PORT…
///
/// Opens N connections at a time (400). Connects the registered devices of `longwire bench` to gateways on 127.0.0.1, in turn,
/// and keeps them connected. A port that refuses stands for a gateway that a balancer has removed, so the next one is tried at
/// once. Every other failure has the backoff of LongwireClient: random within a second, doubled after each failure, and not
/// before the time in a Close. An alternate in a Close is tried at once.
///
/// Prints a line of JSON for each line of standard input, and ends with its input. The line has the number of devices that are
/// welcomed now. It also has, since the previous line, the number of lost connections, the number of refusals, and the time of
/// the last Welcome, in nanoseconds of the monotonic clock.
@main
struct ReturnBenchmark {
    private struct Device {
        var cid: DeviceID
        var secret: [UInt8]
        var timestamp: UInt64 = 0
        var descriptor: CInt = -1
        var isConnected = false
        var isWelcome = false
        /// The time at which its connection was lost; 0 if it was not.
        var lostAt: Int64 = 0
        var failures: Int64 = 0
        var port = 0
        var refusals = 0
        /// Whether a Close named the current address.
        var isSentOn = false
        var input: [UInt8] = []
    }

    private static let input = UInt64.max

    static func main() {
        var words = Array(CommandLine.arguments.dropFirst())
        var handshakes = 400
        if words.count > 1, words[0] == "--handshakes", let count = Int(words[1]), count > 0 {
            handshakes = count
            words.removeFirst(2)
        }
        let ports = words.dropFirst(2).compactMap { UInt16($0) }
        guard words.count > 2, ports.count == words.count - 2, let devices = load(words[1]) else {
            print("usage: longwire-return-benchmark [--handshakes N] APP DEVICES-FILE PORT…")
            exit(64)
        }
        var run = ReturnBenchmark(app: words[0], ports: ports, devices: devices, handshakes: handshakes)
        do throws(Poller.Failure) { try run.run() } catch {
            print("epoll: error \(error.errorNumber)")
            exit(70)
        }
    }

    private let app: String
    private let ports: [UInt16]
    private let handshakes: Int
    private var devices: [Device]
    private var waiting: [(at: Int64, index: Int)] = []  // a heap by time
    private var welcomeCount = 0
    private var opening = 0
    private var lossCount = 0
    private var refusalCount = 0
    private var lastWelcome: Int64 = 0
    private var closes: [UInt32: Int] = [:]

    private init(app: String, ports: [UInt16], devices: [Device], handshakes: Int) {
        (self.app, self.ports, self.devices, self.handshakes) = (app, ports, devices, handshakes)
        for index in devices.indices { self.devices[index].port = index % ports.count }
    }

    private static func load(_ path: String) -> [Device]? {
        guard let file = fopen(path, "r") else { return nil }
        defer { fclose(file) }
        var devices: [Device] = []
        var line = [CChar](repeating: 0, count: 512)
        while fgets(&line, CInt(line.count), file) != nil {
            let words = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
                .split(whereSeparator: \.isWhitespace)
            guard words.count == 2, let cid = DeviceID(hex: Array(words[0].utf8)[...]) else { continue }
            let digits = Array(words[1].utf8)
            let secret = stride(from: 0, to: digits.count - 1, by: 2).map { place in
                UInt8(String(decoding: digits[place..<place + 2], as: UTF8.self), radix: 16) ?? 0
            }
            devices.append(Device(cid: cid, secret: secret))
        }
        return devices
    }

    private static var now: Int64 {
        var value = timespec()
        clock_gettime(CLOCK_MONOTONIC, &value)
        return Int64(value.tv_sec) * 1_000_000_000 + Int64(value.tv_nsec)
    }

    private mutating func run() throws(Poller.Failure) {
        var poller = try Poller()
        _ = fcntl(0, F_SETFL, fcntl(0, F_GETFL, 0) | O_NONBLOCK)
        try poller.add(0, token: Self.input)
        for index in devices.indices { wait(index, until: 0) }
        while true {
            let now = Self.now
            while opening < handshakes, let next = waiting.first, next.at <= now {
                popFirst()
                try open(next.index, &poller)
            }
            let pause = opening < handshakes ? waiting.first.map { max(0, $0.at - now) } ?? -1 : -1
            let count = try poller.wait(nanoseconds: min(pause, 100_000_000))
            for place in 0..<count {
                let event = poller.ready(at: place)
                if event.token == Self.input {
                    guard obey() else { return }
                } else {
                    ready(Int(event.token), event)
                }
            }
        }
    }

    /// Answers each line of the input; returns false at its end.
    private mutating func obey() -> Bool {
        var bytes = [UInt8](repeating: 0, count: 256)
        while true {
            let count = read(0, &bytes, bytes.count)
            if count == 0 { return false }
            guard count > 0 else { return true }
            for _ in bytes[..<count].filter({ $0 == UInt8(ascii: "\n") }) {
                let codes = closes.sorted { $0.key < $1.key }.map { "\"\($0.key)\": \($0.value)" }
                print(
                    """
                    {"devices": \(devices.count), "welcome": \(welcomeCount), "lost": \(lossCount), \
                    "turnedAway": \(refusalCount), "lastWelcome": \(lastWelcome), "closes": {\(codes.joined(separator: ", "))}}
                    """)
                fflush(nil)
                (lossCount, refusalCount, lastWelcome, closes) = (0, 0, 0, [:])
            }
        }
    }

    // MARK: Connections

    private mutating func open(_ index: Int, _ poller: inout Poller) throws(Poller.Failure) {
        let kind = CInt(SOCK_STREAM.rawValue) | CInt(SOCK_NONBLOCK.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
        let descriptor = socket(AF_INET, kind, 0)
        guard descriptor >= 0 else { return fail(index) }
        var on: CInt = 1
        setsockopt(descriptor, CInt(IPPROTO_TCP), TCP_NODELAY, &on, 4)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = ports[devices[index].port].bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let result = withUnsafePointer(to: &address) { place in
            place.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        let code = errno
        devices[index].descriptor = descriptor
        opening += 1
        guard result == 0 || code == EINPROGRESS else { return refused(index) }
        try poller.add(descriptor, token: UInt64(index))
    }

    private mutating func ready(_ index: Int, _ event: Poller.Ready) {
        guard devices[index].descriptor >= 0 else { return }
        if !devices[index].isConnected {
            var code: CInt = 0
            var size = socklen_t(4)
            getsockopt(devices[index].descriptor, SOL_SOCKET, SO_ERROR, &code, &size)
            guard code == 0 else { return refused(index) }
            guard event.isWritable else { return }
            devices[index].isConnected = true
            greet(index)
        }
        if event.isReadable || event.isHungUp { receive(index) }
    }

    private mutating func greet(_ index: Int) {
        var wall = timespec()
        clock_gettime(CLOCK_REALTIME, &wall)
        let time = UInt64(wall.tv_sec) * 1_000 + UInt64(wall.tv_nsec / 1_000_000)
        devices[index].timestamp = max(time, devices[index].timestamp + 1)
        var hello = Hello()
        hello.appID = app
        hello.cid = devices[index].cid
        hello.timestamp = devices[index].timestamp
        hello.heartbeatSeconds = 300
        hello.client = "longwire-return-benchmark"
        var message = HelloTranscript.label.withUTF8Buffer { Array($0) }
        hello.appendBody(to: &message)
        hello.proof = HMACSHA256.code(key: devices[index].secret, message: message)
        var frame: [UInt8] = []
        hello.appendFrame(to: &frame)
        if send(devices[index].descriptor, frame, frame.count, CInt(MSG_NOSIGNAL)) != frame.count { lose(index) }
    }

    private mutating func receive(_ index: Int) {
        var bytes = [UInt8](repeating: 0, count: 4_096)
        while devices[index].descriptor >= 0 {
            let count = recv(devices[index].descriptor, &bytes, bytes.count, 0)
            if count < 0, errno == EAGAIN || errno == EINTR { return }
            guard count > 0 else { return lose(index) }
            devices[index].input += bytes[..<count]
            readFrames(index)
        }
    }

    private mutating func readFrames(_ index: Int) {
        while devices[index].input.count >= FrameHeader.byteCount, devices[index].descriptor >= 0 {
            let input = devices[index].input
            let end = FrameHeader.byteCount + (Int(input[1]) << 16 | Int(input[2]) << 8 | Int(input[3]))
            guard input.count >= end else { return }
            let body = Array(input[FrameHeader.byteCount..<end])
            devices[index].input.removeFirst(end)
            switch FrameType(rawValue: input[0]) {
            case .welcome: welcomed(index)
            case .close:
                guard let close = body.withUnsafeBytes({ try? Close(decoding: $0.bytes) }) else { return lose(index) }
                closed(index, close)
            default: break
            }
        }
    }

    private mutating func welcomed(_ index: Int) {
        guard !devices[index].isWelcome else { return }
        devices[index].isWelcome = true
        (devices[index].failures, devices[index].refusals, devices[index].isSentOn) = (0, 0, false)
        welcomeCount += 1
        opening -= 1
        lastWelcome = Self.now
    }

    // MARK: Coming back

    private mutating func closed(_ index: Int, _ close: Close) {
        closes[close.code, default: 0] += 1
        if !devices[index].isWelcome { refusalCount += 1 }
        let least = Int64(close.retryAfterMinimum), most = Int64(close.retryAfterMaximum)
        let window = most > 0 ? Int64.random(in: least...max(least, most)) : 0
        let isSentOn = !devices[index].isWelcome && !close.alternate.isEmpty && !devices[index].isSentOn
        shut(index)
        if isSentOn, let port = close.alternate.split(separator: ":").last.flatMap({ UInt16($0) }),
            let place = ports.firstIndex(of: port)
        {
            // Only once. Then the configured address, which stands for the balancer, is next again.
            devices[index].port = place
            devices[index].isSentOn = true
            return come(index, after: 0)
        }
        devices[index].isSentOn = false
        // As in `ClientCore.leave`: a very short window does not replace the jitter.
        come(index, after: window >= 1_000 ? window : max(window, jitter(index)))
    }

    private mutating func lose(_ index: Int) {
        shut(index)
        come(index, after: jitter(index))
    }

    private mutating func fail(_ index: Int) { come(index, after: jitter(index)) }

    private mutating func jitter(_ index: Int) -> Int64 {
        defer { devices[index].failures += 1 }
        return Int64.random(in: 0...min(120_000, 1_000 << min(devices[index].failures, 16)))
    }

    /// Handles a refused connection: the balancer chooses another gateway.
    private mutating func refused(_ index: Int) {
        shut(index)
        devices[index].refusals += 1
        devices[index].port = (devices[index].port + 1) % ports.count
        come(index, after: devices[index].refusals % ports.count == 0 ? jitter(index) : 0)
    }

    private mutating func shut(_ index: Int) {
        close(devices[index].descriptor)
        devices[index].descriptor = -1
        devices[index].isConnected = false
        devices[index].input.removeAll()
        if devices[index].isWelcome {
            devices[index].isWelcome = false
            welcomeCount -= 1
            lossCount += 1
        } else {
            opening -= 1
        }
    }

    private mutating func come(_ index: Int, after milliseconds: Int64) {
        wait(index, until: Self.now + milliseconds * 1_000_000)
    }

    // MARK: The heap

    private mutating func wait(_ index: Int, until time: Int64) {
        waiting.append((time, index))
        var place = waiting.count - 1
        while place > 0, waiting[place].at < waiting[(place - 1) / 2].at {
            waiting.swapAt(place, (place - 1) / 2)
            place = (place - 1) / 2
        }
    }

    private mutating func popFirst() {
        waiting.swapAt(0, waiting.count - 1)
        waiting.removeLast()
        var place = 0
        while true {
            var least = place
            for child in [2 * place + 1, 2 * place + 2]
            where child < waiting.count && waiting[child].at < waiting[least].at {
                least = child
            }
            if least == place { return }
            waiting.swapAt(place, least)
            place = least
        }
    }
}
