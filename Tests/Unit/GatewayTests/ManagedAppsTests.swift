import Configuration
import Delivery
import PushAPI
import Testing
import Wire

@testable import Gateway

@Suite("Apps of the admin API")
struct ManagedAppsTests {
    private var book = ManagedApps()
    private var surroundings = AppSurroundings()
    private let now: GatewayTime = 1_700_000_000_000

    private mutating func act(
        _ act: AppAct, _ appID: String = "shop", _ body: String = "", at time: GatewayTime? = nil
    ) -> AppResult {
        let result = book.judge(
            AppChange(act, appID: act == .create ? "" : appID, body: Array(body.utf8)), surroundings, now: time ?? now)
        if case .done(let app, isNew: true, _) = result {
            if act == .delete { book.remove(app.key, version: app.version) } else { book.put(app) }
        }
        return result
    }

    private mutating func made(_ body: String = "{\"appId\":\"shop\"}") throws -> (
        app: ManagedApp, shown: [ShownSecret]
    ) {
        guard case .done(let app, isNew: true, let shown) = act(.create, "", body) else {
            throw Unexpected(text: "\(act(.create, "", body))")
        }
        return (app, shown)
    }

    private struct Unexpected: Error { var text: String }

    private func refusal(_ result: AppResult) -> (AppRefusal, String)? {
        if case .refused(let refusal, let text) = result { (refusal, text) } else { nil }
    }

    @Test("an app needs only an id; generated secrets are shown once, and a repeated call changes nothing")
    mutating func create() throws {
        let (app, shown) = try made("{\"appId\":\"shop\",\"queue\":{\"messages\":500}}")
        #expect(shown.map(\.name) == ["appSecret", "masterSecret"])
        #expect(app.appSecrets.map(\.exposed) == [shown[0].exposed] && shown[0].exposed.count == 32)
        #expect(app.masterSecrets.map(\.exposed) == [shown[1].exposed] && app.appKey.count == 22)
        #expect(app.configuration(now: now).app?.queuedMessageLimit == 500 && book.version == 1)
        guard
            case .done(let again, isNew: false, shown: let none) = act(
                .create, "", "{\"queue\": {\"messages\": 500}, \"appId\": \"shop\"}")
        else { throw Unexpected(text: "refused") }
        #expect(again == app && none.isEmpty && book.version == 1)
        #expect(refusal(act(.create, "", "{\"appId\":\"shop\",\"maxAttempts\":2}"))?.0 == .conflict)
    }

    @Test("the number of apps created between two starts is bounded; an earlier app does not count again")
    mutating func lifetime() throws {
        let body = Array("{\"appId\":\"shop\"}".utf8)
        let create = AppChange(.create, appID: "", body: body)
        var seen = Set((1..<UInt64(ManagedApps.lifetimeAppCount)).map { AppKey($0) })
        guard case .done = book.judge(create, surroundings, seen: seen, now: now) else {
            throw Unexpected(text: "full")
        }
        seen.insert(AppKey(.max))
        let full = try #require(refusal(book.judge(create, surroundings, seen: seen, now: now)))
        #expect(full.0 == .conflict && full.1.contains("restart it, then create the app"))
        seen.insert(AppKey(appID: "shop"))
        guard case .done = book.judge(create, surroundings, seen: seen, now: now) else {
            throw Unexpected(text: "full")
        }
        // A 16-bit index names them all, and as many that only the store knows.
        #expect(2 * ManagedApps.lifetimeAppCount + 1_000 < Int(UInt16.max))
    }

