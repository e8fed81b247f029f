import Configuration
import Delivery
import Glibc
import Testing
import Wire

@testable import Gateway

@Suite("Log")
struct LogTests {
    /// Returns the lines that `body` logs.
    private func lines(
        _ format: LogFormat, level: LogLevel = .debug, _ body: (Log) throws -> Void
    ) throws -> [String] {
        let folder = TemporaryFolder()
        let path = folder.write("log", "")
        let descriptor = open(path, O_WRONLY | O_APPEND)
        defer { close(descriptor) }
        let log = try Log(format: format, level: level, descriptor: descriptor)
        try body(log)
        log.close()
        let text = String(decoding: try FileText.read(path, limit: 16 << 20).bytes, as: UTF8.self)
        return text.split(separator: "\n", omittingEmptySubsequences: false).dropLast().map(String.init)
    }

    @Test("one event is one line, in both formats")
    func formats() throws {
        let write: (Log) -> Void = { log in
            log.write(
                .warning, .hookFailing,
                [
                    .status: 500, .error: "say \"no\"\n\u{1B}[2J", .retryInMilliseconds: LogValue(.milliseconds(1_500)),
                    .key: true, .milliseconds: .number(.nan),
                ])
        }
        let json = try lines(.json, write)
        #expect(json.count == 1)
        #expect(
            json[0].hasSuffix(
                #""level":"warning","event":"hookFailing","status":500,"error":"say \"no\"\n\u001b[2J","#
                    + #""retryInMilliseconds":1500,"key":true,"milliseconds":null}"#), "\(json[0])")
        #expect(json[0].hasPrefix("{\"time\":\"20"))
        _ = try JSON5Parser.parse(Array(json[0].utf8))
        let text = try lines(.text, write)
        #expect(text.count == 1)
        #expect(
            text[0].hasSuffix(
                #"Z WARNING hookFailing status=500 error="say \"no\"\n\u001b[2J" retryInMilliseconds=1500 key=true milliseconds=nan"#
            ), "\(text[0])")
    }

    @Test("times are ISO 8601 in UTC, in both formats")
    func timestamps() {
        let record = LogRecord(level: .info, name: .started, time: 951_782_400_123, fields: [])
        for (format, start) in [(LogFormat.json, "{\"time\":\""), (.text, "")] {
            var line: [UInt8] = []
            LogFormatter(format: format).append(record, to: &line)
            #expect(String(decoding: line, as: UTF8.self).hasPrefix(start + "2000-02-29T00:00:00.123Z"))
        }
    }

    @Test("a line for the journal begins with its priority, and a line of text has no second time")
    func journal() {
        func line(_ format: LogFormat, _ level: LogLevel) -> String {
            var line: [UInt8] = []
            let record = LogRecord(level: level, name: .started, time: 951_782_400_123, fields: [])
            LogFormatter(format: format, isForJournal: true).append(record, to: &line)
            return String(decoding: line, as: UTF8.self)
        }
        #expect(line(.text, .warning) == "<4>WARNING started\n")
        #expect(line(.text, .info).hasPrefix("<6>INFO "))
        #expect(line(.json, .error).hasPrefix("<3>{\"time\":\"2000-"))
    }

    @Test("the level is the minimum that is written, and a reload changes it")
    func levels() throws {
        let written = try lines(.text, level: .warning) { log in
            log.write(.info, .started)
            log.write(.warning, .configurationWarning)
            #expect(!log.writes(.info))
            log.setLevel(.debug)
            log.write(.debug, .listening)
        }
        #expect(written.count == 2)
        #expect(written[0].contains("configurationWarning") && written[1].contains("listening"))
    }

    @Test("repeats above the bound are dropped, counted and reported; other events are written")
    func repeats() throws {
        let count = LogLimits.repeatCount + 30
        let written = try lines(.text) { log in
            for _ in 0..<count { log.write(.info, .connectionClosed) }
            log.write(.info, .started)
        }
        #expect(written.filter { $0.contains(" connectionClosed") }.count == LogLimits.repeatCount)
        #expect(written.filter { $0.contains(" started") }.count == 1)
        #expect(written.last?.hasSuffix("repeatsLeftOut name=connectionClosed count=30") == true)
    }

