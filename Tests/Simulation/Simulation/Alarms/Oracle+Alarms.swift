internal import Delivery

// Ends that alarms bring.
extension Oracle {
    /// Long after its end nothing is pending, whether its device is there or not.
    func checkOverdue() {
        guard world.plan.limits.alarmBatch > 100 else { return }
        // With little read ahead, an app's jobs that nobody leases may hold up the ends of its own jobs: documented.
        let isRoomy = world.plan.limits.dueJobReadAhead > 1_000
        for record in world.records
        where record.durableTable != nil && record.expiresAt + 100_000 < now && (isRoomy || !record.hasVendor) {
            return fail(.progress, "message \(record.index) is pending \(now - record.expiresAt) ms after its end")
        }
    }
}
