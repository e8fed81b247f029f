import APNs
import Cryptography
import EventLoops
import Glibc
import Platform
import Testing

@testable import PushSender
@testable import FakeAPNs

/// A sender and a fake Apple per environment, on one loop that the test runs step by step.
final class Rig {
    let loop: EventLoop
    let folder: String
    private(set) var fakes: [Environment: FakeAPNs] = [:]
    private(set) var sender: AppleSender!
    private(set) var channels: ChannelCalls!
    private(set) var outcomes: [JobOutcome] = []
    private(set) var records: [String] = []
    private(set) var log: [String] = []
    private var jobCount = 0
    private var lastJobs: [String] = []
    private var credentials: ((String) -> PushSender.Credential)!
    /// The offset of the sender's wall clock, in milliseconds.
    var clockError: Int64 = 0
    /// The offset of the loop's time, in milliseconds.
    var loopError: UInt64 = 0
    static let keyID = "ABC123DEFG"
    static let teamID = "DEF123GHIJ"
    private let logged = Lock<[String]>([])
    /// The last reported number of jobs whose Apple does not answer.
    private(set) var asideCount = 0
    var unreported: [String: JobOutcome] = [:]

    /// Creates a rig whose Apples follow `scripts` and know the key for the environments of `scope`.
    init(
        scripts: [Environment: FakeScript] = [:], scope: Set<Environment> = Set(Environment.allCases),
        topics: Set<String> = [], environments: Set<Environment> = Set(Environment.allCases), tokenInterval: Int64 = 0,
        limits: Lane.Limits = Rig.quick
    ) throws {
        loop = try EventLoop(index: 0)
        folder = try FileSystem.makeTemporaryDirectory(prefix: "longwire-sender-")
        try SelfSignedCertificate.write(
            names: "DNS:localhost", days: 2, certificatePath: folder + "/c.pem", keyPath: folder + "/k.pem")
        let key = try SigningKey(pem: try SigningKey.makePEM(), name: "the test's key")
        var endpoints: [Environment: Lane.Endpoint] = [:]
        var channelEndpoints: [Environment: Lane.Endpoint] = [:]
        for environment in Environment.allCases {
            let context = try TLSContext(certificatePath: folder + "/c.pem", keyPath: folder + "/k.pem")
            context.requireHTTP2()
            let fake = FakeAPNs(
                on: loop, environment: environment, tls: context,
                keys: [
                    FakeKey(keyID: Self.keyID, teamID: Self.teamID, key: key, environments: scope, topics: topics)
                ],
                tokenInterval: tokenInterval, script: scripts[environment] ?? FakeScript(),
                record: { [unowned self] in records.append(String(decoding: $0, as: UTF8.self)) })
            try fake.listen(try ListeningSocket("127.0.0.1:0"))
            try fake.listenForChannels(try ListeningSocket("127.0.0.1:0"))
            fakes[environment] = fake
            channelEndpoints[environment] = Lane.Endpoint(
                host: "localhost", port: try #require(fake.channelAddress).port)
            endpoints[environment] = Lane.Endpoint(host: "localhost", port: try #require(fake.address).port)
        }
        let trusting = try TLSContext(trusting: .certificates(path: folder + "/c.pem"))
        trusting.requireHTTP2()
        let tokens = ProviderTokens(key, keyID: Self.keyID, teamID: Self.teamID)
        credentials = { Credential(name: $0, tokens: tokens, environments: environments, tls: trusting) }
        let credential = credentials("main")
        sender = AppleSender(
            on: loop, credentials: [:], otherCredentials: [credential], endpoints: endpoints, limits: limits,
            log: SenderLog { [logged] event, text in logged.withLock { $0.append(event + ": " + text) } },
            wall: { [unowned self] in UInt64(Int64(SystemClock.wallMilliseconds) + clockError) },
            resolver: { endpoint, done in
                // "localhost" may resolve to ::1 first, where no server listens.
                do throws(RemoteAddress.Failure) {
                    done(.success(try RemoteAddress.resolve(host: "127.0.0.1", port: endpoint.port)))
                } catch {
                    done(.failure(error))
                }
            },
            unreported: { [unowned self] in unreported }, setAside: { [unowned self] in asideCount = $0 },
            results: { [unowned self] in outcomes += $0 })
        var deskLimits = ChannelCalls.Limits()
        (deskLimits.callMilliseconds, deskLimits.calls) = (1_000, 20)
        channels = ChannelCalls(of: sender, endpoints: channelEndpoints, limits: deskLimits)
    }

    func call(
        _ call: ChannelRequest.Call, topic: String = "com.example.app", environment: Environment = .production,
        event: String = "update", sourceLocation: SourceLocation = #_sourceLocation
    ) -> ChannelReport {
        var facts = BodyFacts()
        (facts.isObject, facts.hasAps, facts.event, facts.hasTimestamp) = (true, true, event, true)
        let request = ChannelRequest(topic: topic, call: call)
        var outcome: ChannelOutcome?
        channels.perform(request, appID: "app", environment, facts: facts) { outcome = $0 }
        run(sourceLocation: sourceLocation) { outcome != nil }
        return ChannelReport(request, outcome ?? .unknown("none"))
    }

    deinit {
        loop.stop()
        try? FileSystem.removeTree(folder)
    }

    /// Limits of a few milliseconds, so that faults show at once.
    static var quick: Lane.Limits {
        var limits = Lane.Limits()
        (limits.requestMilliseconds, limits.pongMilliseconds) = (300, 300)
        limits.settingsMilliseconds = 500
        (limits.pause, limits.rest) = (10...100, 500...2_000)
        return limits
    }

    /// The limits of a real sender, with a request timeout that no pause of the test machine reaches.
    static var patient: Lane.Limits {
        var limits = Lane.Limits()
        limits.pause = 10...100
        return limits
    }

    var logLines: [String] { logged.withLock { $0 } }
    var production: FakeAPNs { fakes[.production]! }
    var sandbox: FakeAPNs { fakes[.sandbox]! }

    /// Runs the loop until `isDone`, or records a failure.
    func run(sourceLocation: SourceLocation = #_sourceLocation, until isDone: () -> Bool) {
        for _ in 0..<30_000 {
            loop.step(at: SystemClock.monotonicMilliseconds + loopError, isTick: true)
            if isDone() { return }
            usleep(300)
        }
        Issue.record("waited in vain; outcomes \(outcomes), log \(logLines)", sourceLocation: sourceLocation)
    }

    static func number(_ key: String, in line: String) -> Int64? {
        let parts = line.split(separator: "\"\(key)\":", maxSplits: 1)
        return parts.count < 2 ? nil : Int64(parts[1].prefix { $0.isNumber })
    }

    func credential(named name: String) -> PushSender.Credential { credentials(name) }

    /// Gives the sender jobs, one per token, and waits for as many outcomes.
    @discardableResult
    func send(
        _ tokens: [String], environment: Environment = .production, body: String = "{\"aps\":{\"alert\":\"hi\"}}",
        attempt: Int = 1,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws -> [JobOutcome] {
        let start = outcomes.count
        try give(tokens, environment: environment, body: body, attempt: attempt)
        run(sourceLocation: sourceLocation) { outcomes.count >= start + tokens.count }
        return Array(outcomes[min(start, outcomes.count)...])
    }

    func give(
        _ tokens: [String], environment: Environment = .production, body: String = "{\"aps\":{\"alert\":\"hi\"}}",
        leaseMilliseconds: Int64 = 60_000, left: Int64? = nil, attempt: Int = 1, dueFor waited: Int64 = 0
    ) throws {
        // The gateway's clock differs from this machine's.
        let until = Int64(SystemClock.wallMilliseconds) + leaseMilliseconds
        let jobs = tokens.map { token in
            jobCount += 1
            let digits = String(repeating: "0", count: 12 - "\(jobCount)".count) + "\(jobCount)"
            return
                "{\"channel\":\"apns\",\"jobId\":\"job\(jobCount)\",\"msgId\":\"m\",\"taskId\":\"t\",\"appId\":\"app\","
                + "\"cid\":\"c\",\"deviceToken\":\"\(token)\",\"tokenKind\":\"alert\","
                + "\"environment\":\"\(environment.rawValue)\",\"topic\":\"com.example.app\",\"pushType\":\"alert\","
                + "\"priority\":10,\"expiration\":0,\"collapseId\":\"c\(jobCount)\","
                + "\"apnsId\":\"00000000-0000-0000-0000-\(digits)\",\"body\":\(body),\"attempt\":\(attempt),\"acceptedAt\":1,"
                + "\"dueAt\":\(until - leaseMilliseconds - waited),\"leaseId\":\"lease\",\"leasedUntil\":\(until)}"
        }
        lastJobs = jobs
        _ = try sender.take(Array("{\"jobs\":[\(jobs.joined(separator: ","))]}".utf8)) { _ in
            JobLease(left: left ?? leaseMilliseconds, length: leaseMilliseconds)
        }
    }

    func giveAgain(lease: String) {
        let jobs = lastJobs.map { $0.replacing("\"leaseId\":\"lease\"", with: "\"leaseId\":\"\(lease)\"") }
        #expect(throws: Never.self) {
            _ = try sender.take(Array("{\"jobs\":[\(jobs.joined(separator: ","))]}".utf8)) { _ in
                JobLease(left: 60_000)
            }
        }
    }
}