    @Test("a new window lets an event through again")
    func limiterWindow() {
        var limiter = RepeatLimiter()
        let first = (0..<LogLimits.repeatCount).map { _ in limiter.admit(.fatal, now: 5) }
        #expect(first.allSatisfy { $0 })
        let beyond = limiter.admit(.fatal, now: 5 + LogLimits.repeatWindow - 1)
        #expect(!beyond)
        let early = limiter.takeLeftOut(now: 6)
        #expect(early.isEmpty)
        #expect(limiter.hasLeftOut)
        let next = limiter.admit(.fatal, now: 5 + LogLimits.repeatWindow)
        #expect(next)
        let late = limiter.takeLeftOut(now: 5 + 3 * LogLimits.repeatWindow)
        #expect(late.map(\.count) == [1])
        #expect(!limiter.hasLeftOut)
    }

    @Test("a reader that stops reading costs lines, not the writers' time, and the loss is reported")
    func slowReader() throws {
        var pipe: [CInt] = [0, 0]
        try #require(Glibc.pipe(&pipe) == 0)
        let log = try Log(format: .json, level: .debug, descriptor: pipe[1], waitingLineLimit: 8)
        let filler = String(repeating: "x", count: LogLimits.textByteCount)
        // Each name has its own bound of repeats. Together they exceed the capacity of the pipe and the queue.
        for _ in 0..<LogLimits.repeatCount {
            for name in LogName.allCases { log.write(.info, name, [.detail: .text(filler)]) }
        }
        #expect(LogName.allCases.count * LogLimits.repeatCount * filler.utf8.count > 128 << 10)
        #expect(log.lostLineCount > 0)
        // The pipe was full without a reader, but every write returned. The pipe is read from here on.
        let reader = Reader(descriptor: pipe[0])
        log.close()
        close(pipe[1])
        let text = reader.wait()
        #expect(text.contains("\"event\":\"logLinesLost\",\"count\":"))
        close(pipe[0])
    }

    @Test("a token shows at most its first characters, and a short token none")
    func tokenPrefix() {
        #expect(LogValue.prefix(ofToken: "0123456789abcdef0123456789abcdef0123") == .text("01234567…"))
        #expect(LogValue.prefix(ofToken: "abc") == .text("…"))
    }

    @Test("texts are truncated, and identifiers have their usual form")
    func values() {
        var output: [UInt8] = []
        // The limit is even, so the last two-byte character would exceed it by one byte.
        LogFormatter.appendQuoted("a" + String(repeating: "é", count: 10_000), to: &output)
        let shown = "a" + String(repeating: "é", count: LogLimits.textByteCount / 2 - 1)
        #expect(String(decoding: output, as: UTF8.self) == "\"\(shown)…\"")
        #expect(LogValue(DeviceID(high: 1, low: 2)) == .text("00000000000000010000000000000002"))
        #expect(LogValue(UInt64.max) == .integer(.max))
    }

    @Test("reports of the delivery core keep their names")
    func reported() throws {
        let written = try lines(.text) { $0.write(LogEvent(level: .error, name: "badAck", text: "cid x")) }
        #expect(written.first?.hasSuffix("ERROR   reported name=badAck detail=\"cid x\"") == true, "\(written)")
    }
}

/// Reads a descriptor to its end on a separate thread.
private final class Reader: @unchecked Sendable {
    // `@unchecked Sendable` is sound because the thread writes `text`, which is read only after the join.
    private var text = ""
    private var thread = pthread_t()

    init(descriptor: CInt) {
        let context = Unmanaged.passRetained(Start(reader: self, descriptor: descriptor)).toOpaque()
        pthread_create(
            &thread, nil,
            { context in
                guard let context else { return nil }
                let start = Unmanaged<Start>.fromOpaque(context).takeRetainedValue()
                var bytes: [UInt8] = []
                var chunk = [UInt8](repeating: 0, count: 65_536)
                while true {
                    let count = read(start.descriptor, &chunk, chunk.count)
                    if count <= 0 { break }
                    bytes.append(contentsOf: chunk[..<count])
                }
                start.reader.text = String(decoding: bytes, as: UTF8.self)
                return nil
            }, context)
    }

    func wait() -> String {
        pthread_join(thread, nil)
        return text
    }

    private final class Start {
        let reader: Reader
        let descriptor: CInt
        init(reader: Reader, descriptor: CInt) { (self.reader, self.descriptor) = (reader, descriptor) }
    }
}
