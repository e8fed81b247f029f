internal import Delivery
internal import Directory
internal import EventLoops
internal import MessageStore
internal import Platform
internal import PushAPI
internal import Wire

/// The test devices of all apps; planned and changed on the loop that owns bucket 0.
final class SharedTestDevices: Sendable {
    private let book = Lock(TestDeviceBook())

    func restore(_ rows: [(app: AppKey, device: TestDevice)]) {
        book.withLock { book in for row in rows { book.put(row.device, app: row.app) } }
    }

    /// Carries the request out in memory.
    func perform(
        _ request: TestDeviceRequest, known: Set<DeviceID>, limit: Int, now: GatewayTime
    ) -> (changes: [TestDeviceChange], result: TestDeviceResult) {
        book.withLock { $0.perform(request, known: known, limit: limit, now: now) }
    }
}

// Calls about test devices.
extension PublicFront {
    func testDevices(_ exchange: HTTPExchange, _ request: TestDeviceRequest) {
        guard owner.context.isReady, !owner.context.isStopping else { return respond(exchange, .starting) }
        let places = request.lookUp
        guard !places.isEmpty else { return perform(exchange, request, known: []) }
        let isTaken = owner.directoryFront.run(.each(places, .describe), app: request.app) { [weak self] operation in
            guard let self else { return }
            guard !operation.outcomes.contains(.failed) else {
                return respond(exchange, TestDeviceAnswer.unreadable)
            }
            var known = Set<DeviceID>()
            for (place, outcome) in zip(places, operation.outcomes) {
                if case .device = outcome { known.insert(place.cid) }
            }
            perform(exchange, request, known: known)
        }
        if !isTaken { respond(exchange, .busy) }
    }

    /// Carries it out on the keeper's loop, one call after another.
    ///
    /// What each finds may rest on changes that are not durable yet, so every answer waits until all of them are.
    private func perform(_ exchange: HTTPExchange, _ request: TestDeviceRequest, known: Set<DeviceID>) {
        let (context, limit) = (owner.context, owner.limits.users.testDevices)
        let change: @Sendable (GatewayLoop, @escaping @Sendable (APIResponse) -> Void) -> Void = { keeper, reply in
            guard request.isQuestion || context.store.acceptsWrites else { return reply(.busy) }
            let (changes, result) = context.testDevices.perform(
                request, known: known, limit: limit, now: keeper.now)
            let response = TestDeviceAnswer.render(request, result)
            for change in changes { MetaRows.write(change, app: request.app, on: keeper) }
            keeper.afterMeta { reply(response) }
        }
        owner.ask(Bucket(0).loop(of: owner.loopCount), waiting: change) { [weak self] response in
            self?.respond(exchange, response)
        }
    }
}
