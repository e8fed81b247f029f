// One executable for all targets. libFuzzer restarts itself for some work, such as merging, and passes only its own arguments.
// The environment variable LONGWIRE_FUZZ_TARGET therefore names the target.
//
//   longwire-fuzz --list                 names, byte limits, timeouts in seconds
//   longwire-fuzz --play TEXT            a corpus or a history, one input after another, without the fuzzer
//   longwire-fuzz --unpack TEXT FOLDER   writes a corpus as files
//   longwire-fuzz --pack FOLDER          prints files as lines of a corpus
//   longwire-fuzz [libFuzzer's arguments]

internal import FuzzTargets
internal import Glibc

typealias FuzzerCallback = @convention(c) (UnsafePointer<UInt8>?, Int) -> CInt

@_silgen_name("LLVMFuzzerRunDriver")
func runDriver(
    _ argc: UnsafeMutablePointer<CInt>,
    _ argv: UnsafeMutablePointer<UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>>,
    _ callback: FuzzerCallback
) -> CInt

nonisolated(unsafe) private var isEndArranged = false

private let target = getenv("LONGWIRE_FUZZ_TARGET").flatMap { FuzzTarget.named(String(cString: $0)) }

/// The entry point that libFuzzer calls with every input.
@c(LLVMFuzzerTestOneInput)
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    guard let target else { fatalError("LONGWIRE_FUZZ_TARGET names no target") }
    let input = Array(UnsafeBufferPointer(start: start, count: count))
    do {
        try target.run(input)
    } catch {
        fatalError("\(target.name): \(error)")
    }
    // Registered after the first input. `atexit` handlers run in reverse order, so the libraries' state still exists in `end`.
    if !isEndArranged {
        isEndArranged = true
        atexit { FuzzRunner.end() }
    }
    return 0
}

@main
enum FuzzRunner {
    static func main() throws {
        let arguments = CommandLine.arguments
        switch arguments.dropFirst().first {
        case "--list":
            for target in FuzzTarget.all { print(target.name, target.byteLimit, target.timeoutSeconds) }
        case "--unpack":
            for entry in try Corpus.read(arguments[2]) { try write(entry.bytes, "\(arguments[3])/line-\(entry.line)") }
        case "--pack":
            for name in try names(arguments[2]) {
                print(Corpus.encode(Corpus.contents("\(arguments[2])/\(name)") ?? []))
            }
        case "--play":
            guard let target else { fatalError("LONGWIRE_FUZZ_TARGET names no target") }
            for entry in try Corpus.read(arguments[2]) {
                do { try target.run(entry.bytes) } catch { fatalError("line \(entry.line): \(error)") }
            }
            try target.finish()
        default: fuzz()
        }
    }

    /// Ends the state that outlives inputs and logs the number of requests.
    fileprivate static func end() {
        guard let target else { return }
        let count = target.requestCount?()
        do { try target.finish() } catch { fatalError("\(target.name): \(error)") }
        if let count { say("stat::requests: \(count)") }
        if target.name == "gateway" {
            for (what, count) in GatewayFuzz.answers.sorted(by: { $0.key < $1.key }) {
                say("answered \(what): \(count)")
            }
        }
    }

    private static func fuzz() -> Never {
        var argc = CommandLine.argc
        var argv = CommandLine.unsafeArgv
        exit(runDriver(&argc, &argv, testOneInput))
    }

    private static func say(_ line: String) {
        _ = (line + "\n").withCString { Glibc.write(STDERR_FILENO, $0, strlen($0)) }
    }

    private static func write(_ bytes: [UInt8], _ path: String) throws {
        guard let file = fopen(path, "wb") else { fatalError("\(path) cannot be written") }
        fwrite(bytes, 1, bytes.count, file)
        fclose(file)
    }

    /// Returns the folder's files by size, so that a corpus starts with simple inputs.
    private static func names(_ folder: String) throws -> [String] {
        guard let stream = opendir(folder) else { fatalError("\(folder) cannot be read") }
        defer { closedir(stream) }
        var names: [(name: String, count: Int)] = []
        while let entry = readdir(stream) {
            // Read in place: the entry is only as long as its name, so a copy of the whole field would read past it.
            guard let offset = MemoryLayout<dirent>.offset(of: \dirent.d_name) else { continue }
            let name = String(cString: (UnsafeRawPointer(entry) + offset).assumingMemoryBound(to: CChar.self))
            guard !name.hasPrefix(".") else { continue }
            names.append((name, Corpus.contents("\(folder)/\(name)")?.count ?? 0))
        }
        return names.sorted { ($0.count, $0.name) < ($1.count, $1.name) }.map(\.name)
    }
}
