package import Cluster

/// Events of gateways and the register.
extension ClusterWorld {
    /// Starts a process, which joins under a new number.
    package func start(_ index: Int) {
        guard !gateways[index].isRunning else { return }
        let info = gateways[index].info
        let process = gateways[index].process + 1
        gateways[index] = Gateway()
        gateways[index].info = info
        gateways[index].process = process
        gateways[index].isRunning = true
        gateways[index].instance = UInt64(index) << 32 | UInt64(process)
        startCalling(index, [.join])
    }

    /// Kills the process as SIGKILL does: its host refuses connections at once.
    package func kill(_ index: Int) {
        guard gateways[index].isRunning else { return }
        end(index)
        guard let node = gateways[index].membership?.node else { return }
        for peer in gateways.indices where peer != index && gateways[peer].isRunning && !gateways[peer].isCutOff {
            let delay = draw(settings.linkBreak)
            report(peer, .linkDown(node), after: delay)
            report(peer, .linkRefused(node), after: delay + draw(0...20))
        }
    }

    /// Cuts the power or the cable: no host answers for the gateway.
    package func killHost(_ index: Int) { end(index) }

    func end(_ index: Int) {
        gateways[index].isRunning = false
        gateways[index].hasLeft = true
        gateways[index].open.removeAll()
        let parts = Array(gateways[index].devices.keys).sorted()
        for part in parts { leaveDevices(index, part, attempt: 0) }
        for waiting in gateways[index].waiting { retry(waiting.part, waiting.count, waiting.attempt) }
        gateways[index].waiting.removeAll()
    }

    package func pause(_ index: Int) { gateways[index].isPaused = true }

    package func unpause(_ index: Int) {
        gateways[index].isPaused = false
        for part in logs.indices { tellLost(index, part) }
    }

    /// Cuts the gateway off from the register, the logs and its peers; its devices stay connected.
    package func cut(_ index: Int) {
        guard gateways[index].isRunning else { return }
        gateways[index].isCutOff = true
        for peer in gateways.indices where peer != index {
            if let node = gateways[index].membership?.node { report(peer, .linkDown(node), after: 100) }
            if let node = gateways[peer].membership?.node { report(index, .linkDown(node), after: 100) }
        }
    }

    package func heal(_ index: Int) {
        gateways[index].isCutOff = false
        for part in logs.indices { tellLost(index, part) }
        for peer in gateways.indices where peer != index && gateways[peer].isRunning {
            if let node = gateways[index].membership?.node { report(peer, .linkUp(node), after: 50) }
            if let node = gateways[peer].membership?.node { report(index, .linkUp(node), after: 50) }
        }
    }

    /// Blocks the links between two running gateways, as a firewall does.
    package func refuseLinks(_ first: Int, _ second: Int) {
        for (index, peer) in [(first, second), (second, first)] {
            if let node = gateways[peer].membership?.node, gateways[index].isRunning {
                report(index, .linkDown(node), after: 1)
                report(index, .linkRefused(node), after: 2)
            }
        }
    }

    package func allowLinks(_ first: Int, _ second: Int) {
        for (index, peer) in [(first, second), (second, first)] {
            if let node = gateways[peer].membership?.node, gateways[index].isRunning {
                report(index, .linkUp(node), after: 1)
            }
        }
    }

    /// Stops a gateway as planned: it hands over all partitions first.
    package func leave(_ index: Int) {
        guard gateways[index].isRunning else { return }
        report(index, .leave, after: 0)
    }

    package func wish(_ wish: RegisterRequest) {
        nonce += 1
        try? register.wish(wish, now: now, nonce: nonce)
    }

    /// Stops the register's primary; with `losesChange` its replica lacks the last change.
    package func failRegister(for milliseconds: Int64, losesChange: Bool) {
        isRegisterUp = false
        if losesChange { register = earlierRegister }
        at(now + milliseconds) { self.isRegisterUp = true }
    }

    // MARK: Devices

    /// Spreads the devices over the partitions, connected to their owners.
    package func connectAllDevices() {
        for index in gateways.indices where gateways[index].isRunning {
            for part in gateways[index].open.keys where gateways[index].open[part] == logs[part] {
                gateways[index].devices[part] = devices(of: part)
            }
        }
    }

    package func devices(of part: Int) -> Int {
        settings.deviceCount / settings.partCount + (part < settings.deviceCount % settings.partCount ? 1 : 0)
    }

    /// The number of devices connected to a gateway that holds the partition's latest epoch.
    package var servedCount: Int {
        var sum = 0
        for gateway in gateways {
            for (part, count) in gateway.devices where gateway.open[part] == logs[part] { sum += count }
        }
        return sum
    }