    @Test("a body is checked with the configuration's rules and messages")
    mutating func validation() {
        surroundings.tokens = [Secret("a-credentials-token")]
        surroundings.fileApps = ["filed"]
        let cases: [(String, AppRefusal, String)] = [
            ("{\"appId\":\"a b\"}", .invalid, "appId: \"a b\" is not allowed; 1 to 64 of the characters"),
            ("{}", .invalid, "appId: missing"),
            (
                "{\"appId\":\"a\",\"queue\":{\"messages\":0}}", .invalid,
                "queue.messages: 0 is not allowed; an integer from"
            ),
            ("{\"appId\":\"a\",\"qeue\":{}}", .invalid, "qeue: unknown key; did you mean queue?"),
            ("{\"appId\":\"a\",\"appSecretFile\":\"/etc/passwd\"}", .invalid, "appSecretFile: not allowed here"),
            (
                "{\"appId\":\"a\",\"appSecret\":\"short\"}", .invalid,
                "appSecret: the value is not allowed (5 bytes, not shown)"
            ),
            (
                "{\"appId\":\"a\",\"appSecret\":\"one-and-the-same\",\"masterSecret\":\"one-and-the-same\"}", .invalid,
                "\"a\" has an appSecret that is a masterSecret, too"
            ),
            (
                "{\"appId\":\"a\",\"masterSecret\":\"a-credentials-token\"}", .invalid,
                "\"a\" has a secret that is a credential's token, too"
            ),
            ("{\"appId\":\"filed\"}", .conflict, "the app filed is one of the configuration file"),
            ("{\"appId\":", .invalid, "the body, 1:10:"), ("[]", .invalid, "the body is an object"),
        ]
        for (body, expected, text) in cases {
            let found = refusal(act(.create, "", body))
            #expect(found?.0 == expected && found?.1.contains(text) == true, "\(body): \(found?.1 ?? "was taken")")
        }
        #expect(refusal(act(.disable, "filed"))?.1.contains("which the admin API does not change") == true)
        #expect(refusal(act(.disable, "nobody"))?.0 == .unknown)
        #expect(book.version == 0)
    }

    @Test("a change affects only its keys: null restores a default, and secrets have a separate call")
    mutating func change() throws {
        _ = try made("{\"appId\":\"shop\",\"push\":{\"listsPerDay\":5,\"callsPerMinute\":7},\"maxAttempts\":2}")
        _ = act(.change, "shop", "{\"push\":{\"listsPerDay\":null,\"scheduleDays\":3},\"maxAttempts\":null}")
        let app = try #require(book.sorted.first)
        #expect(app.settings == #"{"push":{"callsPerMinute":7,"scheduleDays":3}}"#)
        #expect(app.configuration(now: now).app?.maxAttempts == 5)
        guard case .done(_, isNew: false, _) = act(.change, "shop", "{\"push\":{\"scheduleDays\":3}}") else {
            throw Unexpected(text: "what is so already counts as a change")
        }
        for body in ["{\"appSecret\":\"12345678\"}", "{\"appId\":\"other\"}", "{\"push\":{\"listsPerDay\":-1}}", ""] {
            #expect(refusal(act(.change, "shop", body))?.0 == .invalid, "\(body)")
        }
        #expect(book.sorted == [app])
    }

    @Test("after a rotation both secrets are valid, then only the new one; a leaked one can be ended at once")
    mutating func rotate() throws {
        let (first, _) = try made()
        let old = first.masterSecrets[0].exposed
        guard
            case .done(let app, isNew: true, let shown) = act(
                .rotate, "shop", "{\"secret\":\"masterSecret\",\"overlapSeconds\":60}")
        else { throw Unexpected(text: "refused") }
        let new = try #require(shown.first?.exposed)
        func secrets(_ app: ManagedApp, _ time: GatewayTime) -> [String] {
            app.configuration(now: time).app?.masterSecrets.map(\.exposed) ?? []
        }
        #expect(secrets(app, now + 59_999) == [new, old] && secrets(app, now + 60_000) == [new])
        #expect(app.appSecrets == first.appSecrets && book.nextEnd(after: now) == now + 60_000)

        // By default servers have one day, and copies of the app three months.
        _ = act(.rotate, "shop", "{\"secret\":\"appSecret\",\"value\":\"chosen-app-secret\"}")
        #expect(book.sorted[0].appSecrets.map(\.until) == [0, now + 90 * 86_400_000])
        guard
            case .done(_, isNew: false, _) = act(
                .rotate, "shop", "{\"secret\":\"appSecret\",\"value\":\"chosen-app-secret\"}")
        else { throw Unexpected(text: "a repeated rotation to a value changes something") }

        _ = act(.rotate, "shop", "{\"secret\":\"masterSecret\"}")
        let full = refusal(act(.rotate, "shop", "{\"secret\":\"masterSecret\"}"))
        #expect(full?.0 == .conflict && full?.1.contains("overlapSeconds 0") == true)
        _ = act(.rotate, "shop", "{\"secret\":\"masterSecret\",\"overlapSeconds\":0}")
        #expect(book.sorted[0].masterSecrets.count == 1)
        for body in ["{}", "{\"secret\":\"appKey\"}", "{\"secret\":\"appSecret\",\"value\":\"short\"}"] {
            #expect(refusal(act(.rotate, "shop", body))?.0 == .invalid, "\(body)")
        }
    }

