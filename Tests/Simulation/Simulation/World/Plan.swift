internal import Delivery
internal import Wire

/// The parameters of one run, drawn from its seed: the number of participants, the limits and the fault rates.
struct Plan {
    var limits = ShardLimits()
    var apps: [AppSettings] = []
    var deviceCount = 4
    var loopCount = 1
    var outboxLimit = 64 << 10
    /// Upper bounds in milliseconds.
    var latency: Int64 = 40
    var syncTime: Int64 = 8
    var readTime: Int64 = 12
    var operationGap: Int64 = 60
    /// Per mille.
    var lossShare = 0
    var splitShare = 0
    var duplicateShare = 0
    var reorderShare = 0
    var delayShare = 0
    var handlerTrouble = 0
    var clientStoreTrouble = 0
    var readTrouble = 0
    var readStall = 0
    var syncStall = 0
    /// The weight of each kind of operation; see `World.operation`.
    var crashWeight = 2
    var networkWeight = 20
    var clientWeight = 60
    var publishWeight = 100
    var coolWeight = 20
    var maximumTimeToLive: Int64 = 7_200_000
    var lyingDevices = 0
    var collapses = true
    var vendorTrouble = 100
    var senderCount = 2
    /// The channels of the devices' tokens; seeds from `severalVendorsSeed` on have several.
    var channels: [VendorChannel] = [.apns]
    static let severalVendorsSeed: UInt64 = 900_000_000
    /// Whether some messages have a follow-up; those of seeds from `followUpSeed` on.
    var hasFollowUps = false
    static let followUpSeed: UInt64 = 950_000_000
    /// The channels that senders lease.
    var leasedChannels: [VendorChannel] { hasFollowUps ? channels + [.sms] : channels }
    /// The longest pause between two leases of a sender service, in milliseconds.
    var senderGap: Int64 = 3_000

    /// Whether the second app has no sender service until the faults end.
    var lacksSender: Bool { senderCount == 1 }

    init(_ chance: inout Chance) {
        deviceCount = chance.between(2, 9)
        loopCount = chance.between(1, 4)
        lyingDevices = chance.perMille(500) ? chance.between(1, 2) : 0
        senderCount = chance.between(1, 3)
        outboxLimit = chance.one(of: [2 << 10, 8 << 10, 64 << 10, 256 << 10])
        latency = Int64(chance.one(of: [1, 20, 80, 400]))
        syncTime = Int64(chance.one(of: [1, 4, 30]))
        readTime = Int64(chance.one(of: [1, 10, 80]))
        operationGap = Int64(chance.one(of: [5, 40, 200, 1_500]))
        let weather = chance.below(3)
        lossShare = weather == 0 ? 0 : chance.one(of: [2, 10, 40])
        splitShare = chance.one(of: [0, 100, 400])
        duplicateShare = weather == 0 ? 0 : chance.one(of: [0, 10, 60])
        reorderShare = weather == 0 ? 0 : chance.one(of: [0, 20, 150])
        delayShare = weather == 0 ? 0 : chance.one(of: [5, 30, 100])
        handlerTrouble = chance.one(of: [0, 10, 60])
        clientStoreTrouble = chance.one(of: [0, 0, 10])
        readTrouble = chance.one(of: [0, 10, 60])
        readStall = chance.one(of: [0, 20, 80])
        syncStall = chance.one(of: [0, 5, 20])
        crashWeight = chance.one(of: [0, 1, 3, 8])
        networkWeight = chance.one(of: [0, 8, 20, 50])
        clientWeight = chance.one(of: [20, 60, 120])
        publishWeight = chance.one(of: [60, 150, 300])
        coolWeight = chance.one(of: [0, 8, 30, 80])
        maximumTimeToLive = Int64(chance.one(of: [20_000, 120_000, 7_200_000]))
        collapses = chance.perMille(700)
        vendorTrouble = chance.one(of: [0, 100, 400])
        senderGap = Int64(chance.one(of: [3_000, 3_000, 30_000]))

        limits.window = chance.one(of: [1, 2, 5, 32])
        limits.windowByteCount = chance.one(of: [700, 2_000, 64 << 10])
        limits.sequenceBlock = UInt64(chance.one(of: [1, 3, 16, 1_024]))
        limits.cachedDeviceCount = chance.one(of: [1, 3, 200_000])
        limits.dueJobReadAhead = chance.one(of: [1, 4, 32, 65_536])
        limits.alarmBatch = chance.one(of: [1, 3, 256])
        limits.waitingPerDevice = chance.one(of: [2, 8, 64])
        limits.tagWalks = 64
        limits.waitingInAll = chance.one(of: [8, 64, 16_384])
        for index in 0..<2 {
            var app = AppSettings(
                key: AppKey(UInt64(0xA000 + index)), appID: "app\(index)", apnsTopic: "com.example.app\(index)")
            app.queuedMessageLimit = chance.one(of: [3, 12, 60, 1_000])
            app.queuedByteLimit = chance.one(of: [4_000, 40_000, 4 << 20])
            app.overflowPolicy = chance.perMille(500) ? .dropOldest : .reject
            app.maxAttempts = chance.between(1, 5)
            apps.append(app)
        }
    }
}
