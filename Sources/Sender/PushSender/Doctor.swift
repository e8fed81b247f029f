internal import Configuration
internal import APNs
internal import Cryptography
internal import EventLoops
internal import HTTPClient
internal import JSON
internal import Platform
internal import TextForms

/// The command `longwire-sender doctor`: tests the gateway and all credentials with their vendors, and reports problems.
struct Doctor {
    /// A well-formed token that no device has; Apple checks it last, so any other refusal concerns the sender.
    private static let strangerToken = String(repeating: "0", count: 64)

    let configuration: SenderConfiguration
    let topic: String
    let token: String?
    let environments: [Environment]
    let tell: (String) -> Void
    private(set) var problemCount = 0

    init(
        _ configuration: SenderConfiguration, topic: String, token: String?, environment: Environment?,
        tell: @escaping (String) -> Void
    ) {
        (self.configuration, self.topic, self.token, self.tell) = (configuration, topic, token, tell)
        environments = environment.map { [$0] } ?? Environment.allCases
    }

    /// - Returns: whether no problem was found.
    mutating func run() -> Bool {
        gateway()
        for entry in configuration.credentials {
            let credential: Credential
            do throws(TLSFailure) {
                credential = try configuration.open(entry)
            } catch {
                bad("credential \(entry.name)", error.description)
                continue
            }
            switch entry.proof {
            case .key(let key): good("credential \(entry.name)", "\(key.file) is a P-256 key")
            case .certificate(let certificate):
                let findings = credential.tls.certificateFindings(
                    endingWithin: configuration.certificateWarningSeconds, isServer: false)
                for finding in findings { bad("credential \(entry.name)", "\(certificate.file): \(finding)") }
                if findings.contains(where: { $0.weight == .refused }) { continue }
                good("credential \(entry.name)", "\(certificate.file) is readable")
            }
            for environment in environments where entry.environments.contains(environment) {
                apple(credential, environment)
            }
        }
        for account in configuration.vendorAccounts { vendor(account) }
        tell(problemCount == 0 ? "All is well." : "\(problemCount) problem(s).")
        return problemCount == 0
    }

    // Control characters from the gateway, Apple or a proxy are escaped, so that they cannot fake an output line.
    func good(_ what: String, _ text: String) { tell("ok       \(what): \(TerminalText.plain(text))") }

    mutating func bad(_ what: String, _ text: String) {
        problemCount += 1
        tell("PROBLEM  \(what): \(TerminalText.plain(text))")
    }

    /// Tests the gateway with an empty `extend` call, which changes nothing and needs the same permission as a lease.
    private mutating func gateway() {
        let url = configuration.link.url
        do throws(HTTPCallFailure) {
            let caller = try HTTPCaller(configuration.link.trust)
            let reply = try caller.post(
                url + "/v1/handoff/extend",
                headers: [
                    (name: "Content-Type", value: "application/json"),
                    (name: "Authorization", value: "Bearer " + (configuration.tokens.first?.exposed ?? "")),
                ], body: Array("{\"jobs\":[],\"leaseSeconds\":60}".utf8), timeoutMilliseconds: 10_000)
            switch reply.status {
            case 200: good("gateway", "\(url) takes our token")
            case 401: bad("gateway", "\(url) does not know our token: look at gateway.tokenFile")
            case 403: bad("gateway", "our credential at \(url) may not handoff: add it to its may")
            default:
                bad(
                    "gateway",
                    "\(url) answers \(reply.status) \(String(decoding: reply.body.prefix(300), as: UTF8.self))")
            }
        } catch {
            bad("gateway", "\(error): is longwired running, and is this its admin listener?")
        }
    }

    private mutating func apple(_ credential: Credential, _ environment: Environment) {
        let what = "\(credential.name), \(environment.rawValue)"
        guard let endpoint = configuration.endpoints[environment] else { return }
        if let proxy = endpoint.proxy {
            good(what, "\(endpoint.authority) is asked for through the proxy \(proxy.name)")
        }
        let found = Findings()
        do {
            let loop = try EventLoop(index: 0, name: "doctor")
            defer { loop.stop() }
            let only = Credential(
                name: credential.name, tokens: credential.tokens, environments: [environment], tls: credential.tls)
            let sender = AppleSender(
                on: loop, credentials: [:], otherCredentials: [only], endpoints: [environment: endpoint],
                limits: configuration.limits,
                log: SenderLog { [failures = found.failures] event, text in
                    if event == "connectionFailed" { failures.withLock { $0.append(text) } }
                },
                resolver: { loop.resolve($0, $1) }, results: { outcomes in found.outcomes.withLock { $0 += outcomes } })
            _ = try sender.take(job(environment)) { _ in JobLease(left: 3_600_000) }
            let end = SystemClock.monotonicMilliseconds + 15_000
            while found.outcomes.withLock({ $0.isEmpty }), found.failures.withLock({ $0.count < 2 }),
                SystemClock.monotonicMilliseconds < end
            {
                loop.step(at: SystemClock.monotonicMilliseconds, isTick: true)
                Pause.milliseconds(2)
            }
            found.clock = sender.clockDifference
            sender.beginStop()
            sender.abandon()
        } catch {
            return bad(what, "\(error)")
        }
        report(what, endpoint, found)
        reportClock(what, found)
    }

    private mutating func reportClock(_ what: String, _ found: Findings) {
        if let clock = found.clock {
            return clock.isTooLarge ? bad("clock", "\(clock) (\(what))") : good("clock", "as Apple's (\(what))")
        }
        let isExpired = found.outcomes.withLock {
            $0.contains { $0.reason == Reason.expiredProviderToken.rawValue }
        }
        // The token was just signed, so only a wrong clock can make it expired.
        if isExpired { bad("clock", "this machine's clock is more than an hour behind Apple's: set it (\(what))") }
    }

    private mutating func report(_ what: String, _ endpoint: Lane.Endpoint, _ found: Findings) {
        guard let outcome = found.outcomes.withLock({ $0.first { $0.reason != "senderStops" } }) else {
            let reason = found.failures.withLock { $0.last } ?? "no answer within 15 s"
            return bad(
                what,
                "\(endpoint.authority) cannot be used: \(reason). Port \(endpoint.hop.port) must be open; where only a proxy "
                    + "leads out, name it in apple.proxy"
            )
        }
        let reason = Reason(rawValue: outcome.reason)
        switch outcome.kind {
        case .accepted: good(what, "Apple took a silent push to the token")
        case .badToken where reason == .badDeviceToken && token == nil:
            good(what, "Apple accepts the credential and the topic \(topic)")
        default:
            bad(what, "\(outcome.reason): " + (reason.map { "\($0.advice)" } ?? "see Apple's documentation"))
        }
    }

    private final class Findings {
        let outcomes = Lock<[JobOutcome]>([])
        let failures = Lock<[String]>([])
        var clock: ClockDifference?
    }

    private func job(_ environment: Environment) -> [UInt8] {
        let job: JSONObject = [
            "jobId": "doctor", "leaseId": "doctor", "appId": "doctor", "tokenKind": "alert",
            "deviceToken": token ?? Self.strangerToken, "environment": environment.rawValue, "topic": topic,
            "pushType": "background", "apnsId": "00000000-0000-4000-8000-000000000000", "priority": 5,
            "body": ["aps": ["content-available": 1] as JSONObject] as JSONObject,
        ]
        return (["jobs": [job]] as JSONObject).bytes
    }
}