    @Test("an app is deleted only after it was disabled, and the version never decreases")
    mutating func delete() throws {
        _ = try made()
        #expect(refusal(act(.delete))?.1.contains("disable the app shop first") == true)
        _ = act(.disable)
        _ = act(.delete)
        #expect(book.apps.isEmpty && book.version == 3)
        _ = try made()
        #expect(book.sorted[0].version == 4)
    }

    @Test("a row is read as written, and invalid rows are refused")
    mutating func rows() throws {
        let (app, _) = try made(
            "{\"appId\":\"shop\",\"apns\":{\"topic\":\"com.example\"},\"appSecret\":[\"se\\\"cret-é\"]}".replacing(
                "é", with: "e"))
        #expect(app.row.withUnsafeBytes { ManagedApp(row: $0) } == app)
        for text in ["", "{}", "[]", "{\"form\":1,\"appId\":\"a\"}", "\u{0}\u{1}"] {
            #expect(Array(text.utf8).withUnsafeBytes { ManagedApp(row: $0) } == nil)
        }
        // A later release's setting is ignored, and the others apply.
        var later = app
        later.settings = #"{"maxAttempts":3,"novelty":true}"#
        let (read, problems) = later.configuration(now: now)
        #expect(read?.maxAttempts == 3 && problems.count == 1)
    }

    /// Collects all pieces of the news, as a follower does.
    private func gathered(from book: ManagedApps, since version: UInt64) -> (news: AppNews, pieces: Int) {
        var (news, pieces) = (book.news(since: version, of: surroundings.history), 1)
        while !news.isLast {
            let more = book.news(since: news.changed.last?.version ?? 0, of: surroundings.history)
            (news.changed, news.isLast) = (news.changed + more.changed, more.isLast)
            pieces += 1
        }
        return (news, pieces)
    }

    @Test("a follower receives missed changes in pieces, and removes deleted apps")
    mutating func following() throws {
        for number in 0..<600 { _ = try made("{\"appId\":\"shop\(number)\",\"maxAttempts\":3}") }
        var follower = ManagedApps()
        let first = gathered(from: book, since: 0)
        follower.take(first.news)
        #expect(follower.sorted == book.sorted && follower.version == 600 && first.pieces > 1)
        _ = act(.disable, "shop7")
        let early = book.news(since: follower.version, of: surroundings.history)
        _ = act(.delete, "shop7")
        _ = act(.disable, "shop8")
        let news = book.news(since: follower.version, of: surroundings.history)
        #expect(news.changed.map(\.appID) == ["shop8"] && news.isLast && news.isSound)
        follower.take(news)
        #expect(follower.sorted == book.sorted && follower.version == book.version)
        // A late answer reverts nothing.
        follower.take(early)
        #expect(follower.sorted == book.sorted && follower.version == book.version)
        // News that start after the known version would leave a gap.
        var stranger = ManagedApps()
        stranger.take(news)
        #expect(stranger.apps.isEmpty && stranger.version == 0)
        // News of another store replace the follower's apps, even with a lower version.
        follower.take(ManagedApps().news(since: follower.version, of: surroundings.history))
        #expect(follower.apps.isEmpty && follower.version == 0)
    }

