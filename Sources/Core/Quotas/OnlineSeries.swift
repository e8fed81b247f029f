package import Delivery

/// How many devices of one app were connected, a point each ten minutes, for a day.
package struct OnlineSeries: Sendable, Equatable {
    package static let step: Int64 = 600_000
    package static let pointCount = 144

    package private(set) var points: [(time: GatewayTime, count: Int)] = []
    package init() {}

    /// The time of the point that `now` belongs to.
    package static func place(_ now: GatewayTime) -> GatewayTime { now / step * step }

    /// Adds or replaces a point; points older than a day leave.
    ///
    /// - Returns: the times of those that left.
    package mutating func note(_ count: Int, at time: GatewayTime) -> [GatewayTime] {
        points.removeAll { $0.time == time }
        let place = points.firstIndex { $0.time > time } ?? points.count
        points.insert((time, count), at: place)
        let oldest = (points.last?.time ?? time) - Self.step * Int64(Self.pointCount)
        let left = points.filter { $0.time <= oldest }.map(\.time)
        points.removeAll { $0.time <= oldest }
        return left
    }

    /// Forgets points of more than a day ago, whose app may have none that follow; returns their times.
    package mutating func takeOld(now: GatewayTime) -> [GatewayTime] {
        let oldest = Self.place(now) - Self.step * Int64(Self.pointCount)
        let left = points.filter { $0.time <= oldest }.map(\.time)
        points.removeAll { $0.time <= oldest }
        return left
    }

    package static func == (left: OnlineSeries, right: OnlineSeries) -> Bool {
        left.points.map(\.time) == right.points.map(\.time) && left.points.map(\.count) == right.points.map(\.count)
    }
}
