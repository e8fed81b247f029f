package import Quotas
package import Delivery
package import EventLoops
package import PushAPI

/// Every number of `limits` in the configuration, in force.
///
/// Names, ranges and defaults are in `LimitKey.all`; docs/use/Operations.md lists them, and a test holds the two together.
package struct GatewayLimits: Sendable {
    /// What the shards work with, less the heartbeat's range, whose ends are read one at a time.
    fileprivate(set) var shard = ShardLimits()
    package fileprivate(set) var heartbeatMinimumSeconds: Int64 = 30
    package fileprivate(set) var heartbeatMaximumSeconds: Int64 = 1_800

    /// Devices of the whole process; like the other limits of connections, no more than there are descriptors for.
    ///
    /// Each costs about a kilobyte here and nine in the kernel.
    package fileprivate(set) var connections = 100_000
    /// Trusted senders: the app's servers, some connections each.
    package fileprivate(set) var senderConnections = 1_024
    /// Devices that have not said Hello yet; a newcomer beyond it takes the place of the one that has waited longest.
    package fileprivate(set) var connectionsBeforeHello = 16_384
    package fileprivate(set) var helloTimeoutMilliseconds: Int64 = 5_000
    /// Work for devices that come, in one turn of a loop: what a message of another device may wait for behind it.
    package fileprivate(set) var welcomeSliceMicroseconds: Int64 = 1_000
    /// The longest that a device waits until it is taken up; a client gives up after ten seconds.
    package fileprivate(set) var welcomeWaitMilliseconds: Int64 = 2_000
    /// Welcomes of one device at once, and one in 15 s after that (`FlapDamping`); 0: no device is slowed.
    package fileprivate(set) var flappingConnects: Int64 = 20
    /// TLS handshakes under way in one loop, of senders and HTTP clients.
    package fileprivate(set) var tlsHandshakesAtOnce = 512
    /// Those that begin in one loop in a second: about a quarter of a slow core's.
    package fileprivate(set) var tlsHandshakesPerSecond = 1_000
    package fileprivate(set) var tlsHandshakeWaitMilliseconds: Int64 = 2_000
    /// A listener's certificate that ends sooner is warned of: time for people, where a machine should have renewed it.
    package fileprivate(set) var certificateWarningDays: Int64 = 14
    /// Body of one frame; holds the largest message (16 KiB) and its alert with room to spare.
    package fileprivate(set) var frameBytes = 64 << 10
    /// What waits for one slow reader; holds at least two of the largest frames and a full window.
    package fileprivate(set) var outboxBytes = 256 << 10
    /// Items in each loop's mailbox before others are told to come back later.
    package fileprivate(set) var mailboxItems = 65_536

    package fileprivate(set) var httpConnections = 10_000
    /// Of one address over all listeners but admin; 0: no bound.
    ///
    /// An address may be a whole office, or a carrier's many customers: a fifth of the gateway's devices.
    package fileprivate(set) var connectionsPerAddress = 20_000
    /// All of an office come back within some seconds of a power cut; a gateway welcomes some thousand a second in all.
    package fileprivate(set) var newConnectionsPerSecondPerAddress = 2_000
    /// A business server publishes from one address; two cores answer about twice as many requests.
    package fileprivate(set) var requestsPerSecondPerAddress = 10_000
    /// With its two seconds' worth at once, what `httpBodyBytesPerAddress` lets one address have under way.
    package fileprivate(set) var requestBytesPerSecondPerAddress = 64 << 20
    /// Sender services with their long polls, probes and people.
    package fileprivate(set) var adminConnections = 1_024
    /// Bodies of requests under way, of all listeners; one holds at least the largest body.
    package fileprivate(set) var httpBodyBytes = 256 << 20
    package fileprivate(set) var httpBodyBytesPerAddress = 128 << 20
    /// Other bytes that peers make the process hold: half frames, unread output, TLS handshakes, upstream messages.
    ///
    /// A quarter of it serves 4,096 handshakes of strangers at once.
    package fileprivate(set) var peerBytes = 512 << 20
    package fileprivate(set) var httpHeaderBytes = 64 << 10
    /// From a request's first byte to its last.
    package fileprivate(set) var httpRequestTimeoutSeconds: Int64 = 15
    /// Above the 60 s after which common clients drop an idle connection themselves.
    package fileprivate(set) var httpIdleTimeoutSeconds: Int64 = 75
    /// Sender services that wait in `lease` at once.
    package fileprivate(set) var longPolls = 256

    /// What one call about users may hold.
    package fileprivate(set) var users = UserLimits()
    /// Calls that give tags to many devices or take them away, and calls that ask for a device's tags; by app.
    package fileprivate(set) var tagChanges = RateBound(perMinute: 100, perDay: 10_000)
    package fileprivate(set) var tagQueries = RateBound(perMinute: 100, perDay: 10_000)

    /// What the journal may hold on disk before its contents move to the ordered store.
    package fileprivate(set) var journalBytes: Int64 = 512 << 20
    /// What may be encoded and not yet on disk, all loops together; beyond it publishes are refused as busy.
    package fileprivate(set) var uncommittedBytes = 64 << 20
    /// Messages older than this leave memory for the ordered store.
    package fileprivate(set) var spillAfterSeconds: Int64 = 60

    /// Disk for request ids, and for traces; past it the oldest go before their day is over.
    package fileprivate(set) var requestBytes: Int64 = 16 << 30
    package fileprivate(set) var traceBytes: Int64 = 4 << 30

    /// How long a stop says "not ready" while it goes on serving, so that a load balancer sends nothing more.
    package fileprivate(set) var drainSeconds: Int64 = 2
    /// The longest a clean stop waits for work under way, after that.
    package fileprivate(set) var stopTimeoutSeconds: Int64 = 10
    /// Devices are told to come back within this time after a clean stop, spread evenly.
    package fileprivate(set) var reconnectSpreadSeconds: Int64 = 30

    package init() {}

    /// The shards' part, complete.
    package var shardLimits: ShardLimits {
        var limits = shard
        // Checked by the configuration before it gets here; a range the wrong way round would trap.
        limits.heartbeatSeconds = heartbeatMinimumSeconds...max(heartbeatMinimumSeconds, heartbeatMaximumSeconds)
        // One number each in the file: the call and the device are held to the same.
        (limits.tagsPerDevice, limits.tagCharactersPerDevice) = (users.tagsPerDevice, users.tagTotalCharacters)
        (limits.tagCharacters, limits.aliasCharacters) = (users.tagCharacters, users.aliasCharacters)
        return limits
    }

    /// The bytes that peers may make the process hold, by use.
    package var peerRules: PeerBudget.Rules {
        PeerBudget.Rules(requests: httpBodyBytes, requestsOfNetwork: httpBodyBytesPerAddress, others: peerBytes)
    }

    /// What calls of a kind are held to; `nil` where nothing bounds them, or an app's own rates do.
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

/// One key of `limits`: its name, what is allowed, and whether a reload can change it.
package struct LimitKey: Sendable {
    package let name: String
    package let range: ClosedRange<Int64>
    /// False: the new value counts after a restart.
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
        key("aliasCharacters", \.users.aliasCharacters, 1...60),
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
        key("testDevices", \.users.testDevices, 1...10_000),
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
    /// What must hold between two limits; each entry names the keys and the rule.
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

    /// Rows and batches that would not fit the store; none for any value that `LimitKey.all` allows, as a test multiplies out.
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
