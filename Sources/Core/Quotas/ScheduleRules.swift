package import Delivery

package enum ScheduleRules {
    /// The default maximum lead of a scheduled push: seven days.
    package static let horizon: Int64 = 7 * 86_400_000

    package enum Verdict: Sendable, Equatable {
        /// The time is now or in the last hour: the push is sent immediately.
        case atOnce
        case later(GatewayTime)
        case outOfRange
        /// The time is too far in the past for a slow call or an inaccurate clock; it probably has a wrong unit or time zone.
        case past
    }

    /// The maximum age of a time that still means "now".
    package static let grace: Int64 = 3_600_000

    package static func judge(_ time: GatewayTime, now: GatewayTime, horizon: Int64 = horizon) -> Verdict {
        guard time > 0, time <= now + horizon else { return .outOfRange }
        guard time >= now - grace else { return .past }
        return time <= now ? .atOnce : .later(time)
    }

    /// Returns how long a task accepts targets: its TTL from the time it is sent, or the default TTL for a task without storage.
    package static func validity(timeToLive: Int64, defaultTimeToLive: Int64) -> Int64 {
        timeToLive > 0 ? timeToLive : defaultTimeToLive
    }

    /// Returns Getui's two status values of a task, from the older and the newer field.
    package static func words(_ record: TaskRecord) -> (status: StaticString?, sendResult: StaticString) {
        switch record.state {
        case .scheduled: (nil, "do_not_send")
        case .running: (nil, "do_not_send")
        case .open, .ending, .ended: ("success", "send_success")
        case .cancelled: ("failed", "has_delete")
        case .stopping, .stopped: record.firedAt > 0 ? ("success", "send_success") : ("failed", "has_delete")
        }
    }
}