    func leaveDevices(_ index: Int, _ part: Int, attempt: Int) {
        guard let count = gateways[index].devices.removeValue(forKey: part), count > 0 else { return }
        retry(part, count, attempt)
    }

    /// Full jitter as in the client: the ceiling is one second, doubled with each failure.
    func retry(_ part: Int, _ count: Int, _ attempt: Int) {
        let ceiling = min(120_000, 1_000 << min(attempt, 16))
        let steps = min(count, ceiling / 10)
        var rest = count
        for step in 0..<steps {
            let share = rest / (steps - step)
            rest -= share
            // 2 ms of network latency, through a load balancer that chooses any gateway.
            let delay = draw(Int64(step * ceiling / steps)...Int64((step + 1) * ceiling / steps))
            add(.devices(part: part, count: share, attempt: attempt), after: 2 + delay)
        }
    }

    /// Refuses devices of a partition without an owner.
    ///
    /// The Close names a retry window; the client honors it if it is at least a second.
    func refuse(_ part: Int, _ count: Int, _ attempt: Int) {
        tally.refusedAttempts += count
        guard let window = settings.refusedWindow else { return retry(part, count, attempt + 1) }
        for _ in 0..<count { add(.devices(part: part, count: 1, attempt: attempt), after: 2 + draw(window)) }
    }

    func arrive(_ part: Int, _ count: Int, _ attempt: Int) {
        let owner = gateways.indices.first {
            gateways[$0].isRunning && !gateways[$0].isPaused && !gateways[$0].isCutOff
                && gateways[$0].open[part] == logs[part]
        }
        guard let owner else { return refuse(part, count, attempt) }
        gateways[owner].waiting.append((part, count, attempt))
        if gateways[owner].waiting.count == 1 { add(.admit(gateway: owner), after: 0) }
    }

    /// Admits at most the number of devices that a gateway's two cores can take in a tick.
    func admit(_ index: Int) {
        guard gateways[index].isRunning else { return }
        var room = settings.acceptsPerTick
        while room > 0, !gateways[index].waiting.isEmpty {
            let next = gateways[index].waiting[0]
            let count = min(room, next.count)
            room -= count
            if gateways[index].open[next.part] == logs[next.part] {
                gateways[index].devices[next.part, default: 0] += count
                tally.reconnected += count
                tally.lastServed = now
            } else {
                refuse(next.part, count, next.attempt)
            }
            if count == next.count {
                gateways[index].waiting.removeFirst()
            } else {
                gateways[index].waiting[0].count -= count
            }
        }
        if !gateways[index].waiting.isEmpty { add(.admit(gateway: index), after: 10) }
    }

    // MARK: Judging

    package func resetTally() { tally = Tally() }

    /// Whether each partition is served by one running gateway that all others agree on, and the shares are even.
    package var isSettled: Bool { unsettledReason == nil }

    package var unsettledReason: String? {
        let running = gateways.indices.filter { gateways[$0].isRunning }
        if let index = running.first(where: { gateways[$0].membership == nil }) {
            return "gateway \(index) has not joined"
        }
        guard !running.isEmpty else { return "no gateway runs" }
        var counts = Dictionary(uniqueKeysWithValues: running.map { ($0, 0) })
        for part in logs.indices {
            let owners = running.filter { gateways[$0].open[part] == logs[part] }
            guard owners.count == 1 else { return "part \(part) has \(owners.count) owners" }
            counts[owners[0], default: 0] += 1
            for index in running {
                let entry = gateways[index].membership?.view.entries[part]
                guard entry?.isOpen == true, entry?.epoch == logs[part] else {
                    return "gateway \(index) sees part \(part) as \(entry?.text ?? "")"
                }
                guard entry?.owner == gateways[owners[0]].membership?.node else {
                    return "part \(part) is seen elsewhere"
                }
            }
        }
        let drained = register.drainedNodes
        for index in running {
            guard let node = gateways[index].membership?.node else { continue }
            let open = gateways[index].open
            if let stale = open.first(where: { logs[$0.key] != $0.value }) {
                return "gateway \(index) serves part \(stale.key) under an old epoch"
            }
            if drained.contains(node), counts[index] != 0 { return "gateway \(index) is drained and has parts" }
        }
        let willing = running.filter { index in
            gateways[index].membership.map { !drained.contains($0.node) && !$0.info.isLeaving } ?? false
        }
        guard !willing.isEmpty, register.pinnedParts.isEmpty else { return nil }
        let least = logs.count / willing.count, most = (logs.count + willing.count - 1) / willing.count
        for index in willing where !(least...most ~= counts[index] ?? 0) {
            return "gateway \(index) has \(counts[index] ?? 0) parts of \(least) to \(most)"
        }
        return nil
    }
}
