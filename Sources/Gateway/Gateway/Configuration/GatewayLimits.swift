package import Quotas
package import Delivery
package import EventLoops
package import PushAPI

/// The values of `limits` in the configuration.
///
/// `LimitKey.all` has names, ranges and defaults; docs/use/Operations.md lists them, and a test compares the two.
package struct GatewayLimits: Sendable {
    /// The shards' limits, except for the heartbeat range, which is read as two keys.
    fileprivate(set) var shard = ShardLimits()
    package fileprivate(set) var heartbeatMinimumSeconds: Int64 = 30
    package fileprivate(set) var heartbeatMaximumSeconds: Int64 = 1_800

    /// The most device connections, reduced to the available descriptors; each takes about 1 kB here and 9 kB in the kernel.
    package fileprivate(set) var connections = 100_000
    /// The most connections of trusted senders; an app server uses a few.
    package fileprivate(set) var senderConnections = 1_024
    /// The maximum number of devices that have not sent a Hello.
    ///
    /// Above the limit a new connection replaces the one that has waited longest.
    package fileprivate(set) var connectionsBeforeHello = 16_384
    package fileprivate(set) var helloTimeoutMilliseconds: Int64 = 5_000
    /// The time that one turn of a loop spends on accepting devices; messages of other devices wait that long.
    package fileprivate(set) var welcomeSliceMicroseconds: Int64 = 1_000
    /// The longest queueing time of a connecting device; clients time out after ten seconds.
    package fileprivate(set) var welcomeWaitMilliseconds: Int64 = 2_000
    /// The burst of reconnects of a device, after which it may reconnect once per 15 s (`FlapDamping`); 0 to disable.
    package fileprivate(set) var flappingConnects: Int64 = 20
    /// The concurrent TLS handshakes of senders and HTTP clients in one loop.
    package fileprivate(set) var tlsHandshakesAtOnce = 512
    /// The TLS handshakes started per second in one loop: about a quarter of a slow core's capacity.
    package fileprivate(set) var tlsHandshakesPerSecond = 1_000
    package fileprivate(set) var tlsHandshakeWaitMilliseconds: Int64 = 2_000
    /// The remaining validity below which a listener's certificate is logged, for certificates without automatic renewal.
    package fileprivate(set) var certificateWarningDays: Int64 = 14
    /// The maximum size of a frame's body, which must hold the largest message (16 KiB) and its alert.
    package fileprivate(set) var frameBytes = 64 << 10
    /// The most unsent bytes of one slow reader; at least two of the largest frames, and at least a full window plus one such
    /// frame.
    package fileprivate(set) var outboxBytes = 256 << 10
    /// The capacity of each loop's mailbox; further items are refused as busy.
    package fileprivate(set) var mailboxItems = 65_536

    package fileprivate(set) var httpConnections = 10_000
    /// The connections per address on all listeners except admin, enough for an office or a carrier's NAT; 0 for no limit.
    package fileprivate(set) var connectionsPerAddress = 20_000
    /// The new connections per second and address, enough for an office that reconnects within seconds after a power failure.
    package fileprivate(set) var newConnectionsPerSecondPerAddress = 2_000
    /// The requests per second and address, for a business server with one address; two cores answer about twice this number.
    package fileprivate(set) var requestsPerSecondPerAddress = 10_000
    /// The bytes of requests per second and address; a burst of two seconds equals `httpBodyBytesPerAddress`.
    package fileprivate(set) var requestBytesPerSecondPerAddress = 64 << 20
    /// The most connections on the admin listener: sender services with long polls, probes and operators.
    package fileprivate(set) var adminConnections = 1_024
    /// The most bytes of bodies of requests in progress on all listeners; at least the largest body.
    package fileprivate(set) var httpBodyBytes = 256 << 20
    package fileprivate(set) var httpBodyBytesPerAddress = 128 << 20
    /// The most bytes buffered for peers besides these bodies: partial frames, unread output, TLS handshakes, upstream messages.
    ///
    /// A quarter of the limit suffices for 4,096 concurrent handshakes of unknown peers.
    package fileprivate(set) var peerBytes = 512 << 20
    package fileprivate(set) var httpHeaderBytes = 64 << 10
    /// The timeout from a request's first byte to its last.
    package fileprivate(set) var httpRequestTimeoutSeconds: Int64 = 15
    /// The idle timeout, longer than the 60 s after which common clients close an idle connection themselves.
    package fileprivate(set) var httpIdleTimeoutSeconds: Int64 = 75
    /// The concurrent long polls of sender services in `lease`.
    package fileprivate(set) var longPolls = 256

    package fileprivate(set) var users = UserLimits()
    /// The rates per app: of calls that change the tags of many devices, and of calls that query a device's tags.
    package fileprivate(set) var tagChanges = RateBound(perMinute: 100, perDay: 10_000)
    package fileprivate(set) var tagQueries = RateBound(perMinute: 100, perDay: 10_000)

    /// The journal's size on disk at which its contents move to the ordered store.
    package fileprivate(set) var journalBytes: Int64 = 512 << 20
    /// The most encoded bytes of all loops that are not on disk yet; above this limit, publishes are refused as busy.
    package fileprivate(set) var uncommittedBytes = 64 << 20
    /// The age at which messages move from memory to the ordered store.
    package fileprivate(set) var spillAfterSeconds: Int64 = 60

    /// The disk space for request ids, and for traces; above the limit, the oldest are removed before their day has passed.
    package fileprivate(set) var requestBytes: Int64 = 16 << 30
    package fileprivate(set) var traceBytes: Int64 = 4 << 30

    /// The time during which a stopping gateway reports "not ready" but still serves, for load balancers to notice.
    package fileprivate(set) var drainSeconds: Int64 = 2
    /// The longest wait of a clean stop for work in progress, after `drainSeconds`.
    package fileprivate(set) var stopTimeoutSeconds: Int64 = 10
    /// The time over which devices spread their reconnects after a clean stop.
    package fileprivate(set) var reconnectSpreadSeconds: Int64 = 30

    package init() {}

    package var shardLimits: ShardLimits {
        var limits = shard
        // The configuration has validated the range already; `max` only avoids a trap.
        limits.heartbeatSeconds = heartbeatMinimumSeconds...max(heartbeatMinimumSeconds, heartbeatMaximumSeconds)
        // Each of these keys of the file limits both a call (`users`) and a device (`ShardLimits`).
        (limits.tagsPerDevice, limits.tagCharactersPerDevice) = (users.tagsPerDevice, users.tagTotalCharacters)
        (limits.tagCharacters, limits.aliasCharacters) = (users.tagCharacters, users.aliasCharacters)
        return limits
    }

    package var peerRules: PeerBudget.Rules {
        PeerBudget.Rules(requests: httpBodyBytes, requestsOfNetwork: httpBodyBytesPerAddress, others: peerBytes)
    }

    /// Returns the rate for calls of a kind, or `nil` if unlimited or limited by the app's own rates.
    package func bound(of kind: RateKind) -> RateBound? {
        let bound: RateBound
        switch kind {
        case .tagChange: bound = tagChanges
        case .tagQuery: bound = tagQueries
        default: return nil
        }
        return bound.perMinute > 0 || bound.perDay > 0 ? bound : nil
    }
}

