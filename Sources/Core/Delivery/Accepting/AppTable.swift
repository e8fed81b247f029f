internal import Wire

/// The apps with devices, messages or jobs in a shard, by index, with their figures.
struct AppTable {
    private(set) var entries: [AppEntry]
    private var places: [AppKey: Int]
    var areAllKnown: Bool
    var figures: [AppStatistics]
    private(set) var retained: [RetainedBytes] = []
    /// The apps' holdings according to the store's counters; an app that gets its entry later starts with them.
    private var holdingsBeforeServed: [AppKey: CountedHoldings]

    init(
        _ apps: [AppSettings], areAllKnown: Bool, counters: borrowing CounterTable, holdings: [AppKey: CountedHoldings],
        day: UInt32
    ) {
        entries = []
        (places, figures, self.areAllKnown, holdingsBeforeServed) = ([:], [], areAllKnown, holdings)
        for settings in apps { append(AppEntry(settings), counters, day: day) }
    }

    var count: Int { entries.count }
    var indices: Range<Int> { entries.indices }

    subscript(place: Int) -> AppEntry {
        @inline(__always) _read { yield entries[place] }
        @inline(__always) _modify { yield &entries[place] }
    }

    @inline(__always)
    func index(of key: AppKey) -> Int? { places[key] }

    func knowledge(of key: AppKey) -> AppKnowledge {
        guard let place = places[key] else { return areAllKnown ? .absent : .unknown }
        return entries[place].knowledge
    }

    func isServed(_ key: AppKey) -> Bool { places[key].map { entries[$0].isServed } ?? false }

    mutating func append(_ app: AppEntry, _ counters: borrowing CounterTable, day: UInt32) {
        if places[app.key] == nil { places[app.key] = entries.count }
        entries.append(app)
        let holdings = holdingsBeforeServed[app.key]
        var figures = AppStatistics()
        if let holdings { figures.add(holdings) }
        self.figures.append(figures)
        var retained = RetainedBytes()
        retained.setAccepted(
            on: day, counters.accepted(of: app.key, on: day),
            before: counters.accepted(of: app.key, on: day - min(day, 1)))
        retained.addDevices(holdings?.devices ?? 0)
        self.retained.append(retained)
    }

    /// Adds the holdings of days that the shard counts from now on.
    mutating func add(_ sums: [AppKey: CountedHoldings]) {
        for (app, sum) in sums {
            holdingsBeforeServed[app, default: CountedHoldings()] += sum
            guard let place = places[app] else { continue }
            figures[place].add(sum)
            retained[place].addDevices(sum.devices)
        }
    }

    mutating func countAccepted(_ place: Int, blocks: Int64, day: UInt32) {
        figures[place].accepted &+= 1
        figures[place].queuedMessages += 1
        figures[place].addBlocks(blocks)
        retained[place].countAccepted(on: day)
    }

    mutating func countEnded(_ place: Int, _ state: FinalState, blocks: Int64) {
        figures[place].count(state)
        figures[place].queuedMessages -= 1
        figures[place].addBlocks(-blocks)
    }

    mutating func addCallback(_ place: Int, byteCount: Int) { retained[place].addCallback(byteCount: byteCount) }

    mutating func addDevices(_ place: Int, _ change: Int64) { retained[place].addDevices(change) }
}
