/// One simulated server: its data, its place in the cluster, and what is wrong with it.
struct Server {
    let number: Int
    var data = Keyspace()
    /// Its shard's number.
    var shard: Int
    /// `nil` for a primary.
    var primary: Int?
    var isUp = true
    /// Counts its starts: connections of an earlier one are broken.
    var life = 0
    /// It answers nothing before this time.
    var stalledUntil: Int64 = 0
    /// It answers `-LOADING` before this time.
    var loadingUntil: Int64 = 0
    /// A replica that gets nothing from its primary.
    var isCutOff = false
    /// A former primary that has not heard of its successor: it takes writes, and nobody follows it.
    var isForgotten = false
    /// What it changed as a primary: each entry is one command's effects, and when it ran.
    var history: [(effects: [[Bytes]], time: Int64)] = []
    /// As a replica: how much of its primary's history it has; -1 asks for a copy of all.
    var applied = -1
    /// Commands that arrived and have not run.
    var waiting: [(time: Int64, words: [[Bytes]])] = []
    var settings: [String: String]

    var host: String { "10.0.0.\(number + 1)" }
    var port: Int { 6379 }
    /// Forty digits, as a cluster's nodes have them.
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

    /// The slot of a key: CRC16 (XMODEM) of the key, or of what stands between its first braces.
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
