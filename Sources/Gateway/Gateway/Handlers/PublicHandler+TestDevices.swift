internal import Delivery
internal import Directory
internal import EventLoops
internal import MessageStore
internal import Platform
internal import PushAPI
internal import Wire

/// The test devices of all apps; changed only on the loop that owns bucket 0.
final class SharedTestDevices: Sendable {
    private let book = Lock(TestDeviceList())

    func restore(_ rows: [(app: AppKey, device: TestDevice)]) {
        book.withLock { book in
            book = TestDeviceList()
            for row in rows { book.put(row.device, app: row.app) }
        }
    }

    /// Removes a deleted app, and returns the devices whose rows must be removed.
    func removeAll(of app: AppKey) -> [DeviceID] { book.withLock { $0.removeAll(of: app) } }

    func perform(
        _ request: TestDeviceRequest, known: Set<DeviceID>, limit: Int, now: GatewayTime
    ) -> (changes: [TestDeviceChange], result: TestDeviceResult) {
        book.withLock { $0.perform(request, known: known, limit: limit, now: now) }
    }
}

extension PublicHandler {
    func testDevices(_ exchange: HTTPExchange, _ request: TestDeviceRequest) {
        guard owner.context.isReady, !owner.context.isStopping else { return respond(exchange, .starting) }
        describe(request.lookUp, exchange, request) { [self] outcomes in
            var known = Set<DeviceID>()
            for (place, outcome) in zip(request.lookUp, outcomes) {
                if case .device = outcome { known.insert(place.cid) }
            }
            perform(exchange, request, known: known)
        }
    }

    /// Carries out the request on the owner of bucket 0, which stores the test devices.
    private func perform(_ exchange: HTTPExchange, _ request: TestDeviceRequest, known: Set<DeviceID>) {
        let call = TestDevicesCall(request: request, known: known, limit: owner.limits.users.testDevices)
        owner.ask(call, of: Bucket(0)) { [self] result in
            guard let result, let app = owner.registry.known(request.app) else { return respond(exchange, .busy) }
            describe(result.pagePlaces(of: app), exchange, request) { [self] outcomes in
                respond(exchange, TestDeviceAnswer.render(request, result, page: outcomes))
            }
        }
    }

    /// Asks for the descriptions of devices; responds itself if they cannot be read.
    private func describe(
        _ places: [DevicePlace], _ exchange: HTTPExchange, _ request: TestDeviceRequest,
        completion: @escaping ([ItemOutcome]) -> Void
    ) {
        guard !places.isEmpty else { return completion([]) }
        let isTaken = owner.directoryHandler.run(.each(places, .describe), app: request.app) { [self] operation in
            guard !operation.outcomes.contains(.failed) else { return respond(exchange, TestDeviceAnswer.unreadable) }
            completion(operation.outcomes)
        }
        if !isTaken { respond(exchange, .busy) }
    }
}
