/// The events that the gateway logs; the raw value appears in the line.
///
/// docs/use/Operations.md describes the remedy for each.
package enum LogName: String, Sendable, CaseIterable {
    /// The gateway serves; fields: version, loops.
    case started
    /// A signal requested a stop: `/readyz` reports not ready while the gateway still serves; fields: milliseconds.
    case draining
    /// The stop has begun: new work is refused.
    case stopping
    case stopped
    /// A start waits for a temporary problem, such as a Redis server that loads its data; logged when the reason changes, and
    /// every minute. Fields: reason, milliseconds (waited).
    case startWaits
    /// The gateway cannot start or continue; the process ends with `exitCode`.
    case fatal
    /// SIGHUP arrived because the terminal of the gateway closed; a clean stop follows.
    case terminalClosed
    /// A listener is open; fields: listener, address.
    case listening
    /// A listener ran out of descriptors or its accept failed; fields: count (since the last such line).
    case acceptFailed
    /// Connections of load balancers were closed without a valid PROXY header; fields: loop, count (since the last line), reason
    /// (of the last connection).
    case proxyHeaderRefused
    /// Network addresses above their limits were refused; fields: address (of the last one), detail (how many of which kind since
    /// the last line).
    case addressRefused
    /// A device reconnects repeatedly, and its next Hello is refused for a time; fields: cid, milliseconds.
    case deviceFlaps
    /// An app has exceeded a quota; fields: app, name (of the quota), count (of refusals since the last line).
    case quotaUsedUp
    /// An operator started to disconnect all devices; fields: name (of the credential), pace, devices.
    case drainBegan
    /// The drain is finished: no device is connected.
    case drainEnded
    /// An operator allows devices to connect again; fields: name, devices.
    case drainUndone
    /// The gateway has lost Redis and the other gateways have its partitions: it disconnects its devices; fields: pace, devices.
    case cutOffDrainBegan
    /// The gateway has renewed its lease and accepts devices again; fields: devices.
    case cutOffDrainEnded
    /// More devices connect than the loop can accept at once; they are queued or receive a Close with a retry time. Fields: loop,
    /// count (of queued devices), milliseconds (the expected wait of the next one).
    case stormBegan
    /// No device was queued or refused for two seconds; fields: loop, waited, sentAway, milliseconds (the duration),
    /// longestWaitMilliseconds.
    case stormEnded
    /// A problem that an operator should act on; `/v1/health` lists all of them. Fields: name, detail (with the remedy).
    case findingBegan
    /// The problem is over; fields: name, detail.
    case findingEnded
    /// A configured value is valid but risky.
    case configurationWarning
    /// An operator purged a device's queue, retried its jobs or ended its session; fields: name, app, cid, detail, count.
    case operatorChange
    /// An app was created, changed or deleted through the admin API; fields: name (of the credential), app, detail.
    case appChanged
    /// An app of the admin API has the id of an app of the configuration file; the file's app takes precedence. Fields: app.
    case appShadowed
    /// The row of an app has fields that this release cannot decode, which are ignored. Fields: app, error.
    case appUnread
    /// A reload took effect; fields: configuration.
    case reloaded
    /// A reload was rejected; the old configuration remains in use.
    case reloadRefused
    /// The certificate of a listener expires within limits.certificateWarningDays, or has expired; once a day. Fields: listener,
    /// milliseconds (left).
    case certificateEnds
    /// A client presented no certificate or an invalid one, where one is required; fields: listener, address, reason.
    case clientCertificateRefused
    /// A TLS handshake failed for another reason; fields: listener, address, reason.
    case handshakeFailed
    /// A changed key takes effect only after a restart; fields: key.
    case restartNeeded

    /// An event loop did not run for ten seconds or more: the process or its machine was stopped. Fields: loop, milliseconds.
    case loopStoodStill
    /// The wall clock is too far ahead and is ignored; fields: offsetMilliseconds.
    case clockStepRefused
    /// The wall clock and the gateway time agree again.
    case clockAgrees
    /// The wall clock differs from the gateway time by more than a second; the gateway time follows slowly.
    case clockDrifts
    case clockRaised
    /// This gateway joined its cluster; fields: name, node, count (of members), address.
    case clusterJoined
    /// The register in Redis did not answer or refused a call; fields: error.
    case clusterRegisterFailed
    /// The stop timeout expired before all partitions were handed over; the other gateways take them over as after a crash.
    case clusterLeftEarly
    /// Events of the cluster's members and partitions; fields: detail.
    case memberJoined, memberLeft, memberExpired, partTaken, partGiven, partLost, partEpochTaken, registerCorrected,
        leaseLapsed, clusterLeft
    /// The clocks of this machine and of Redis differ by more than a second; fields: offsetMilliseconds.
    case clusterClockOff
    case clusterClockAgrees
    /// The register has an implausible gateway time, which is ignored; fields: detail.
    case clusterClockRefused
    /// A partition's log could not be opened; retried. Fields: part, error.
    case partNotOpened
    /// A link to another gateway is open (fields: node, version), broken (node, reason) or refused (peer, reason).
    case linkUp, linkDown, linkRefused
    /// News for other gateways was dropped because the queues of their links were full; fields: count.
    case linkNewsDropped
    /// An event of the store on Redis; fields: detail.
    case redisEvent

    /// The store is open; fields: path, replayedBytes.
    case storeOpened
    /// The end of the journal was incomplete and was truncated; fields: bytes, count (of whole segments), durability.
    case journalCut
    /// The store's content may be older than devices and consumers have seen, so their positions and cursors are invalid. Fields:
    /// reason (a `HistoryChange`, or `redis`), detail (the current history).
    case historyChanged
    /// A power failure left a partial record at the end of RocksDB's manifest, and the gateway removed it; fields: bytes.
    case tableListCut
    /// Writes are refused temporarily because a limit is reached; fields, only in a cluster: reason (which names the servers).
    case storeBusy
    /// The configured limits exceed the available descriptors; fields: limit, and the reduced devices, senders, http, admin.
    case fewDescriptors
    /// Rows could not move to the ordered store, or no segment could be preallocated; retried. Fields: error.
    case spillFailed
    /// Request ids or traces use 80 % of their budget; fields: name, bytes, limit, milliseconds (the oldest's age).
    case storeBudgetNear
    /// Request ids or traces were removed before a day had passed; fields: name, limit, count, milliseconds (their age).
    case storeBudgetCut
    /// A write or sync failed: the process ends.
    case storeFailed
    /// An event of the delivery core or the store, under its own name in `name`.
    case reported

    /// A credential of the admin listener sent a test message; fields: name, app.
    case operatorPush
    /// A backup was made by `POST /v1/backup`; fields: name (of the credential), path, bytes, count (of files), milliseconds.
    case backupMade
    /// A backup failed and its files were removed. Fields: name, path, error.
    case backupFailed

    /// The gateway closed a connection; fields: reason, code.
    case connectionClosed

    /// The hook's receiver failed; retried. Fields: status, error, attempt, retryInMilliseconds.
    case hookFailing
    case hookRecovered
    /// A batch for the hook, or the results of one, were given up; jobs that have not expired become due again.
    case hookGivenUp
    /// A feed's webhook failed; retried. Fields: name, status, error, attempt, retryInMilliseconds.
    case webhookFailing
    /// A feed's webhook answers again. Fields: name.
    case webhookRecovered

    /// Lines were dropped because they arrived faster than they could be written; fields: count.
    case logLinesLost
    /// Repeats of an event were suppressed; fields: name, count.
    case repeatsLeftOut
}

package enum LogKey: String, Sendable, CaseIterable {
    case address, admin, app, attempt, bytes, cid, code, configuration, count, credential, detail, devices, durability,
        error, exitCode,
        file, http, key, limit, listener, longestWaitMilliseconds, loop, loops, message, milliseconds, name, node,
        offsetMilliseconds, pace, part,
        path,
        peer, pid,
        reason,
        replayedBytes, retryInMilliseconds, senders, sentAway, signal, status, task, token, version, waited
}
