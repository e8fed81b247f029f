internal import Delivery
internal import Wire

// Checks of publish results and of the state in which a message is accepted.
extension Oracle {
    /// Checks that the flag of an accepted message matches the device's reported state.
    func checkAcceptance(_ record: Record, _ identity: Identity, _ row: RowInspection.Message) {
        guard record.strategy == .liveElseVendor || record.strategy == .liveOnly else { return }
        // The older session may just have ended while another Hello is being verified.
        if identity.isBlacklisted { fail(.strategy, "message \(record.index) was accepted for a blacklisted device") }
        guard identity.callers.isEmpty else { return }
        if identity.isReachable == row.isOffline {
            fail(.offlineFlag, "message \(record.index) was accepted with offline \(row.isOffline)")
        }
    }

    func answered(_ record: Record, _ outcome: PublishOutcome) {
        if let old = record.revokes, outcome.code == .accepted || outcome.code == .ignored { revoked(record, old) }
        if outcome.code == .stopped, record.task?.wonAt ?? 0 > 0 { world.faults.note(.siblingRefused) }
        if outcome.code == .stopped, record.task?.isStopped != true, record.task?.wonAt ?? 0 == 0,
            record.dealt?.isStopped != true
        {
            fail(.refusal, "publish \(record.index) was refused, but nobody stopped its task")
        }
        guard outcome.code == .accepted else {
            if outcome.code == .unknownDevice, record.identity.isDurable, record.identity.durableGeneration > 1 {
                fail(.refusal, "publish \(record.index) found no device")
            }
            if outcome.code == .ignored, record.revokes == nil, !record.identity.wasBlacklisted {
                fail(.refusal, "publish \(record.index) was ignored, but its device was never blacklisted")
            }
            if outcome.code == .requestConflict, record.request == 0 {
                fail(.request, "a conflict without a request id")
            }
            return
        }
        guard let original = self.record(outcome.message) else {
            return fail(.content, "publish \(record.index) was answered with an unknown id")
        }
        if !original.everDurable { fail(.beforeSync, "publish \(record.index) was answered before it was durable") }
        if original !== record {
            // The first attempt of a list call may have been refused. Then this attempt is not a repetition.
            if original.request != record.request || record.request == 0 || !outcome.isRepeat && !record.isOnce {
                fail(.request, "publish \(record.index) was answered with message \(original.index)")
            }
        } else {
            // Calls through mailboxes may be reordered, so a later attempt may arrive first.
            if outcome.isRepeat, record.dealt == nil, record.task?.firstAckWins != true {
                fail(.request, "publish \(record.index) is called a repeat")
            }
            if outcome.isLive == record.wasAcceptedOffline, record.table == .message, !record.wasVendorFirst {
                fail(.offlineFlag, "publish \(record.index) was answered as live \(outcome.isLive)")
            }
        }
        // The ledger of a list's devices is never dropped.
        guard record.request > 0, !requests.areForgotten || record.isOnce else { return }
        if !requests.take(outcome.message, of: record.request) {
            fail(.request, "request \(record.request) was accepted twice")
        }
    }

    func ephemeralRowsDropped() { requests.forget() }
}
