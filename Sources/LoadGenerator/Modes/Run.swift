internal import Glibc
internal import Synchronization
internal import Wire

/// One run from the devices file to the report: plans the threads, watches them, measures the gateway beside them.
final class Run {
    let options: BenchOptions
    let credentials: Credentials
    let meter: ProcessMeter?
    private var progress: Progress
    private let devicesPath: String
    private let runTag = Clocks.wallMilliseconds() & 0xFFFF

    init(_ options: BenchOptions) throws {
        self.options = options
        credentials = try Credentials(options)
        meter = try options.processID.map { (id) throws(UsageError) in try ProcessMeter(id) }
        progress = Progress(isQuiet: options.isQuiet)
        let isFolder = access(options.dataFolder, W_OK) == 0
        devicesPath =
            options.devicesFile ?? (isFolder ? options.dataFolder + "/bench-devices" : "longwire-bench-devices")
        let needed = deviceCount + (options.mode == .http ? options.connections : 0)
        let isHolding = options.mode != .http || options.isConnected
        try FileLimit.allow(isHolding ? needed : min(needed, options.connections + options.handshakes))
    }

    private var deviceCount: Int { options.mode == .idle ? options.connections : options.devices }

    func perform() throws -> Report {
        var devices = try registered()
        defer { progress.clear() }
        let report: Report
        let tally: WorkerTally
        switch options.mode {
        case .idle: (report, tally) = try idle(devices)
        case .live: (report, tally) = try live(devices)
        case .http: (report, tally) = try http(devices)
        case .offline: (report, tally) = try offline(devices)
        }
        // Devices that the gateway had forgotten came back as new ones.
        let found = tally.devices.filter { !$0.cid.isNone }
        if found.map(\.cid) != devices.map(\.cid) {
            devices = found
            try remember(devices)
        }
        return report
    }

    // MARK: Devices

    /// As many devices as the run needs: those of the file, and new ones for the rest.
    private func registered() throws -> [DeviceIdentity] {
        var known = try DevicesFile.load(devicesPath, appID: credentials.appID)
        let missing = deviceCount - known.count
        guard missing > 0 else {
            spareDevices = Array(known[deviceCount...])
            return Array(known[..<deviceCount])
        }
        let blank = [DeviceIdentity](
            repeating: DeviceIdentity(cid: .none, secret: []), count: missing)
        let coordinator = Coordinator(threads: 1)
        let tally = try join(
            start([plan(.register, 0, blank, 0, senders: 0, http: 0)], coordinator), coordinator,
            "registering devices", of: missing)
        known += tally.devices.filter { !$0.cid.isNone }
        try remember(known)
        guard known.count == deviceCount else {
            let reason = tally.fatal ?? tally.failures.max { $0.value < $1.value }?.key ?? "no answer"
            throw UnavailableError("only \(tally.connected) of \(missing) devices could be registered: \(reason)")
        }
        return known
    }

    /// Devices of the file that this run does not use; kept when it is written again.
    private var spareDevices: [DeviceIdentity] = []

    private func remember(_ devices: [DeviceIdentity]) throws {
        try DevicesFile.save(devices + spareDevices, to: devicesPath, appID: credentials.appID)
    }

    // MARK: Threads

    /// Cuts the run into as many plans as there are threads; each has its own devices, senders and share of the rate.
    func plans(_ job: WorkerPlan.Job, _ devices: [DeviceIdentity], senders: Int, http: Int, token: String = "")
        -> [WorkerPlan]
    {
        let threads = max(1, min(options.threads, devices.count, http > 0 ? http : Int.max))
        return (0..<threads).map { index in
            let range = devices.count * index / threads..<devices.count * (index + 1) / threads
            let share = { (total: Int) in
                total == 0 ? 0 : max(1, total * (index + 1) / threads - total * index / threads)
            }
            var plan = plan(
                job, index, Array(devices[range]), range.lowerBound, senders: share(senders), http: share(http))
            plan.inFlight = share(options.inFlight)
            plan.rate = options.rate.map { $0 / Double(threads) }
            plan.handshakes = share(options.handshakes)
            plan.httpToken = token
            return plan
        }
    }

