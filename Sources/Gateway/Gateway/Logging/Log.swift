package import Delivery
internal import Glibc
internal import Platform

/// The structured log: one line per event, written to a descriptor by a dedicated thread.
///
/// Any thread may call `write`, which only holds a lock for an append and never waits for the descriptor. If lines arrive faster
/// than they can be written, the newest are dropped and counted.
package final class Log: Sendable {
    private struct State: ~Copyable {
        var level: LogLevel
        var waiting: [LogRecord] = []
        var limiter = RepeatLimiter()
        /// The numbers of dropped lines: those not reported yet, and all since the start.
        var lostCount = 0
        var lostCountInAll = 0
        var isWriting = false
        var isClosed = false
        /// Whether the thread has ended or will end without another write.
        var isOver = false
        var thread: Thread?
    }

    private let formatter: LogFormatter
    private let descriptor: CInt
    private let waitingLineLimit: Int
    private let state: Monitor<State>

    /// Starts the log's thread; `close()` ends it.
    ///
    /// - Parameters:
    ///   - format: The format of lines.
    ///   - level: The lowest level that is written.
    ///   - descriptor: The output, stderr by default; the caller keeps ownership.
    /// - Throws: `SystemError` if the thread cannot be created.
    package convenience init(format: LogFormat, level: LogLevel, descriptor: CInt = STDERR_FILENO) throws {
        try self.init(
            format: format, level: level, descriptor: descriptor, waitingLineLimit: LogLimits.waitingLineCount)
    }

    init(format: LogFormat, level: LogLevel, descriptor: CInt, waitingLineLimit: Int) throws {
        (formatter, self.descriptor, self.waitingLineLimit) = (
            LogFormatter(format: format, isForJournal: ServiceManager.isJournal(descriptor)), descriptor,
            waitingLineLimit
        )
        state = Monitor(State(level: level))
        let log = self  // the thread retains the log until `close()`
        let thread = try Thread(named: "longwire-log") { log.run() }
        var started: Thread? = consume thread
        state.withLock { $0.thread = started.take() }
    }

    /// Writes an event; `fields` keep their order.
    package func write(_ level: LogLevel, _ name: LogName, _ fields: KeyValuePairs<LogKey, LogValue> = [:]) {
        let time = ClockReader.wall()
        let now = Int64(SystemClock.monotonicMilliseconds)
        state.broadcast { state in
            guard level >= state.level, !state.isClosed, state.limiter.admit(name, now: now) else { return }
            guard state.waiting.count < waitingLineLimit else {
                state.lostCount += 1
                state.lostCountInAll += 1
                return
            }
            let fields = fields.map { LogField(key: $0.key, value: $0.value) }
            state.waiting.append(LogRecord(level: level, name: name, time: time, fields: fields))
        }
    }

    package func write(_ event: LogEvent) {
        let level: LogLevel =
            switch event.level {
            case .debug: .debug
            case .info: .info
            case .warning: .warning
            case .error: .error
            }
        write(level, .reported, [.name: .text(event.name.description), .detail: .text(event.text)])
    }

    package func setLevel(_ level: LogLevel) { state.withLock { $0.level = level } }

    /// Returns whether an event of this level would be written, so that callers can avoid collecting its fields.
    package func writes(_ level: LogLevel) -> Bool { state.withLock { level >= $0.level } }

    /// The number of lines dropped since the start, for the metrics.
    package var lostLineCount: Int { state.withLock { $0.lostCountInAll } }

    /// Waits until all earlier events are written, up to a timeout.
    package func flush() {
        state.wait(
            atMostMilliseconds: LogLimits.flushMilliseconds,
            while: { (!$0.waiting.isEmpty || $0.isWriting) && !$0.isOver }, then: { _ in })
    }

    /// Writes pending events up to a timeout and ends the thread; later events are ignored.
    package func close() {
        flush()
        let thread = state.broadcast { state -> Thread? in
            state.isClosed = true
            return state.thread.take()
        }
        // `writeOut` checks `isClosed` ten times a second while the descriptor is blocked.
        thread?.join()
    }

    private func run() {
        var batch: [LogRecord] = []
        var output: [UInt8] = []
        while true {
            // Suppressed repeats are reported soon after their window ends, even without other events.
            let hasLeftOut = state.broadcast { state in
                state.isWriting = false
                return state.limiter.hasLeftOut
            }
            let (leftOut, lost, isLast) = state.wait(
                atMostMilliseconds: hasLeftOut ? 1_000 : nil,
                while: { $0.waiting.isEmpty && !$0.isClosed && ($0.limiter.hasLeftOut == hasLeftOut) },
                then: { state in
                    swap(&batch, &state.waiting)
                    state.isWriting = true
                    let lost = state.lostCount
                    state.lostCount = 0
                    let now = Int64(SystemClock.monotonicMilliseconds)
                    return (state.limiter.takeLeftOut(now: now, all: state.isClosed), lost, state.isClosed)
                })
            let time = ClockReader.wall()
            for record in batch { formatter.append(record, to: &output) }
            for (name, count) in leftOut {
                let fields = [
                    LogField(key: .name, value: .text(name.rawValue)), LogField(key: .count, value: LogValue(count)),
                ]
                formatter.append(
                    LogRecord(level: .warning, name: .repeatsLeftOut, time: time, fields: fields), to: &output)
            }
            if lost > 0 {
                let fields = [LogField(key: .count, value: LogValue(lost))]
                formatter.append(
                    LogRecord(level: .error, name: .logLinesLost, time: time, fields: fields), to: &output)
            }
            writeOut(output)
            batch.removeAll(keepingCapacity: true)
            output.removeAll(keepingCapacity: true)
            if isLast { break }
        }
        state.broadcast { ($0.isWriting, $0.isOver) = (false, true) }
    }

    /// Writes lines, and waits while the descriptor is full; after a permanent error, lines are lost without a report.
    private func writeOut(_ output: [UInt8]) {
        let closedAt = ClosedSince()
        _ = output.withUnsafeBytes { bytes in
            BoundedWriter.write(bytes, to: descriptor) {
                closedAt.isLongerThan(LogLimits.closeMilliseconds) { state.withLock { $0.isClosed } }
            }
        }
    }

    private final class ClosedSince {
        private var since: UInt64?

        func isLongerThan(_ milliseconds: UInt64, _ isTrue: () -> Bool) -> Bool {
            guard isTrue() else { return false }
            let now = SystemClock.monotonicMilliseconds
            guard let since else {
                since = now
                return false
            }
            return now - since >= milliseconds
        }
    }
}
