internal import Quotas
internal import Delivery
internal import EventLoops
internal import PushAPI
internal import Wire

/// What the gateway itself is asked, apart from the shards: its own rows and counts, on the loop of bucket 0.
///
/// A question is a message like a shard's command, so it reaches the loop that knows the answer on any gateway of a cluster.
enum GatewayQuestion: Sendable, Codable {
    /// Changes or lists an app's test devices.
    case testDevices(TestDeviceRequest, known: Set<DeviceID>, limit: Int)
    /// Voids a token of the push API.
    case revoke(TokenID)
    /// How many of an app's devices were connected, over the last day.
    case onlinePoints(AppKey)
    /// The most of a day.
    case onlinePeak(AppKey, day: UInt32)
    /// What the start of a shard elsewhere needs of these rows.
    case startRows
    /// What a gateway's callers have used of their apps' rates.
    case rates([RateReport])
    /// What a gateway's parts have queued of apps with that quota.
    case queues([AppQueue], node: Int)
    /// Changes an app.
    case app(AppChange)
    /// Which apps of the admin API changed since a version.
    case apps(since: UInt64)
}

/// The answer to a `GatewayQuestion`.
enum GatewayAnswer: Sendable, Codable {
    /// Done, durably.
    case testDevices(TestDeviceResult)
    /// Durable, and known to every loop of the gateway that answers.
    case revoked
    case onlinePoints([OnlinePoint])
    case onlinePeak(Int)
    /// Which days are folded, the tokens that are void, and the version of the apps.
    case startRows(FoldedDays, revoked: [TokenID], appsVersion: UInt64)
    /// What all gateways' callers have used of them.
    case rates([RateTotal])
    /// What the other gateways have queued of them.
    case queues([AppQueue])
    /// Done, durably and in force on the gateway that answers; or refused.
    case app(AppResult)
    case apps(AppNews)
    /// Nothing was done; the caller repeats the question.
    case busy
}

/// How many devices were connected at a time.
struct OnlinePoint: Sendable, Equatable, Codable {
    var time: GatewayTime
    var count: Int
}

extension GatewayLoop {
    /// Asks the loop that owns a bucket; `then` runs on this one, with `.busy` when there is no answer to be had.
    func ask(_ bucket: Bucket, _ question: GatewayQuestion, then: @escaping (GatewayAnswer) -> Void) {
        campaigns.coordinator.ask(bucket.loop(of: loopCount), question, then: then)
    }

    /// Sends a question to the loop that answers it.
    func question(_ question: GatewayQuestion, on target: Int, origin: Origin) {
        guard isHere(target) else { return send(.question(question, origin), to: target) }
        switch question {
        case .testDevices(let request, let known, let limit):
            testDevices(request, known: known, limit: limit, origin: origin)
        case .revoke(let token):
            guard publicHandler.hasRoomForRevoked, store.acceptsWrites else {
                answer(.gateway(origin, .busy))
                break
            }
            MetaRows.write(token, on: self) { [unowned self] in
                context.tellEveryGateway(.tokenRevoked(token))
                // Behind the revocation in every loop's queue, the asking one's included.
                inNextTurn { $0.answer(.gateway(origin, .revoked)) }
            } failed: { [unowned self] in
                answer(.gateway(origin, .busy))
            }
        case .onlinePoints(let app):
            let points = context.online.points(of: app).map { OnlinePoint(time: $0.time, count: $0.count) }
            answer(.gateway(origin, .onlinePoints(points)))
        case .onlinePeak(let app, let day):
            answer(.gateway(origin, .onlinePeak(context.online.peak(of: app, day: day))))
        case .startRows:
            answer(
                .gateway(
                    origin,
                    .startRows(
                        counterMaintenance?.folded ?? FoldedDays(), revoked: publicHandler.revokedTokens,
                        appsVersion: context.apps.version)))
        case .rates(let reports):
            answer(.gateway(origin, .rates(context.rates.count(reports, now: now))))
        case .queues(let queues, let node):
            let elsewhere = context.quotas.count(queues, of: node, now: loop.now)
            answer(.gateway(origin, elsewhere.map { .queues($0) } ?? .busy))
        case .app(let change): appService.take(change, origin)
        case .apps(let version):
            // Who is on the way to own the rows has not read them.
            let isKnown = context.apps.isKnown
            answer(.gateway(origin, isKnown ? .apps(context.apps.news(since: version, of: context.history)) : .busy))
        }
        answerDeferredSoon()
    }

    /// Carries a request about test devices out, one after another.
    ///
    /// What each finds may rest on changes that are not durable yet, so every answer waits until all of them are.
    private func testDevices(_ request: TestDeviceRequest, known: Set<DeviceID>, limit: Int, origin: Origin) {
        guard request.isQuestion || store.acceptsWrites else { return answer(.gateway(origin, .busy)) }
        let (changes, result) = context.testDevices.perform(request, known: known, limit: limit, now: now)
        for change in changes { MetaRows.write(change, app: request.app, on: self) }
        afterMeta { [unowned self] in
            answer(.gateway(origin, .testDevices(result)))
            answerDeferredSoon()
        } failed: { [unowned self] in
            answer(.gateway(origin, .busy))
        }
    }
}
