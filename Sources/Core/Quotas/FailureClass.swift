package import Delivery

/// The stage and the reason of a failed message, in the classes of Getui's `failed_detail`.
package struct FailureClass: Hashable, Comparable, Sendable {
    /// The stage of delivery: from the request to a deliverable message (`ts`), until the message was sent (`rs`), until it
    /// arrived (`sf`).
    package enum Stage: String, Sendable, CaseIterable { case ts, rs, sf }

    package var stage: Stage
    package var isVendor: Bool
    /// Getui's code.
    package var code: Int

    package init(stage: Stage, isVendor: Bool, code: Int) {
        (self.stage, self.isVendor, self.code) = (stage, isVendor, code)
    }

    package static func < (left: FailureClass, right: FailureClass) -> Bool {
        if left.stage != right.stage { return left.stage.rawValue < right.stage.rawValue }
        if left.isVendor != right.isVendor { return right.isVendor }
        return left.code < right.code
    }

    /// Counts the expired, overflowed and failed messages of a task by class.
    ///
    /// Collapsed, revoked and stopped messages are not failures, because they were no longer wanted.
    package static func sort(_ totals: TaskTotals) -> [FailureClass: Int] {
        var sorted: [FailureClass: Int] = [:]
        func add(_ stage: Stage, isVendor: Bool, _ code: Int, _ count: Int) {
            guard count > 0 else { return }
            sorted[FailureClass(stage: stage, isVendor: isVendor, code: code), default: 0] += count
        }
        add(.sf, isVendor: false, 12, totals[.expired])
        add(.ts, isVendor: false, 6, totals[.overflowed])
        for (reason, count) in totals.failures {
            switch reason {
            case "noToken", "tokenMoved": add(.rs, isVendor: true, 5, count)
            case "badToken", "BadDeviceToken", "Unregistered", "DeviceTokenNotForTopic", "ExpiredToken":
                add(.sf, isVendor: true, 5, count)
            case "PayloadTooLarge": add(.sf, isVendor: true, 7, count)
            case "TooManyRequests": add(.sf, isVendor: true, 6, count)
            case "BadCertificate", "BadCertificateEnvironment", "ExpiredProviderToken", "Forbidden",
                "InvalidProviderToken", "MissingProviderToken", "TopicDisallowed":
                add(.sf, isVendor: true, 3, count)
            case "BadCollapseId", "BadExpirationDate", "BadMessageId", "BadPath", "BadPriority", "BadTopic",
                "InvalidPushType", "MissingTopic", "PayloadEmpty":
                add(.sf, isVendor: true, 2, count)
            case "exhausted": add(.rs, isVendor: true, 11, count)
            default:
                let isClient = reason.utf8.starts(with: "rejectedByClient".utf8)
                add(.sf, isVendor: !isClient, 14, count)
            }
        }
        return sorted
    }
}