/// A key of `limits`: its name, range, and whether a reload can change it.
package struct LimitKey: Sendable {
    package let name: String
    package let range: ClosedRange<Int64>
    /// Whether a reload applies a new value; otherwise it needs a restart.
    package let changesAtReload: Bool
    package let read: @Sendable (GatewayLimits) -> Int64
    let write: @Sendable (inout GatewayLimits, Int64) -> Void

    private static func key<Number: FixedWidthInteger & Sendable>(
        _ name: String, _ path: any WritableKeyPath<GatewayLimits, Number> & Sendable, _ range: ClosedRange<Int64>,
        scale: Int64 = 1, restart: Bool = false
    ) -> LimitKey {
        LimitKey(
            name: name, range: range, changesAtReload: !restart,
            read: { Int64($0[keyPath: path]) / scale }, write: { $0[keyPath: path] = Number($1 * scale) })
    }

    package static let all: [LimitKey] = [
        // Sessions and delivery.
        key("windowMessages", \.shard.window, 1...1_024),
        key("windowBytes", \.shard.windowByteCount, 1_024...(16 << 20)),
        key("liveDeadlineMilliseconds", \.shard.liveDeadline, 100...600_000),
        key("backgroundLiveDeadlineMilliseconds", \.shard.backgroundLiveDeadline, 100...600_000),
        key("unannouncedCloseDelayMilliseconds", \.shard.unannouncedCloseDelay, 0...60_000),
        key("suspectSilenceMilliseconds", \.shard.suspectSilence, 100...600_000),
        key("clockToleranceMilliseconds", \.shard.clockTolerance, 1_000...3_600_000),
        key("heartbeatMinimumSeconds", \.heartbeatMinimumSeconds, 1...86_400),
        key("heartbeatMaximumSeconds", \.heartbeatMaximumSeconds, 1...86_400),
        key("heartbeatDefaultSeconds", \.shard.defaultHeartbeatSeconds, 1...86_400),
        key("sequenceBlock", \.shard.sequenceBlock, 1...1_000_000),
        key("vendorFirstPatienceMilliseconds", \.shard.vendorFirstPatience, 100...3_600_000),
        key("taskPatienceMilliseconds", \.shard.taskPatience, 500...3_600_000),
        key("noStorageLeasableMilliseconds", \.shard.noStorageLeasable, 1_000...3_600_000),
        key("waitingCommandsPerDevice", \.shard.waitingPerDevice, 1...65_536),
        key("waitingCommands", \.shard.waitingInAll, 1...10_000_000),
        key("dueJobReadAhead", \.shard.dueJobReadAhead, 1...10_000_000),
        key("cachedDevices", \.shard.cachedDeviceCount, 100...50_000_000),
        key("sessionlessDeviceLifetimeSeconds", \.shard.sessionlessDeviceLifetime, 60...31_536_000, scale: 1_000),
        key("inactiveDeviceDays", \.shard.inactiveDeviceLifetime, 1...36_500, scale: 86_400_000),
        // Users.
        key("aliasItems", \.users.aliasItems, 1...10_000),
        key("aliasCharacters", \.users.aliasCharacters, 1...Int64(PushAPI.Limits.aliasCharacterCount)),
        key("devicesPerAlias", \.shard.devicesPerAlias, 1...200),
        key("tagsPerDevice", \.users.tagsPerDevice, 1...200),
        key("tagCharacters", \.users.tagCharacters, 1...60),
        key("tagTotalCharacters", \.users.tagTotalCharacters, 1...2_000),
        key("tagDevices", \.users.tagDevices, 1...10_000),
        key("blacklistDevices", \.users.blacklistDevices, 1...10_000),
        key("badgeDevices", \.users.badgeDevices, 1...10_000),
        key("statusDevices", \.users.statusDevices, 1...10_000),
        key("detailDevices", \.users.detailDevices, 1...10_000),
        key("deviceStatusDevices", \.users.deviceStatusDevices, 1...10_000),
        key("testDevices", \.users.testDevices, 1...Int64(PushAPI.Limits.testDeviceCount)),
        key("tagReplacementsPerDay", \.shard.tagReplacementsPerDay, 0...60_000),
        key("tagChangesPerMinute", \.tagChanges.perMinute, 0...10_000_000),
        key("tagChangesPerDay", \.tagChanges.perDay, 0...1_000_000_000),
        key("tagQueriesPerMinute", \.tagQueries.perMinute, 0...10_000_000),
        key("tagQueriesPerDay", \.tagQueries.perDay, 0...1_000_000_000),
        key("tagWalks", \.shard.tagWalks, 1...1_000),
        // Connections.
        key("connections", \.connections, 1...10_000_000),
        key("senderConnections", \.senderConnections, 1...1_000_000),
        key("connectionsBeforeHello", \.connectionsBeforeHello, 1...10_000_000),
        key("helloTimeoutMilliseconds", \.helloTimeoutMilliseconds, 100...600_000),
        key("welcomeSliceMicroseconds", \.welcomeSliceMicroseconds, 100...100_000),
        key("welcomeWaitMilliseconds", \.welcomeWaitMilliseconds, 0...8_000),
        key("flappingConnects", \.flappingConnects, 0...10_000),
        key("tlsHandshakesAtOnce", \.tlsHandshakesAtOnce, 1...100_000),
        key("tlsHandshakesPerSecond", \.tlsHandshakesPerSecond, 1...100_000),
        key("tlsHandshakeWaitMilliseconds", \.tlsHandshakeWaitMilliseconds, 100...8_000),
        key("certificateWarningDays", \.certificateWarningDays, 1...365),
        key("frameBytes", \.frameBytes, 32_768...131_072, restart: true),
        key("outboxBytes", \.outboxBytes, 65_536...(1 << 30), restart: true),
        key("mailboxItems", \.mailboxItems, 64...100_000_000, restart: true),
        key("httpConnections", \.httpConnections, 1...1_000_000, restart: true),
        key("adminConnections", \.adminConnections, 1...1_000_000, restart: true),
        key("httpBodyBytes", \.httpBodyBytes, Int64(PushAPI.Limits.requestBodyByteCount)...(1 << 40), restart: true),
        key(
            "httpBodyBytesPerAddress", \.httpBodyBytesPerAddress,
            Int64(PushAPI.Limits.requestBodyByteCount)...(1 << 40), restart: true),
        key("peerBytes", \.peerBytes, (16 << 20)...(1 << 40), restart: true),
        key("httpHeaderBytes", \.httpHeaderBytes, 1_024...(1 << 20), restart: true),
        key("httpRequestTimeoutSeconds", \.httpRequestTimeoutSeconds, 1...600, restart: true),
        key("httpIdleTimeoutSeconds", \.httpIdleTimeoutSeconds, 1...86_400, restart: true),
        key("connectionsPerAddress", \.connectionsPerAddress, 0...10_000_000),
        key("newConnectionsPerSecondPerAddress", \.newConnectionsPerSecondPerAddress, 0...1_000_000),
        key("requestsPerSecondPerAddress", \.requestsPerSecondPerAddress, 0...1_000_000),
        key("requestBytesPerSecondPerAddress", \.requestBytesPerSecondPerAddress, 0...(1 << 40)),
        key("longPolls", \.longPolls, 1...100_000),
        // Store.
        key("journalBytes", \.journalBytes, (16 << 20)...(1 << 40), restart: true),
        key("uncommittedBytes", \.uncommittedBytes, (1 << 20)...(1 << 32), restart: true),
        key("spillAfterSeconds", \.spillAfterSeconds, 1...86_400, restart: true),
        key("requestBytes", \.requestBytes, (64 << 20)...(1 << 50), restart: true),
        key("traceBytes", \.traceBytes, (64 << 20)...(1 << 50), restart: true),
        // Stop.
        key("drainSeconds", \.drainSeconds, 0...600),
        key("stopTimeoutSeconds", \.stopTimeoutSeconds, 1...600),
        key("reconnectSpreadSeconds", \.reconnectSpreadSeconds, 1...3_600),
    ]
}

