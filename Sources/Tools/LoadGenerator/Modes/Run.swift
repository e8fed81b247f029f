internal import Glibc
internal import Platform
internal import TextForms
internal import Wire

/// One run: plans and starts the workers, measures the gateway, and makes the report.
final class Run {
    let options: BenchOptions
    let credentials: Credentials
    let meter: ProcessMeter?
    private var progress: Progress
    private let devicesPath: String
    private let threads: Int
    private let hasOwnDescriptors: Bool
    private let runTag = Clocks.wallMilliseconds() & 0xFFFF
    private var workers: [WorkerThread] = []

    init(_ options: BenchOptions) throws {
        self.options = options
        credentials = try Credentials(options)
        if let process = options.processID {
            meter = try ProcessMeter(process)
        } else {
            let endpoint = options.mode == .http && !options.isConnected ? credentials.http : credentials.device
            meter = ServerFinder.find(dataFolder: options.dataFolder, endpoint)
        }
        progress = Progress(isQuiet: options.isQuiet)
        let isFolder = access(options.dataFolder, W_OK) == 0
        devicesPath =
            options.words.text("devices-file")
            ?? (isFolder ? options.dataFolder + "/bench-devices" : "longwire-bench-devices")
        let devices = options.mode == .idle ? options.connections : options.devices
        let held: Int
        switch options.mode {
        case .idle, .live, .offline, .storm: held = devices
        case .broadcast: held = devices + 1
        case .handoff: held = min(devices, options.handshakes) + options.connections
        case .http: held = options.connections + (options.isConnected ? devices : min(devices, options.handshakes))
        }
        (threads, hasOwnDescriptors) = try Self.threads(
            for: held, wish: options.requestedThreads, files: DescriptorTable.capacity)
    }

    private var deviceCount: Int {
        switch options.mode {
        case .idle: options.connections
        case .broadcast: options.registered
        case .live, .offline, .storm, .handoff, .http: options.devices
        }
    }

    func perform() throws -> Report {
        var devices = try registered()
        defer { progress.clear() }
        var report: Report
        let tally: WorkerTally
        switch options.mode {
        case .idle: (report, tally) = try idle(devices)
        case .live: (report, tally) = try live(devices)
        case .http: (report, tally) = try http(devices)
        case .offline: (report, tally) = try offline(devices)
        case .storm: (report, tally) = try storm(devices)
        case .broadcast: (report, tally) = try broadcast(devices)
        case .handoff: (report, tally) = try handoff(devices)
        }
        // Devices that the gateway no longer knew were registered anew.
        let found = tally.devices.filter { !$0.cid.isNone }
        if found.map(\.cid) != devices.map(\.cid) {
            devices = found
            try remember(devices)
        }
        report.gatewayProcess = meter?.processID
        return report
    }

    // MARK: Devices

    /// Returns the devices of the run: those of the file, and newly registered ones.
    private func registered() throws -> [DeviceIdentity] {
        var known = try DevicesFile.load(devicesPath, appID: credentials.appID)
        let missing = deviceCount - known.count
        guard missing > 0 else {
            spareDevices = Array(known[deviceCount...])
            return Array(known[..<deviceCount])
        }
        let blank = [DeviceIdentity](
            repeating: DeviceIdentity(cid: .none, secret: []), count: missing)
        var plan = plan(.register, 0, blank, 0, senders: 0, http: 0, admin: 0)
        // The timeout has a millisecond for each device: even a slow disk makes a thousand registrations a second durable.
        plan.options.timeout = max(plan.options.timeout, Int64(missing) * 1_000_000)
        let tally = try join(try start([plan]), "registering devices", of: missing)
        known += tally.devices.filter { !$0.cid.isNone }
        try remember(known)
        guard known.count == deviceCount else {
            let reason = tally.fatal ?? tally.failures.max { $0.value < $1.value }?.key ?? "no answer"
            throw CommandFailure.unreachable(
                "only \(tally.connected) of \(missing) devices could be registered: \(reason)")
        }
        return known
    }

    /// Devices of the file that this run does not use; they are kept when the file is rewritten.
    private var spareDevices: [DeviceIdentity] = []

    private func remember(_ devices: [DeviceIdentity]) throws {
        try DevicesFile.save(devices + spareDevices, to: devicesPath, appID: credentials.appID)
    }

    // MARK: Workers

    /// Splits the run into one plan per worker, each with its own devices, senders and share of the rate.
    func plans(_ job: WorkerPlan.Job, _ devices: [DeviceIdentity], senders: Int = 0, http: Int = 0, admin: Int = 0)
        -> [WorkerPlan]
    {
        let most = [devices.count, http > 0 ? http : Int.max, admin > 0 ? admin : Int.max].min() ?? 1
        let workers = max(1, min(threads, most))
        return (0..<workers).map { index in
            let range = devices.count * index / workers..<devices.count * (index + 1) / workers
            let share = { (total: Int) in
                total == 0 ? 0 : max(1, total * (index + 1) / workers - total * index / workers)
            }
            var plan = plan(
                job, index, Array(devices[range]), range.lowerBound, senders: share(senders), http: share(http),
                admin: share(admin))
            plan.inFlight = share(options.inFlight)
            plan.rate = options.rate.map { $0 / Double(workers) }
            plan.handshakes = share(options.handshakes)
            return plan
        }
    }

