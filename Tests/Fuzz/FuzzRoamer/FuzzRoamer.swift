// Runs the fuzz target `gateway` at full speed on random inputs, without the fuzzer's instrumentation. It makes in minutes as
// many requests as libFuzzer, which learns from each input, makes in hours.
//
//   longwire-roam [--seed N] [--requests N] [--seconds N] [--json FILE] | --play FILE
//
// The file in LONGWIRE_FUZZ_HISTORY has the inputs of the open gateway; `--play` replays them.

internal import FoundationEssentials
internal import FuzzTargets
internal import Glibc
internal import TextForms

@main
enum FuzzRoamer {
    static func main() throws {
        var (seed, requests, seconds, json) = (UInt64(1), Int.max, Double.infinity, String?.none)
        var played: String?
        var arguments = ArgumentReader(CommandLine.arguments.dropFirst()) { $0 }
        do throws(ArgumentFault) {
            while let word = try arguments.next() {
                switch word {
                case .option("--seed"): seed = try arguments.value(as: UInt64.self)
                case .option("--requests"): requests = try arguments.value(as: Int.self)
                case .option("--seconds"): seconds = try arguments.value(as: Double.self)
                case .option("--json"): json = try arguments.value()
                case .option("--play"): played = try arguments.value()
                case .option(let text), .operand(let text): refuse("there is no option \(text)")
                }
            }
        } catch { refuse(error.description) }
        if let played { return try play(played) }
        guard let target = FuzzTarget.named("gateway") else { refuse("there is no target gateway") }
        GatewayFuzz.inputsPerOpening = 1_024
        let known = try Corpus.read(Corpus.path(of: target)).map(\.bytes)
        var inputs = InputMaker(seed: seed, known: known, byteLimit: target.byteLimit)
        let (clock, start) = (ContinuousClock(), ContinuousClock().now)
        var count = 0
        while GatewayFuzz.requestCount < requests, clock.now - start < .seconds(min(seconds, 1e9)) {
            let input = inputs.next()
            do { try target.run(input) } catch {
                fail("input \(count) of seed \(seed): \(error)\n\(Corpus.encode(input))")
            }
            count += 1
            if count % 2_000 == 0 { print("\(count) inputs, \(GatewayFuzz.requestCount) requests") }
        }
        do { try target.finish() } catch { fail("at the end, after \(count) inputs of seed \(seed): \(error)") }
        let spent = Int((clock.now - start).components.seconds)
        let answers = GatewayFuzz.answers.sorted { $0.key < $1.key }
        print("\(count) inputs, \(GatewayFuzz.requestCount) requests in \(spent) s")
        for (what, count) in answers { print("  answered \(what): \(count)") }
        guard let json else { return }
        let http = answers.filter { !$0.key.hasPrefix("publish") && !$0.key.hasPrefix("reload") }
            .reduce(0) { $0 + $1.value }
        let text = """
            {"seed":\(seed),"inputs":\(count),"requests":\(GatewayFuzz.requestCount),"overHTTP":\(http),\
            "answersOfDifferentKinds":\(answers.count),"seconds":\(spent),"failures":0}

            """
        try Data(text.utf8).write(to: URL(filePath: json))
    }

    private static func play(_ path: String) throws {
        guard let target = FuzzTarget.named("gateway") else { return }
        for entry in try Corpus.read(path) {
            do { try target.run(entry.bytes) } catch { fail("line \(entry.line): \(error)") }
        }
        try target.finish()
    }

    private static func refuse(_ text: String) -> Never {
        print("longwire-roam: \(text)")
        exit(64)
    }

    private static func fail(_ text: String) -> Never {
        print("longwire-roam: \(text)")
        exit(1)
    }
}

/// A seeded source of inputs: mutations of known inputs, two joined inputs, or random bytes; most are small.
private struct InputMaker {
    private var state: UInt64
    private let known: [[UInt8]]
    private let byteLimit: Int

    init(seed: UInt64, known: [[UInt8]], byteLimit: Int) {
        (state, self.known, self.byteLimit) = (seed &* 0x9E37_79B9_7F4A_7C15, known, byteLimit)
    }

    private mutating func draw(_ bound: Int) -> Int {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ mixed >> 30) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ mixed >> 27) &* 0x94D0_49BB_1331_11EB
        return Int((mixed ^ mixed >> 31) % UInt64(max(1, bound)))
    }

    private mutating func byte() -> UInt8 { UInt8(draw(2) == 0 ? draw(32) : draw(256)) }

    mutating func next() -> [UInt8] {
        var input: [UInt8]
        switch draw(16) {
        case 0 where !known.isEmpty: input = known[draw(known.count)]
        case 1 where !known.isEmpty: input = known[draw(known.count)] + known[draw(known.count)]
        default: input = (0..<2 + draw(byteLimit - 2)).map { _ in byte() }
        }
        for _ in 0..<draw(8) where !input.isEmpty {
            let place = draw(input.count)
            switch draw(3) {
            case 0: input[place] = byte()
            case 1: input.insert(byte(), at: place)
            default: input.remove(at: place)
            }
        }
        // Opening another configuration costs as much as hundreds of requests.
        if !input.isEmpty, draw(256) > 0 { input[0] &= 0xEF }
        // Only a few inputs may contain tens of thousands of publishes, so that many inputs run.
        if input.count > 1, draw(16) > 0 { input[1] &= 0xDF }
        return Array(input.prefix(byteLimit))
    }
}