extension GatewayLimits: Equatable {
    package static func == (left: GatewayLimits, right: GatewayLimits) -> Bool {
        LimitKey.all.allSatisfy { $0.read(left) == $0.read(right) }
    }
}

extension GatewayLimits {
    /// Returns the violated relations between limits, each with its key and rule.
    package func brokenRelations() -> [(key: String, rule: String)] {
        var broken: [(String, String)] = []
        if heartbeatMinimumSeconds > heartbeatMaximumSeconds {
            broken.append(
                (
                    "heartbeatMinimumSeconds",
                    "\(heartbeatMinimumSeconds) exceeds heartbeatMaximumSeconds, which is \(heartbeatMaximumSeconds)"
                ))
        } else if !(heartbeatMinimumSeconds...heartbeatMaximumSeconds).contains(shard.defaultHeartbeatSeconds) {
            broken.append(
                (
                    "heartbeatDefaultSeconds",
                    "\(shard.defaultHeartbeatSeconds) lies outside heartbeatMinimumSeconds–heartbeatMaximumSeconds, "
                        + "which are \(heartbeatMinimumSeconds)–\(heartbeatMaximumSeconds)"
                ))
        }
        if outboxBytes < 2 * frameBytes {
            broken.append(
                ("outboxBytes", "\(outboxBytes) is less than twice frameBytes, which is \(frameBytes)"))
        }
        if shard.windowByteCount + frameBytes > outboxBytes {
            broken.append(
                (
                    "windowBytes",
                    "\(shard.windowByteCount) with frameBytes, which is \(frameBytes), exceeds outboxBytes, which is "
                        + "\(outboxBytes): a device with a full window would be closed as a slow reader"
                ))
        }
        if shard.waitingPerDevice > shard.waitingInAll {
            broken.append(
                (
                    "waitingCommandsPerDevice",
                    "\(shard.waitingPerDevice) exceeds waitingCommands, which is \(shard.waitingInAll)"
                ))
        }
        return broken + brokenStoreBounds()
    }

    /// Returns rows and batches that exceed the store's bounds; a test verifies that allowed values cause none.
    private func brokenStoreBounds() -> [(key: String, rule: String)] {
        var broken: [(String, String)] = []
        for table in StoreKey.Table.allCases {
            guard let byteCount = RowBounds.byteCount(of: table, shardLimits), byteCount > StoreBounds.valueByteCount
            else { continue }
            broken.append(
                (
                    "limits",
                    "a row of the table \(table) may have \(byteCount) bytes, at most \(StoreBounds.valueByteCount)"
                ))
        }
        let batch = RowBounds.largestBatch(shardLimits)
        if batch.operations > StoreBounds.operationCount || batch.byteCount > StoreBounds.smallestBatchByteCount {
            broken.append(
                (
                    "limits",
                    "a batch may have \(batch.operations) operations and \(batch.byteCount) bytes, at most "
                        + "\(StoreBounds.operationCount) and \(StoreBounds.smallestBatchByteCount)"
                ))
        }
        return broken
    }
}
