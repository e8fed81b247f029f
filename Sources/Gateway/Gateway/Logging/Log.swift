package import Delivery
internal import Glibc
internal import Platform

/// The structured log: one line an event, written to a descriptor by a thread of its own.
///
/// Any thread may call `write`; it takes a lock for an append and never waits for the descriptor. When lines come
/// faster than they can be written the newest are lost, and counted.
package final class Log: Sendable {
    private struct State: ~Copyable {
        var level: LogLevel
        var waiting: [LogRecord] = []
        var limiter = RepeatLimiter()
        /// Lost and not reported yet, and lost since the start.
        var lostCount = 0
        var lostCountInAll = 0
        var isWriting = false
        var isClosed = false
        /// The thread has ended, or is about to without another write.
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
    ///   - format: how lines are written.
    ///   - level: what is written.
    ///   - descriptor: stays the caller's; stderr by default.
    /// - Throws: `SystemError` when there is no thread to be had.
    package convenience init(format: LogFormat, level: LogLevel, descriptor: CInt = STDERR_FILENO) throws {
        try self.init(
            format: format, level: level, descriptor: descriptor, waitingLineLimit: LogLimits.waitingLineCount)
    }

    init(format: LogFormat, level: LogLevel, descriptor: CInt, waitingLineLimit: Int) throws {
        (formatter, self.descriptor, self.waitingLineLimit) = (
            LogFormatter(format: format), descriptor, waitingLineLimit
        )
        state = Monitor(State(level: level))
        let log = self  // the thread holds it until `close()`
        let thread = try Thread(named: "longwire-log") { log.run() }
        var started: Thread? = consume thread
        state.withLock { $0.thread = started.take() }
    }

    /// Writes one event; `fields` keep their order.
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

    /// Writes what the delivery core reports.
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

    /// Changes what is written from now on (a reload).
    package func setLevel(_ level: LogLevel) { state.withLock { $0.level = level } }

    /// True when an event of this level would be written: spares the work of gathering its fields.
    package func writes(_ level: LogLevel) -> Bool { state.withLock { level >= $0.level } }

    /// Lines lost since the start, for the metrics.
    package var lostLineCount: Int { state.withLock { $0.lostCountInAll } }

    /// Waits until everything written so far has left, and no longer than a descriptor that takes nothing is given.
    ///
    /// For the way out, and for tests.
    package func flush() {
        state.wait(
            atMostMilliseconds: LogLimits.flushMilliseconds,
            while: { (!$0.waiting.isEmpty || $0.isWriting) && !$0.isOver }, then: { _ in })
    }

    /// Writes what waits, as far as the descriptor takes it within the same time, and ends the thread; later events are
    /// ignored.
    package func close() {
        flush()
        let thread = state.broadcast { state -> Thread? in
            state.isClosed = true
            return state.thread.take()
        }
        // It looks at `isClosed` ten times a second while nothing goes out.
        thread?.join()
    }

    private func run() {
        var batch: [LogRecord] = []
        var output: [UInt8] = []
        while true {
            // Whatever was left out is reported soon after its window ends, even when nothing else is written.
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

    /// A descriptor that fails for good (a closed pipe) loses lines; there is nowhere left to say so.
    ///
    /// Waits for one that is full, but not beyond the end of the log.
    private func writeOut(_ output: [UInt8]) {
        let closedAt = ClosedSince()
        _ = output.withUnsafeBytes { bytes in
            BoundedWriter.write(bytes, to: descriptor) {
                closedAt.isLongerThan(LogLimits.closeMilliseconds) { state.withLock { $0.isClosed } }
            }
        }
    }

    /// How long a condition holds already.
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
