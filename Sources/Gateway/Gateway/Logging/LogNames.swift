/// Every event the gateway logs; the raw value is what stands in the line.
///
/// docs/use/Operations.md says what to do.
package enum LogName: String, Sendable, CaseIterable {
    /// The gateway serves; fields: version, loops.
    case started
    /// A signal asked for a stop: `/readyz` says no and all goes on for a while; fields: milliseconds.
    case draining
    /// The stop has begun: nothing new is taken.
    case stopping
    /// The last line of a clean stop.
    case stopped
    /// A start waits for something that ends by itself, such as a Redis server that loads its data; logged when the reason
    /// changes, and every minute. Fields: reason, milliseconds (waited).
    case startWaits
    /// The gateway cannot start or go on; the process ends with `exitCode`.
    case fatal
    /// SIGHUP came because the terminal that the gateway was started from closed; a clean stop follows.
    case terminalClosed
    /// A listener is open; fields: listener, address.
    case listening
    /// A listener ran out of descriptors or its accept failed; fields: count, since the last such line.
    case acceptFailed
    /// Connections of balancers ended without a good PROXY header; fields: loop, count since the last line, reason of the last.
    case proxyHeaderRefused
    /// Network addresses were refused that have all they may have; fields: address (of the last one), detail (how many of which
    /// kind since the last line).
    case addressRefused
    /// A device connects and leaves over and over, and its next Hello is refused for a while; fields: cid, milliseconds.
    case deviceFlaps
    /// An app has used up a quota; fields: app, name (of the quota), count (of refusals since the last line).
    case quotaUsedUp
    /// An operator has the gateway empty itself of its devices; fields: name (of the credential), pace, devices.
    case drainBegan
    /// No device is connected any more.
    case drainEnded
    /// An operator lets devices come again; fields: name, devices.
    case drainUndone
    /// The gateway has lost Redis and the others have its parts: it disconnects its devices; fields: pace, devices.
    case cutOffDrainBegan
    /// The gateway has its lease again and takes devices; fields: devices.
    case cutOffDrainEnded
    /// More devices come than the loop can welcome at once: they wait, or are told when to come back; fields: loop, count
    /// (who wait), milliseconds (how long the next one would).
    case stormBegan
    /// None waits any more; fields: loop, waited, sentAway, milliseconds (how long it lasted), longestWaitMilliseconds.
    case stormEnded
    /// Something allowed in the configuration is unwise.
    case configurationWarning
    /// An operator purged a device's queue, had its jobs tried again or ended its session; fields: name, app, cid, detail, count.
    case operatorChange
    /// An app was created, changed or deleted through the admin API; fields: name (of the credential), app, detail.
    case appChanged
    /// The admin API made an app of an id that the configuration file has, too: the file's counts. Fields: app.
    case appShadowed
    /// The row of an app has what this release cannot read: it counts as far as it can be read. Fields: app, error.
    case appUnread
    /// A reload took effect; fields: configuration.
    case reloaded
    /// A reload was refused; the old configuration stays.
    case reloadRefused
    /// The certificate of a listener ends within limits.certificateWarningDays, or has ended; once a day. Fields: listener,
    /// milliseconds (left).
    case certificateEnds
    /// A client showed no certificate where one is asked for, or one that does not hold; fields: listener, address, reason.
    case clientCertificateRefused
    /// A TLS handshake failed otherwise; fields: listener, address, reason.
    case handshakeFailed
    /// A changed key counts only after a restart; fields: key.
    case restartNeeded

    /// An event loop stood still for ten seconds or more: the process or its machine was stopped. Fields: loop, milliseconds.
    case loopStoodStill
    /// The wall clock stands too far ahead and is not followed; fields: offsetMilliseconds.
    case clockStepRefused
    /// The wall clock and the gateway's time agree again.
    case clockAgrees
    /// The wall clock left the gateway's time by more than a second; it is being followed slowly.
    case clockDrifts
    case clockRaised
    /// This gateway is a member of its cluster; fields: name, node, count (of members), address.
    case clusterJoined
    /// The register in Redis did not answer, or refused; fields: error.
    case clusterRegisterFailed
    /// A stop ended before all parts were given away: the others take them over as after a crash.
    case clusterLeftEarly
    /// Fields of these: detail.
    case memberJoined, memberLeft, memberExpired, partTaken, partGiven, partLost, partEpochTaken, registerCorrected,
        leaseLapsed, clusterLeft
    /// This machine's clock and that of Redis differ by more than a second; fields: offsetMilliseconds.
    case clusterClockOff
    case clusterClockAgrees
    /// The register has a gateway time that cannot be right, and it is not followed; fields: detail.
    case clusterClockRefused
    /// A part's log could not be opened; tried again; fields: part, error.
    case partNotOpened
    /// Links to other gateways; fields: node, version; node, reason; peer, reason.
    case linkUp, linkDown, linkRefused
    /// Other gateways were not told something, since too much waited for their links; fields: count.
    case linkNewsDropped
    /// The store on Redis has something to say; fields: detail.
    case redisEvent

    /// The store is open; fields: path, replayedBytes.
    case storeOpened
    /// The end of the journal was missing in part and was cut off; fields: bytes, count (of whole segments), durability.
    case journalCut
    /// The store's content may be older than what devices and consumers have seen: their positions and cursors do not count.
    /// Fields: reason (a `HistoryChange`, or `redis`), detail (the history in force).
    case historyChanged
    /// A power failure tore the last record of RocksDB's list of tables, and it was cut off; fields: bytes.
    case tableListCut
    /// Writes are refused for now: a bound is reached; field of a cluster: reason, which names the servers.
    case storeBusy
    /// The limits allow more connections than the system gives descriptors for; fields: limit, and what is allowed instead of
    /// devices, senders, http, admin.
    case fewDescriptors
    /// Rows could not move to the ordered store, or no segment could be made ahead of time; repeated. Fields: error.
    case spillFailed
    /// Request ids or traces have used four fifths of their budget; fields: name, bytes, limit, milliseconds (the oldest's age).
    case storeBudgetNear
    /// Request ids or traces went before their day was over; fields: name, limit, count, milliseconds (how long they were kept).
    case storeBudgetCut
    /// A write or sync failed: the process ends.
    case storeFailed
    /// An event of the delivery core or the store, under its own name in `name`.
    case reported

    /// A credential of the admin listener sent a test message; fields: name, app.
    case operatorPush
    /// A backup was made by `POST /v1/backup`; fields: name (of the credential), path, bytes, count (of files), milliseconds.
    case backupMade
    /// A backup was not made; what there was of it is gone. Fields: name, path, error.
    case backupFailed

    /// A connection was closed by us; fields: reason, code.
    case connectionClosed

    /// The hook's receiver failed; retried. Fields: status, error, attempt, retryInMilliseconds.
    case hookFailing
    /// The hook's receiver answers again.
    case hookRecovered
    /// A batch for the hook was given up; its jobs' leases lapse and they come again.
    case hookGivenUp
    /// A feed's webhook failed; retried. Fields: name, status, error, attempt, retryInMilliseconds.
    case webhookFailing
    /// A feed's webhook answers again. Fields: name.
    case webhookRecovered

    /// Lines were lost because they came faster than they could be written; fields: count.
    case logLinesLost
    /// Repeats of one event were left out; fields: name, count.
    case repeatsLeftOut
}

/// Every field of a log line.
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