    private func plan(
        _ job: WorkerPlan.Job, _ index: Int, _ devices: [DeviceIdentity], _ first: Int, senders: Int, http: Int
    ) -> WorkerPlan {
        let nanoseconds = { (seconds: Double) in Int64(seconds * 1e9) }
        return WorkerPlan(
            job: job, index: index, credentials: credentials, devices: devices, firstDevice: first, senders: senders,
            httpConnections: http, inFlight: options.inFlight, rate: options.rate, handshakes: options.handshakes,
            runTag: runTag, httpToken: "",
            options: WorkerPlan.RunTimes(
                timeout: nanoseconds(options.timeout), hold: nanoseconds(options.hold),
                warmup: nanoseconds(options.warmup), duration: nanoseconds(options.duration),
                drain: nanoseconds(options.drain), heartbeatSeconds: UInt32(options.heartbeat),
                payloadByteCount: options.payloadByteCount, messagesPerDevice: options.messages,
                pipeline: options.pipeline, connectsDevices: options.isConnected))
    }

    func start(_ plans: [WorkerPlan], _ coordinator: Coordinator) throws -> [WorkerThread] {
        let threads = plans.map { WorkerThread($0, coordinator) }
        for thread in threads where !thread.start() {
            coordinator.abort()
            for thread in threads { _ = thread.join() }
            throw UsageError("the system has no thread to spare")
        }
        return threads
    }

    /// Shows the phase until all threads stand at its end (or one has ended early).
    func wait(_ phase: Coordinator.Phase, _ coordinator: Coordinator, _ text: String, of total: Int) {
        while !coordinator.isComplete(phase) {
            let done = coordinator.connected.load(ordering: .relaxed)
            progress.show("\(text): \(done) of \(total)", fraction: Double(done) / Double(max(1, total)))
            Clocks.sleep(nanoseconds: 5_000_000)
        }
        // A thread that has ended before the start could not connect: the others need not run alone.
        if coordinator.finishedThreads.load(ordering: .sequentiallyConsistent) > 0 { coordinator.abort() }
    }

    /// Sleeps until `time`, showing what has been done; ends early when a thread has.
    func watch(until time: Int64, from start: Int64, _ coordinator: Coordinator, _ text: String) {
        while coordinator.finishedThreads.load(ordering: .relaxed) == 0 {
            let now = Clocks.now()
            guard now < time else { return }
            let accepted = coordinator.accepted.load(ordering: .relaxed)
            let delivered = coordinator.delivered.load(ordering: .relaxed)
            let counts = accepted + delivered > 0 ? ": \(accepted) accepted, \(delivered) delivered" : ""
            progress.show(text + counts, fraction: Double(now - start) / Double(max(1, time - start)))
            Clocks.sleep(nanoseconds: min(time - now, 100_000_000))
        }
    }

    /// Waits for all threads and adds up their findings.
    func join(
        _ threads: [WorkerThread], _ coordinator: Coordinator, _ text: String, of total: Int? = nil
    ) throws -> WorkerTally {
        while coordinator.finishedThreads.load(ordering: .relaxed) < threads.count {
            if let total {
                let done = coordinator.connected.load(ordering: .relaxed)
                progress.show("\(text): \(done) of \(total)", fraction: Double(done) / Double(max(1, total)))
            } else {
                progress.show(text)
            }
            Clocks.sleep(nanoseconds: 20_000_000)
        }
        progress.clear()
        var sum = WorkerTally()
        for thread in threads { sum.merge(thread.join()) }
        if let fatal = sum.fatal { throw UnavailableError(fatal) }
        return sum
    }
}

/// How many files this process may have open.
enum FileLimit {
    /// Raises the soft limit to the hard one.
    ///
    /// - Throws: `UsageError` when that is too low for `connections`; nothing is opened then.
    static func allow(_ connections: Int) throws(UsageError) {
        var limit = rlimit()
        let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        guard getrlimit(resource, &limit) == 0 else { return }
        if limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max
            _ = setrlimit(resource, &limit)
        }
        let most = Int(clamping: limit.rlim_cur) - Limits.spareDescriptorCount
        guard connections <= most else {
            throw UsageError(
                "\(connections) connections are too many for one process here: it may open \(limit.rlim_cur) files, so at "
                    + "most \(most) connections. Raise the hard limit (ulimit -Hn, LimitNOFILE=), or run several "
                    + "processes, each with a --devices-file of its own.")
        }
    }
}
