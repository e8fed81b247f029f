internal import Delivery
internal import Wire

/// A task of several messages as the simulator knows it.
final class SimulatedTask {
    let index: Int
    let id: TaskID
    let app: Int
    let createdAt: GatewayTime
    /// The first attempt for each device.
    var records: [Record] = []
    var isStopped = false
    var isWithdrawn = false
    /// The first device that acks ends the others' messages.
    var firstAckWins = false
    /// Its calls, the first and those that repeat it.
    var calls: [[Record]] = []
    /// When the first ack was durable, in the simulation's time; 0: nobody has acked.
    var wonAt: Int64 = 0
    /// Shards that have not said yet that nothing of it is pending, and the run in which they were asked.
    var sweepsMissing = 0
    var sweepLife = 0
    var hasSweepFailed = false

    init(index: Int, id: TaskID, app: Int, createdAt: GatewayTime) {
        (self.index, self.id, self.app, self.createdAt) = (index, id, app, createdAt)
    }
}
