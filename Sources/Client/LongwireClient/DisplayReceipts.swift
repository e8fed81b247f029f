/// A client that reports over HTTPS from a process without a connection, such as a notification service extension.
///
/// The app's client registers the device and keeps its state in a file of the app group. The extension reads that file and
/// authenticates each call with the device's secret. It never writes the file. The gateway counts each event once, so the
/// extension may repeat a call and also note the event in `NotificationReports`.
public struct DisplayReceipts: Sendable {
    private let gateway: String
    private let state: FileStateStore
    private let cryptography: any ClientCryptography

    /// Creates a reporter.
    ///
    /// It reads and sends nothing before the first report.
    ///
    /// - Parameters:
    ///   - gateway: the URL of the gateway's public HTTP listener, such as `https://push.example.com`, without a path.
    ///   - statePath: the file of the app's `FileStateStore`.
    ///   - cryptography: the platform's own, unless a test replaces it.
    public init(gateway: String, statePath: String, cryptography: any ClientCryptography = SystemCryptography()) {
        self.gateway = gateway.hasSuffix("/") ? String(gateway.dropLast()) : gateway
        state = FileStateStore(path: statePath)
        self.cryptography = cryptography
    }

    /// Sends one call with the caller's HTTP client, and a second one if the gateway reports a clock difference.
    ///
    /// - Parameters:
    ///   - reports: 1 to 32 reports about this device's messages.
    ///   - send: performs the call and returns the response, whatever its status.
    /// - Returns: the result of each report, in order.
    /// - Throws: `wrongState` before the app's first registration, `stateUnreadable` or `stateDamaged` for the state file,
    ///   `badConfiguration` for a wrong number of reports, `refused` with the gateway's response, and the errors of `send`.
    ///   Retry later, except after `refused`.
    public func report(
        _ reports: [MessageReport], by send: (ReceiptCall) async throws -> ReceiptReply
    ) async throws -> [ReceiptResult] {
        guard let state = try state.load(), state.isRegistered else {
            throw LongwireClientError(code: .wrongState, message: "the app has not registered this device yet")
        }
        guard (1...Limits.receiptEventCount).contains(reports.count) else {
            throw LongwireClientError(
                code: .badConfiguration, message: "one call has 1 to \(Limits.receiptEventCount) reports")
        }
        let first = System.now().wall
        let reply = try await send(call(reports, state, at: first, offset: state.clockOffset))
        guard let serverTime = ReceiptAnswer(reply.body).serverTime else { return try results(reply, reports.count) }
        // As after Close(clockSkew), a call makes one correction at most.
        let now = System.now().wall
        let again = try await send(
            call(reports, state, at: now, offset: serverTime.subtractingReportingOverflow(now).partialValue))
        return try results(again, reports.count)
    }

    /// Builds the call (docs/Semantics.md, "Receipts").
    func call(_ reports: [MessageReport], _ state: ClientState, at wall: Int64, offset: Int64) -> ReceiptCall {
        let now = wall.addingReportingOverflow(offset).partialValue
        let events = reports.map { report in
            switch report {
            case .shown(let id): #"{"msgId":"\#(id)","event":"shown","at":\#(now)}"#
            case .action(let number, let id): #"{"msgId":"\#(id)","event":"action","action":\#(number),"at":\#(now)}"#
            }
        }
        let body = Array(
            #"{"cid":"\#(state.cid)","timestamp":\#(now),"events":[\#(events.joined(separator: ","))]}"#.utf8)
        let transcript = Array("longwire receipt 1\0\(state.appID)\0".utf8) + body
        let proof = cryptography.authenticationCode(of: transcript, key: state.deviceSecret)
        return ReceiptCall(
            url: "\(gateway)/v2/\(state.appID)/receipt",
            headers: ["Content-Type": "application/json", "X-Longwire-Proof": ClientState.hex(proof)], body: body)
    }

    private func results(_ reply: ReceiptReply, _ count: Int) throws(LongwireClientError) -> [ReceiptResult] {
        let answer = ReceiptAnswer(reply.body)
        guard answer.code == 0, answer.results.count == count else {
            let words = String(decoding: reply.body.prefix(200), as: UTF8.self)
            throw LongwireClientError(code: .refused, message: "the gateway answered \(reply.status): \(words)")
        }
        return answer.results
    }
}

/// An HTTPS POST request.
public struct ReceiptCall: Equatable, Sendable {
    public var url: String
    public var headers: [String: String]
    /// The request's body.
    ///
    /// Send it unchanged: the proof covers every byte.
    public var body: [UInt8]
}

/// The gateway's HTTP response.
public struct ReceiptReply: Equatable, Sendable {
    /// The HTTP status code.
    public var status: Int
    /// The response's body, JSON.
    public var body: [UInt8]
    public init(status: Int, body: [UInt8]) { (self.status, self.body) = (status, body) }
}

/// The result of one report.
public enum ReceiptResult: String, Equatable, Sendable {
    /// The event is counted and on the gateway's disk.
    case recorded
    /// The event was recorded before.
    case repeated
    /// The message is not one of this device, or the gateway no longer knows it.
    case ignored
    /// The gateway cannot record the event now; report it again later.
    case retry
}

/// The fields of the gateway's JSON response that a client needs.
///
/// A missing value is `nil`.
struct ReceiptAnswer: Equatable {
    var code: Int64?
    var serverTime: Int64?
    var results: [ReceiptResult] = []

    init(_ body: [UInt8]) {
        code = Self.value(of: "code", in: body).flatMap { Self.integer($0) }
        if code == Self.clockSkew { serverTime = Self.value(of: "serverTime", in: body).flatMap { Self.integer($0) } }
        guard code == 0, let list = Self.value(of: "results", in: body), list.first == UInt8(ascii: "["),
            let end = list.firstIndex(of: UInt8(ascii: "]"))
        else { return }
        let words = list[list.startIndex..<end].split(separator: UInt8(ascii: "\""))
        results = words.compactMap { ReceiptResult(rawValue: String(decoding: $0, as: UTF8.self)) }
    }

    private static let clockSkew: Int64 = 30_904

    /// Returns the bytes from the value of a member onward.
    private static func value(of name: String, in body: [UInt8]) -> ArraySlice<UInt8>? {
        let key = Array("\"\(name)\"".utf8)
        var rest = body[...]
        while let quote = rest.firstIndex(of: key[0]) {
            rest = rest[quote...]
            guard rest.starts(with: key) else {
                rest = rest.dropFirst()
                continue
            }
            let behind = rest.dropFirst(key.count).drop { isSpace($0) }
            guard behind.first == UInt8(ascii: ":") else { return nil }
            return behind.dropFirst().drop { isSpace($0) }
        }
        return nil
    }

    private static func isSpace(_ byte: UInt8) -> Bool { [0x20, 0x09, 0x0A, 0x0D].contains(byte) }

    private static func integer(_ text: ArraySlice<UInt8>) -> Int64? {
        Int64(String(decoding: text.prefix { (48...57).contains($0) || $0 == UInt8(ascii: "-") }, as: UTF8.self))
    }
}