    @Test("a restored store assigns versions that its followers do not have yet")
    mutating func historyBegins() throws {
        _ = try made("{\"appId\":\"shop1\"}")
        let backup = book
        _ = try made("{\"appId\":\"lost\"}")
        var follower = ManagedApps()
        follower.take(gathered(from: book, since: 0).news)
        book = backup
        surroundings.history = surroundings.history.successor(id: 9, now: now)
        _ = try made("{\"appId\":\"shop2\"}")
        #expect(book.version > follower.version)
        let news = book.news(since: follower.version, of: surroundings.history)
        #expect(news.history != follower.history)
        follower.take(gathered(from: book, since: 0).news)
        #expect(follower.sorted == book.sorted && follower.history == surroundings.history.id)
    }

    @Test("news above the bounds are refused")
    func soundness() {
        var news = AppNews(since: 1, history: 9, head: 3, all: [], changed: [LinkSamples.managed], isLast: true)
        #expect(!news.isSound)
        news.head = .max
        #expect(!news.isSound && !AppNewsRequest.isValid(news))
        news.head = 8
        #expect(news.isSound)
    }

    @Test("a webhook's secret is in the row and in no answer, and cannot name a file of the gateway")
    mutating func webhooks() throws {
        let secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
        let hook = "\"webhook\":{\"url\":\"https://example.com/in\",\"secret\":\"\(secret)\"}"
        let (app, _) = try made("{\"appId\":\"shop\",\"upstream\":{\(hook)},\"events\":{}}")
        #expect(app.configuration(now: now).app?.upstream?.webhook != nil)
        #expect(app.settings.contains(secret))
        let page = AppPage(app, now: now)
        #expect(!page.settings.contains(secret) && page.settings.contains("(not shown)"))
        #expect(page.settings.contains("https://example.com/in") && page.settings.contains("events"))
        for key in ["secretFile", "authorities"] {
            let file = "{\"upstream\":{\"webhook\":{\"url\":\"https://example.com/in\",\"\(key)\":\"/etc/passwd\"}}}"
            let refused = refusal(act(.change, "shop", file))
            #expect(refused?.0 == .invalid && refused?.1.contains("upstream.webhook.\(key): not allowed here") == true)
        }
    }

    @Test("no description of a secret shows it")
    func hidden() {
        let secret = ManagedSecret(exposed: "do-not-show")
        #expect(!"\(secret) \(String(reflecting: secret)) \([secret])".contains("do-not-show"))
        #expect(!"\(ShownSecret(name: "appSecret", exposed: "do-not-show"))".contains("do-not-show"))
    }

    @Test("an app of the file hides one with the same id; a disabled app is known but not served")
    func snapshots() throws {
        let log = try Log(format: .text, level: .error)
        defer { log.close() }
        let apps = SharedApps(isKnown: true)
        var book = ManagedApps()
        for (id, isEnabled) in [("demo", true), ("on", true), ("off", false)] {
            book.put(
                ManagedApp(
                    appID: id, appKey: "managed", appSecrets: [ManagedSecret(exposed: "secret-\(id)-1")],
                    masterSecrets: [ManagedSecret(exposed: "master-\(id)-1")], settings: "{}", isEnabled: isEnabled,
                    createdAt: 1, changedAt: 1, version: book.version + 1))
        }
        apps.restore(book, on: nil, now: 5)
        var configuration = GatewayConfiguration()
        configuration.apps = [
            AppConfiguration(
                appID: "demo", appKey: "filed", appSecrets: [Secret("secret-file")],
                masterSecrets: [Secret("master-file")])
        ]
        let budget = try DescriptorBudget(capacity: 4_096, loopCount: 1, hasOwnTables: false)
        let snapshot = apps.begin(configuration, budget, now: 5, log: log)
        #expect(snapshot.registry["demo"]?.appKey == "filed" && snapshot.registry["on"]?.isManaged == true)
        #expect(snapshot.registry["off"] == nil && snapshot.registry.known("off")?.isEnabled == false)
        #expect(snapshot.settings.map(\.appID) == ["demo", "off", "on"])
        #expect(snapshot.settings.map(\.isServed) == [true, false, true])
        #expect(apps.page(of: "demo", now: 5)?.isManaged == false && apps.page(of: "off", now: 5)?.isEnabled == false)
    }
}
