package import Delivery
internal import Glibc

/// The structured log: one line an event, written to a descriptor by a thread of its own.
///
/// Any thread may call `write`; it takes a lock for an append and never waits for the descriptor. When lines come
/// faster than they can be written the newest are lost, and counted.
package final class Log: @unchecked Sendable {
    // Sound because `mutex` protects every stored property below it; those above it never change.
    private let formatter: LogFormatter
    private let descriptor: CInt
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private let changed: UnsafeMutablePointer<pthread_cond_t>
    private var level: LogLevel
    private var waiting: [LogRecord] = []
    private var limiter = RepeatLimiter()
    private var lostCount = 0
    private var lostCountInAll = 0
    private var isWriting = false
    private var isClosed = false
    private var thread: pthread_t?

    /// - Parameter descriptor: stays the caller's; stderr by default.
    package init(format: LogFormat, level: LogLevel, descriptor: CInt = STDERR_FILENO) {
        (formatter, self.level, self.descriptor) = (LogFormatter(format: format), level, descriptor)
        mutex = .allocate(capacity: 1)
        changed = .allocate(capacity: 1)
        pthread_mutex_init(mutex, nil)
        var attributes = pthread_condattr_t()
        pthread_condattr_init(&attributes)
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        pthread_cond_init(changed, &attributes)
        pthread_condattr_destroy(&attributes)
        // The thread holds the log until `close()`.
        let context = Unmanaged.passRetained(self).toOpaque()
        var thread = pthread_t()
        let result = pthread_create(
            &thread, nil,
            { context in
                guard let context else { return nil }
                Unmanaged<Log>.fromOpaque(context).takeRetainedValue().run()
                return nil
            }, context)
        precondition(result == 0, "no thread for the log")
        self.thread = thread
    }

    deinit {
        pthread_cond_destroy(changed)
        pthread_mutex_destroy(mutex)
        changed.deallocate()
        mutex.deallocate()
    }

    /// Writes one event. `fields` keep their order.
    package func write(_ level: LogLevel, _ name: LogName, _ fields: KeyValuePairs<LogKey, LogValue> = [:]) {
        let time = Self.wallClock()
        let now = Self.monotonic()
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        guard level >= self.level, !isClosed, limiter.admit(name, now: now) else { return }
        guard waiting.count < LogLimits.waitingLineCount else {
            lostCount += 1
            lostCountInAll += 1
            return
        }
        let record = LogRecord(
            level: level, name: name, time: time, fields: fields.map { LogField(key: $0.key, value: $0.value) })
        waiting.append(record)
        pthread_cond_broadcast(changed)
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
    package func setLevel(_ level: LogLevel) {
        pthread_mutex_lock(mutex)
        self.level = level
        pthread_mutex_unlock(mutex)
    }

    /// True when an event of this level would be written: spares the work of gathering its fields.
    package func writes(_ level: LogLevel) -> Bool {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return level >= self.level
    }

    /// Lines lost since the start, for the metrics.
    package var lostLineCount: Int {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return lostCountInAll
    }

    /// Waits until everything written so far has left. For the way out and for tests.
    package func flush() {
        pthread_mutex_lock(mutex)
        while !waiting.isEmpty || isWriting { pthread_cond_wait(changed, mutex) }
        pthread_mutex_unlock(mutex)
    }

    /// Writes what waits and ends the thread. Later events are ignored.
    package func close() {
        pthread_mutex_lock(mutex)
        isClosed = true
        let thread = self.thread
        self.thread = nil
        pthread_cond_broadcast(changed)
        pthread_mutex_unlock(mutex)
        if let thread { pthread_join(thread, nil) }
    }

    private func run() {
        var batch: [LogRecord] = []
        var output: [UInt8] = []
        while true {
            pthread_mutex_lock(mutex)
            isWriting = false
            pthread_cond_broadcast(changed)
            while waiting.isEmpty, !isClosed {
                if limiter.hasLeftOut {
                    // Wake when the window is over, to say how much was left out.
                    var deadline = timespec()
                    clock_gettime(CLOCK_MONOTONIC, &deadline)
                    deadline.tv_sec += 1
                    if pthread_cond_timedwait(changed, mutex, &deadline) == ETIMEDOUT { break }
                } else {
                    pthread_cond_wait(changed, mutex)
                }
            }
            swap(&batch, &waiting)
            let leftOut = limiter.takeLeftOut(now: Self.monotonic(), all: isClosed)
            let lost = lostCount
            lostCount = 0
            isWriting = true
            let isLast = isClosed
            pthread_mutex_unlock(mutex)

            let time = Self.wallClock()
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
        pthread_mutex_lock(mutex)
        isWriting = false
        pthread_cond_broadcast(changed)
        pthread_mutex_unlock(mutex)
    }

    /// A descriptor that fails for good (a closed pipe) loses lines; there is nowhere left to say so.
    private func writeOut(_ output: [UInt8]) {
        var offset = 0
        while offset < output.count {
            let count = output.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress! + offset, $0.count - offset) }
            if count > 0 {
                offset += count
            } else if count < 0, errno == EINTR {
                continue
            } else if count < 0, errno == EAGAIN {
                var poller = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                _ = poll(&poller, 1, 1_000)
            } else {
                return
            }
        }
    }

    private static func wallClock() -> Int64 { milliseconds(CLOCK_REALTIME) }
    private static func monotonic() -> Int64 { milliseconds(CLOCK_MONOTONIC) }
    private static func milliseconds(_ clock: clockid_t) -> Int64 {
        var time = timespec()
        clock_gettime(clock, &time)
        return Int64(time.tv_sec) * 1_000 + Int64(time.tv_nsec) / 1_000_000
    }
}
