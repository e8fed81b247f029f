/// Every event the gateway logs; the raw value is what stands in the line.
///
/// docs/Operations.md says what to do.
package enum LogName: String, Sendable, CaseIterable {
    /// The gateway serves; fields: version, loops.
    case started
    /// A signal asked for a stop.
    case stopping
    /// The last line of a clean stop.
    case stopped
    /// The gateway cannot start or go on; the process ends with `exitCode`.
    case fatal
    /// A listener is open; fields: listener, address.
    case listening
    /// A listener ran out of descriptors or its accept failed; fields: count, since the last such line.
    case acceptFailed
    /// Something allowed in the configuration is unwise.
    case configurationWarning
    /// A reload took effect; fields: configuration.
    case reloaded
    /// A reload was refused; the old configuration stays.
    case reloadRefused
    /// A changed key counts only after a restart; fields: key.
    case restartNeeded

    /// The wall clock stands too far ahead and is not followed; fields: offsetMilliseconds.
    case clockStepRefused
    /// The wall clock and the gateway's time agree again.
    case clockAgrees
    /// The wall clock left the gateway's time by more than a second; it is being followed slowly.
    case clockDrifts

    /// The store is open; fields: path, replayedBytes.
    case storeOpened
    /// Writes are refused for now: a bound is reached.
    case storeBusy
    /// The limits allow more connections than the system gives descriptors for; fields: count (needed), limit.
    case fewDescriptors
    /// Rows could not move to the ordered store, or no segment could be made ahead of time; repeated. Fields: error.
    case spillFailed
    /// A write or sync failed: the process ends.
    case storeFailed
    /// An event of the delivery core or the store, under its own name in `name`.
    case reported

    /// A connection was closed by us; fields: reason, code.
    case connectionClosed

    /// The hook's receiver failed; retried. Fields: status, error, attempt, retryInMilliseconds.
    case hookFailing
    /// The hook's receiver answers again.
    case hookRecovered
    /// A batch for the hook was given up; its jobs' leases lapse and they come again.
    case hookGivenUp

    /// Lines were lost because they came faster than they could be written; fields: count.
    case logLinesLost
    /// Repeats of one event were left out; fields: name, count.
    case repeatsLeftOut
}

/// Every field of a log line.
package enum LogKey: String, Sendable, CaseIterable {
    case address, app, attempt, bytes, cid, code, configuration, count, credential, detail, durability, error, exitCode,
        file, key, limit, listener, loop, loops, message, milliseconds, name, offsetMilliseconds, path, peer, pid,
        reason,
        replayedBytes, retryInMilliseconds, signal, status, task, token, version
}
