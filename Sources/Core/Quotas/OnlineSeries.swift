package import Delivery

/// The number of connected devices of one app over a day, with a point every ten minutes.
package struct OnlineSeries: Sendable, Equatable {
    package static let step: Int64 = 600_000
    package static let pointCount = 144

    package private(set) var points: [(time: GatewayTime, count: Int)] = []
    package init() {}

    package static func place(_ now: GatewayTime) -> GatewayTime { now / step * step }

    /// Adds or replaces a point, and removes points older than a day.
    ///
    /// - Returns: The times of the removed points.
    package mutating func note(_ count: Int, at time: GatewayTime) -> [GatewayTime] {
        points.removeAll { $0.time == time }
        let place = points.firstIndex { $0.time > time } ?? points.count
        points.insert((time, count), at: place)
        let oldest = (points.last?.time ?? time) - Self.step * Int64(Self.pointCount)
        let left = points.filter { $0.time <= oldest }.map(\.time)
        points.removeAll { $0.time <= oldest }
        return left
    }

    /// Removes points older than a day even if no new point follows; returns their times.
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
