import Delivery
import EventLoops
import Testing
import Wire

@testable import Gateway

@Suite("The task coordinator")
struct TaskCoordinatorTests {
    @Test("a close that another gateway has finished is not retried", arguments: [TaskState.ending, .open])
    func closeThatIsOver(state: TaskState) throws {
        try SmallGateway.run { gateway in
            let key = AppKey(0xA55)
            let content = MessageContent(
                strategy: .liveElseVendor, timeToLive: 7_200_000, vendor: nil, lengths: MessageContent.Lengths(),
                arena: [])
            var record = TaskRecord(
                id: TaskID(kind: .app, month: 1, day: 1, home: key.home, random: (1, 1)), app: key, state: state,
                createdAt: 0, validUntil: 0, content: content)
            record.broadcast = BroadcastPlan(audience: TagExpression(), speed: 0)
            record.broadcast?.number = 4
            record.broadcast?.expiresAt = .max
            let scanned = record
            let isDone = Flag()
            gateway.context.submit(to: 0) { partition in
                partition.coordinator.broadcastDue(scanned, of: partition) { isDone.set() }
            }
            #expect(SmallGateway.isSet(isDone), "the scan goes on though no such broadcast is live")
        }
    }
}