    private func plan(
        _ job: WorkerPlan.Job, _ index: Int, _ devices: [DeviceIdentity], _ first: Int, senders: Int, http: Int,
        admin: Int
    ) -> WorkerPlan {
        let nanoseconds = { (seconds: Double) in Int64(seconds * 1e9) }
        return WorkerPlan(
            job: job, index: index, hasOwnDescriptors: hasOwnDescriptors, credentials: credentials, devices: devices,
            firstDevice: first, senders: senders,
            httpConnections: http, adminConnections: admin, inFlight: options.inFlight, rate: options.rate,
            handshakes: options.handshakes,
            runTag: runTag, httpToken: "", tls: credentials.tls,
            options: WorkerPlan.RunTimes(
                timeout: nanoseconds(options.timeout), hold: nanoseconds(options.hold),
                warmup: nanoseconds(options.warmup), duration: nanoseconds(options.duration),
                drain: nanoseconds(options.drain), heartbeatSeconds: UInt32(options.heartbeat),
                payloadByteCount: options.payloadByteCount, messagesPerDevice: options.messages,
                pipeline: options.pipeline, batch: options.batch, leaseCount: options.leaseCount,
                connectsDevices: options.isConnected, speaksWebSocket: options.isWebSocket))
    }

    func start(_ plans: [WorkerPlan]) throws(CommandFailure) -> Coordinator {
        let coordinator = Coordinator(workers: plans.count)
        workers = plans.map { WorkerThread($0, coordinator) }
        do throws(SystemError) {
            for worker in workers { try worker.start() }
        } catch {
            coordinator.abort()
            for worker in workers { _ = worker.join() }
            throw CommandFailure.usage("\(error)")
        }
        return coordinator
    }

    /// Shows the phase until all workers have finished it, or one has ended early.
    func wait(
        _ phase: Coordinator.Phase, _ coordinator: Coordinator, _ text: String, _ counter: Coordinator.Counter,
        of total: Int
    ) {
        while !coordinator.isComplete(phase) {
            let done = coordinator.count(counter)
            progress.show(
                "\(text): \(Metric.grouped(Double(done))) of \(Metric.grouped(Double(total)))",
                fraction: Double(done) / Double(max(1, total)))
            Clocks.sleep(nanoseconds: 5_000_000)
        }
        // A worker that ended before the start could not connect. The run is aborted.
        if coordinator.hasFinished { coordinator.abort() }
    }

    /// Sleeps until `time` and shows the progress; returns early when a worker has ended.
    func watch(until time: Int64, from start: Int64, _ coordinator: Coordinator, _ text: String) {
        while !coordinator.hasFinished {
            let now = Clocks.now()
            guard now < time else { return }
            let counts = [Coordinator.Counter.accepted, .delivered].compactMap { counter in
                let count = coordinator.count(counter)
                return count == 0 ? nil : "\(Metric.grouped(Double(count))) \(counter)"
            }
            progress.show(
                ([text] + counts).joined(separator: ", "), fraction: Double(now - start) / Double(max(1, time - start)))
            Clocks.sleep(nanoseconds: min(time - now, 100_000_000))
        }
    }

    func join(
        _ coordinator: Coordinator, _ text: String, _ counter: Coordinator.Counter = .connected, of total: Int? = nil
    ) throws -> WorkerTally {
        while coordinator.count(.finished) < coordinator.workers {
            if let total {
                let done = coordinator.count(counter)
                progress.show(
                    "\(text): \(Metric.grouped(Double(done))) of \(Metric.grouped(Double(total)))",
                    fraction: Double(done) / Double(max(1, total)))
            } else {
                progress.show(text)
            }
            Clocks.sleep(nanoseconds: 5_000_000)
        }
        progress.clear()
        var sum = WorkerTally()
        for worker in workers { sum.merge(worker.join()) }
        workers = []
        if let fatal = sum.fatal { throw CommandFailure.unreachable(fatal) }
        return sum
    }

    /// Returns the number of threads for the connections: the requested number, or as few as possible.
    ///
    /// If one descriptor table of `files` entries is too small, each thread has its own table.
    ///
    /// - Throws: a usage failure when the requested or maximum number of threads is too small.
    static func threads(
        for connections: Int, wish: Int?, files: Int
    ) throws(CommandFailure) -> (count: Int, haveOwnDescriptors: Bool) {
        let most = max(1, files - Limits.spareDescriptorCount)
        let needed = (connections + most - 1) / most
        let chosen = wish ?? max(1, needed)
        guard chosen >= needed, chosen <= Limits.threadCount else {
            throw CommandFailure.usage(
                "\(connections) connections are too many for \(chosen) threads: each may open \(files) files here, so "
                    + "holds at most \(most) connections. Raise the hard limit (ulimit -Hn, LimitNOFILE=), or give "
                    + "--threads \(needed) (at most \(Limits.threadCount)).")
        }
        return (chosen, needed > 1)
    }
}
