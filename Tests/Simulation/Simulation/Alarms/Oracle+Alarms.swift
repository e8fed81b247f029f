internal import Delivery

extension Oracle {
    /// Checks that no message is pending long after its expiry, whether its device is connected or not.
    func checkOverdue() {
        guard world.plan.limits.alarmBatch > 100 else { return }
        // With a small read-ahead, an app's unleased jobs may delay the expiry of its other jobs, as documented.
        let isRoomy = world.plan.limits.dueJobReadAhead > 1_000
        for record in world.records
        where record.durableTable != nil && record.expiresAt + 100_000 < now && (isRoomy || !record.hasVendor) {
            return fail(.progress, "message \(record.index) is pending \(now - record.expiresAt) ms after its end")
        }
    }
}
