package import Delivery

/// Getui's bounds of a timed push.
package enum ScheduleRules {
    /// A push may wait for seven days, unless the app's configuration says otherwise.
    package static let horizon: Int64 = 7 * 86_400_000

    package enum Verdict: Sendable, Equatable {
        /// Its time is now or past: it goes out at once.
        case atOnce
        case later(GatewayTime)
        case outOfRange
        /// Longer ago than a slow call or a badly kept clock explains: another unit, another time zone, or a mistake.
        case past
    }

    /// How long ago a time may be that means "now".
    package static let grace: Int64 = 3_600_000

    /// What a `schedule_time` means at `now`.
    package static func judge(_ time: GatewayTime, now: GatewayTime, horizon: Int64 = horizon) -> Verdict {
        guard time > 0, time <= now + horizon else { return .outOfRange }
        guard time >= now - grace else { return .past }
        return time <= now ? .atOnce : .later(time)
    }

    /// Until when a task takes targets: its TTL from the time it goes out; one without storage, the default.
    package static func validity(timeToLive: Int64, defaultTimeToLive: Int64) -> Int64 {
        timeToLive > 0 ? timeToLive : defaultTimeToLive
    }

    /// Getui's words for a task's state: an older one and a newer one, whose names differ, too.
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
