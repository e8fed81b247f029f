internal import Delivery
internal import Redis
internal import Wire

/// The alarms of a partition's cold rows, read from sorted sets; the rows of a page of alarms are read together.
final class RedisAlarms: AlarmSource {
    private let part: RedisPart
    private let request: AlarmRequest
    private let client: RedisClient
    private let context: LogContext
    private var rows: [StoreKey: [UInt8]?] = [:]
    /// The keys of the current page; all their rows are read with the first requested one.
    private var page: [StoreKey] = []
    private let isMine: (Bucket) -> Bool
    private(set) var isCutOff = false

    /// Creates a source.
    ///
    /// - Parameters:
    ///   - part: The partition.
    ///   - request: The loop's request.
    ///   - client: The reading thread's client.
    ///   - context: The engine's shared state.
    ///   - isMine: Returns whether this source reads the bucket.
    init(
        _ part: RedisPart, _ request: AlarmRequest, _ client: RedisClient, _ context: LogContext,
        isMine: @escaping (Bucket) -> Bool
    ) {
        (self.part, self.request, self.client, self.context) = (part, request, client, context)
        self.isMine = isMine
    }

    func has(_ bucket: UInt16) -> Bool { isMine(Bucket(bucket)) }

    func row(_ key: StoreKey, _ operation: ReadOperation) throws(StoreError) -> ColdRow? {
        if rows[key] == nil {
            let isOfPage = page.contains(key)
            try fetch(isOfPage ? page : [key])
            // Prefetch the rows that may have taken over these alarms.
            if isOfPage { try fetchSuccessors() }
        }
        guard case .some(.some(let stored)) = rows[key] else { return nil }
        return RowReading.row(key, stored, operation)
    }

    private func fetchSuccessors() throws(StoreError) {
        var wanted: [StoreKey] = []
        for key in page {
            guard case .some(.some(let stored)) = rows[key], stored.count >= KeyCoding.rowPrefixByteCount else {
                continue
            }
            let successor = stored.withUnsafeBytes {
                request.successor(of: key, UnsafeRawBufferPointer(rebasing: $0[KeyCoding.rowPrefixByteCount...]))
            }
            if let successor, rows[successor] == nil { wanted.append(successor) }
        }
        try fetch(wanted)
    }

    private func fetch(_ wanted: [StoreKey]) throws(StoreError) {
        guard !wanted.isEmpty else { return }
        var known: [StoreKey] = []
        var requests: [RedisRequest] = []
        for key in wanted {
            guard let keys = part.keys(of: key.bucket) else {
                rows[key] = .some(nil)
                continue
            }
            known.append(key)
            requests.append(RedisRequest(RowReading.value(keys.rows, key), slot: keys.slot))
        }
        for (key, reply) in zip(known, try run(requests)) {
            // If a row can be neither read nor ruled out, its alarm stays scheduled.
            guard reply.bytes != nil || reply.isNone else {
                throw .redis(what: reply.fault?.text ?? "a row that is no bytes")
            }
            rows[key] = .some(reply.bytes)
        }
    }

    private func run(_ requests: [RedisRequest]) throws(StoreError) -> [RedisReply] {
        do throws(RedisError) {
            return try client.run(
                requests, deadline: context.now + UInt64(context.configuration.readMilliseconds), isImpatient: true)
        } catch {
            isCutOff = true
            throw .redis(what: error.description)
        }
    }

    func cursor(
        in bucket: UInt16, from first: Alarm?, _ operation: ReadOperation
    ) throws(StoreError) -> any AlarmCursor {
        try Cursor(self, bucket, from: first)
    }

    private final class Cursor: AlarmCursor {
        private unowned let source: RedisAlarms
        private let bucket: Bucket
        private let prefix: [UInt8]
        private let keys: GroupKeys?
        private var alarms: [Alarm] = []
        private var place = 0
        private var isLastPage = false
        private var last: [UInt8]

        init(_ source: RedisAlarms, _ bucket: UInt16, from first: Alarm?) throws(StoreError) {
            self.source = source
            self.bucket = Bucket(bucket)
            prefix = [UInt8(bucket >> 8), UInt8(bucket & 0xFF)]
            keys = source.part.keys(of: self.bucket)
            last = first.map { KeyCoding.bytes($0) } ?? prefix
            // For a bucket that was not read yet, only the first alarm is requested.
            try read(isExclusive: false, count: first == nil ? 1 : Limits.alarmsPerPage)
        }

        var current: Alarm? { place < alarms.count ? alarms[place] : nil }

        func advance() throws(StoreError) {
            place += 1
            if place >= alarms.count, !isLastPage { try read(isExclusive: true, count: Limits.alarmsPerPage) }
        }

        private func read(isExclusive: Bool, count: Int) throws(StoreError) {
            (alarms, place) = ([], 0)
            guard let keys else {
                isLastPage = true
                return
            }
            var isExclusive = isExclusive
            repeat {
                let command = RowReading.range(
                    keys.alarms, from: last, isExclusive: isExclusive, through: prefix, count: count)
                let reply = try source.run([RedisRequest(command, slot: keys.slot)])[0]
                guard let list = reply.array else { throw .redis(what: reply.fault?.text ?? "no list of alarms") }
                guard let names = RowReading.names(list, from: last, isExclusive: isExclusive) else {
                    throw .redis(what: "alarms that are not in order")
                }
                isLastPage = list.count < count
                // Continue behind this page even if this version can decode none of its alarms.
                if let end = names.last { (last, isExclusive) = (end, true) }
                alarms = names.compactMap { name in name.withUnsafeBytes { KeyCoding.readAlarm($0) } }
                    .filter { $0.key.bucket == bucket }
            } while alarms.isEmpty && !isLastPage
            source.page = alarms.map(\.key)
        }
    }
}
