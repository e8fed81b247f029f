import Delivery
import PushAPI
import Testing
import Wire

@testable import Gateway

@Suite("Questions that wait for their answers")
struct PendingRequestsTests {
    private func route(_ place: (slot: UInt32, stamp: UInt32)) -> Route {
        Route(.request, node: 0, loop: 0, slot: place.slot, stamp: place.stamp)
    }

    @Test("one kind of question leaves room for the others")
    func kinds() throws {
        var requests = PendingRequests()
        var first: (slot: UInt32, stamp: UInt32)?
        for _ in 0..<PendingRequests.kindLimit {
            let place = requests.insert(OnlineQuery()) { _ in }
            first = first ?? place
        }
        #expect(requests.insert(OnlineQuery()) { _ in } == nil)
        let other = requests.insert(MessageTraceRequest(message: MessageID(high: 1, low: 2))) { _ in }
        #expect(other != nil && requests.count == PendingRequests.kindLimit + 1)
        // Questions to shards are one kind together, because one call can ask every partition.
        #expect(requests.insert(FoldableQuery(today: 1)) { _ in } == nil)
        let complete = requests.remove(route(try #require(first)))
        #expect(complete != nil)
        #expect(requests.insert(OnlineQuery()) { _ in } != nil)
        // A slot that is free, or another question's now.
        let again = requests.remove(route(try #require(first)))
        #expect(again == nil)
    }

    @Test("an answer has the form of its question; any other answer, or none, becomes busy")
    func answers() {
        var requests = PendingRequests()
        var told: [String] = []
        func answer<Request: PartitionRequest>(_ request: Request, _ value: (any Sendable)?) {
            let place = requests.insert(request) { told.append("\($0)") }
            guard let place else { return told.append("no place") }
            let complete = requests.remove(route(place))
            complete?(value)
        }
        let peak = OnlinePeakRequest(app: AppKey(1), day: 2)
        answer(peak, Optional(9))
        answer(peak, 9)
        answer(peak, Int?.none)
        answer(peak, nil)
        answer(peak, "nine")
        answer(RevokeToken(token: TokenID(expiresAt: 1, random: 2)), true)
        answer(RevokeToken(token: TokenID(expiresAt: 1, random: 2)), nil)
        answer(ExtendLeases(items: [], milliseconds: 1, apps: nil), [ResultVerdict]())
        #expect(told == ["Optional(9)", "Optional(9)", "nil", "nil", "nil", "true", "false", "[]"])
    }
}
