internal import Delivery
internal import Wire

final class SimulatedTask {
    let index: Int
    let id: TaskID
    let app: Int
    let createdAt: GatewayTime
    /// The first attempt for each device.
    var records: [Record] = []
    var isStopped = false
    var isWithdrawn = false
    /// Whether the first ack ends the messages of all other devices.
    var firstAckWins = false
    /// The first call and its retries.
    var calls: [[Record]] = []
    /// The simulation time at which the first ack was durable; 0 if there is none.
    var wonAt: Int64 = 0
    /// The number of shards that have not confirmed that no message is pending, and the process run in which they were asked.
    var sweepsMissing = 0
    var sweepLife = 0
    var hasSweepFailed = false

    init(index: Int, id: TaskID, app: Int, createdAt: GatewayTime) {
        (self.index, self.id, self.app, self.createdAt) = (index, id, app, createdAt)
    }
}
