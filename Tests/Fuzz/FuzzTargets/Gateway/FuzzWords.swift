internal import Delivery
internal import Gateway
internal import PushAPI

/// The names of existing objects for use in requests, and the current permissions.
final class FuzzWords {
    var configuration: GatewayConfiguration
    var time: GatewayTime
    /// By app: registered devices.
    var cids: [[String]] = [[], []]
    /// The secrets of registered devices by cid.
    var secrets: [String: [UInt8]] = [:]
    /// By app: tokens of the push API; the first one stays valid.
    var tokens: [[String]] = [[], []]
    var tasks = RecentWords()
    var messages = RecentWords()
    /// Leased jobs, `"jobId":"…","leaseId":"…"`.
    var leases = RecentWords()
    var requestCount = 0
    /// The bytes left for further bodies of this input.
    var byteBudget = 0

    init(_ configuration: GatewayConfiguration, time: GatewayTime) {
        (self.configuration, self.time) = (configuration, time)
    }

    static let appIDs = ["one", "two"]
    static let aliases = (0..<6).map { "alias\($0)" }
    static let tags = (0..<6).map { "tag\($0)" }

    func app(_ index: Int) -> AppConfiguration {
        configuration.app(id: Self.appIDs[index]) ?? configuration.apps[0]
    }

    /// Records the names in an answer.
    func read(_ body: ArraySlice<UInt8>) {
        guard body.count < 64 << 10 else { return }
        var place = body.startIndex
        let end = body.endIndex
        while place + 34 < end {
            defer { place += 1 }
            switch body[place] {
            case UInt8(ascii: "R") where body[place + 1] == UInt8(ascii: "A") && body[place + 2] == UInt8(ascii: "S"):
                tasks.add(String(decoding: body[place..<place + 34], as: UTF8.self))
                place += 33
            case UInt8(ascii: "j") where place + 48 < end && body[place...].starts(with: #"jobId":"#.utf8):
                jobAt = String(decoding: body[(place + 8)..<(place + 40)], as: UTF8.self)
                messages.add(jobAt)
                place += 39
            case UInt8(ascii: "l") where place + 50 < end && body[place...].starts(with: #"leaseId":"#.utf8):
                let lease = String(decoding: body[(place + 10)..<(place + 42)], as: UTF8.self)
                leases.add(#""jobId":"\#(jobAt)","leaseId":"\#(lease)""#)
                place += 41
            default: break
            }
        }
    }

    private var jobAt = ""
}

/// The most recent names of one kind.
struct RecentWords {
    private var words: [String] = []
    private var next = 0
    static let limit = 64

    mutating func add(_ word: String) {
        if words.count < Self.limit {
            words.append(word)
        } else {
            words[next % Self.limit] = word
        }
        next += 1
    }

    func pick(_ script: inout Script, otherwise: String) -> String {
        guard !words.isEmpty, script.choice(16) != 0 else { return otherwise }
        return words[script.choice(words.count)]
    }
}

/// A JSON writer that does not check the meaning.
struct JSONText {
    private(set) var bytes: [UInt8] = []
    private var needsComma = false

    mutating func object(_ body: (inout JSONText) -> Void) { nest("{", body, "}") }
    mutating func array(_ body: (inout JSONText) -> Void) { nest("[", body, "]") }

    private mutating func nest(_ opening: String, _ body: (inout JSONText) -> Void, _ closing: String) {
        value(opening)
        needsComma = false
        body(&self)
        bytes += closing.utf8
        needsComma = true
    }

    mutating func key(_ name: String) {
        value("\"\(name)\":")
        needsComma = false
    }

    mutating func value(_ text: some StringProtocol) {
        if needsComma { bytes.append(UInt8(ascii: ",")) }
        bytes += text.utf8
        needsComma = true
    }

    /// Appends a string; `content` is already escaped.
    mutating func text(_ content: some Sequence<UInt8>) {
        value("\"")
        bytes += content
        bytes.append(UInt8(ascii: "\""))
    }

    mutating func text(_ content: String) { text(content.utf8) }

    mutating func member(_ name: String, _ content: some Sequence<UInt8>) {
        key(name)
        text(content)
    }

    mutating func member(_ name: String, _ content: String) { member(name, content.utf8) }

    mutating func member(_ name: String, number: some BinaryInteger) {
        key(name)
        value("\(number)")
    }

    /// Appends an array of the same element.
    mutating func repeated(_ element: String, count: Int) {
        guard count > 0 else { return }
        value(element)
        let more = Array(("," + element).utf8)
        bytes.reserveCapacity(bytes.count + more.count * (count - 1))
        for _ in 1..<max(1, count) { bytes += more }
    }
}

extension Script {
    /// Returns a size that is usually small, and otherwise at or above a limit.
    mutating func size(_ limit: Int) -> Int {
        switch choice(20) {
        case 0...13: min(limit, 1 + choice(6))
        case 14: max(0, limit - 1)
        case 15: limit
        case 16: limit + 1
        case 17: 0
        case 18: limit / 2
        default: limit * 2
        }
    }

    /// Returns a bound of the range or the number just outside it.
    mutating func edge(_ range: ClosedRange<Int64>) -> Int64 {
        let (low, high) = (range.lowerBound, range.upperBound)
        return pick([low, low &+ 1, low &- 1, high, high &- 1, high &+ 1, low &+ (high &- low) / 2])
    }

    /// Returns the escaped content of a JSON string of up to `limit` characters of 1 to 4 UTF-8 bytes.
    mutating func words(_ limit: Int) -> [UInt8] {
        let unit = pick(["a", "b", "中", "\\\"", "😀", "\\u00e9", "\\ud83d\\ude00", " "])
        let count = size(limit)
        if count < 8, choice(4) == 0 { return Array("w\(byte())".utf8) }
        return Array([[UInt8]](repeating: Array(unit.utf8), count: count).joined())
    }
}
