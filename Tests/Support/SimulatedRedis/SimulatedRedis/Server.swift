/// One simulated server: its data, its place in the cluster and its faults.
struct Server {
    let number: Int
    var data = Keyspace()
    var shard: Int
    /// The primary's number; `nil` on a primary.
    var primary: Int?
    var isUp = true
    /// The number of starts; connections of an earlier start are broken.
    var life = 0
    /// The server does not answer before this time.
    var stalledUntil: Int64 = 0
    /// The server answers `-LOADING` before this time.
    var loadingUntil: Int64 = 0
    /// Whether a replica receives nothing from its primary.
    var isCutOff = false
    /// Whether this is a former primary that does not know of its successor; it accepts writes, but no replica follows it.
    var isForgotten = false
    /// The changes made as a primary: the effects of each command, and when it ran.
    var history: [(effects: [[Bytes]], time: Int64)] = []
    /// On a replica: the number of applied entries of the primary's history; -1 requests a full copy.
    var applied = -1
    /// Commands that arrived and have not run.
    var waiting: [(time: Int64, words: [[Bytes]])] = []
    var settings: [String: String]

    var host: String { "10.0.0.\(number + 1)" }
    var port: Int { 6379 }
    /// The node id: 40 hex digits.
    var identity: String {
        let text = String(number + 1, radix: 16)
        return String(repeating: "0", count: 40 - text.count) + text
    }

    init(number: Int, shard: Int, primary: Int?, settings: [String: String]) {
        (self.number, self.shard, self.primary, self.settings) = (number, shard, primary, settings)
    }

    mutating func crash() {
        isUp = false
        life += 1
        waiting = []
        data.forgetScripts()
    }
}

enum Slots {
    static let count = 16_384

    /// Returns the slot of a key: CRC16 (XMODEM) of the key, or of the part between its first braces.
    static func slot(of key: Bytes) -> Int {
        var part = key[...]
        if let begin = key.firstIndex(of: UInt8(ascii: "{")),
            let end = key[(begin + 1)...].firstIndex(of: UInt8(ascii: "}")), end > begin + 1
        {
            part = key[(begin + 1)..<end]
        }
        var crc: UInt16 = 0
        for byte in part {
            crc ^= UInt16(byte) << 8
            for _ in 0..<8 { crc = crc & 0x8000 != 0 ? crc << 1 ^ 0x1021 : crc << 1 }
        }
        return Int(crc) % count
    }
}
