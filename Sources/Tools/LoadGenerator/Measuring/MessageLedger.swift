/// The state of each message of one worker: due time, answered, delivered.
///
/// The ledger counts losses and repeats. A message takes eight bytes, in chunks that are freed once all their messages are
/// finished. Memory therefore depends on the outstanding messages, not on the length of the run.
struct MessageLedger: ~Copyable {
    struct Event: Equatable {
        var dueAt: Int64
        /// Whether the message was published in the measured time.
        var isMeasured: Bool
        var isFinished: Bool
    }

    enum Outcome: Equatable {
        case first(Event)
        case repeated
        /// This worker never published the message.
        case unknown
    }

    struct Remainder: Equatable, Sendable {
        var unanswered = 0
        /// The number of accepted messages that were never delivered.
        var undelivered = 0
    }

    private static let chunkShift = 15
    private static let chunkCount = 1 << chunkShift
    private static let delivered: UInt64 = 1, answered: UInt64 = 2, measured: UInt64 = 4, flagBits: UInt64 = 3

    /// The chunks; a finished chunk is `nil`.
    private var chunks: [UnsafeMutablePointer<UInt64>?] = []
    private var unfinished: [Int] = []
    private(set) var count: UInt64 = 0

    deinit { for chunk in chunks { chunk?.deallocate() } }

    /// Adds a message and returns its number; numbers are consecutive from 0.
    mutating func append(dueAt: Int64, isMeasured: Bool) -> UInt64 {
        let slot = Int(count) & (Self.chunkCount - 1)
        if slot == 0 {
            chunks.append(.allocate(capacity: Self.chunkCount))
            unfinished.append(Self.chunkCount)
        }
        chunks[chunks.count - 1]![slot] = UInt64(bitPattern: dueAt) << 3 | (isMeasured ? Self.measured : 0)
        defer { count &+= 1 }
        return count
    }

    mutating func markDelivered(_ number: UInt64) -> Outcome {
        mark(number, Self.delivered, unless: Self.delivered)
    }

    mutating func markAccepted(_ number: UInt64) -> Outcome {
        mark(number, Self.answered, unless: Self.answered)
    }

    /// Marks a refused message as answered and finished.
    mutating func markRefused(_ number: UInt64) -> Outcome {
        mark(number, Self.answered | Self.delivered, unless: Self.answered)
    }

    func remainder() -> Remainder {
        var result = Remainder()
        for (index, chunk) in chunks.enumerated() {
            guard let chunk else { continue }
            let used = min(Self.chunkCount, Int(count) - (index << Self.chunkShift))
            for slot in 0..<used {
                switch chunk[slot] & Self.flagBits {
                case Self.delivered, 0: result.unanswered += 1
                case Self.answered: result.undelivered += 1
                default: break
                }
            }
        }
        return result
    }

    private mutating func mark(_ number: UInt64, _ flags: UInt64, unless flag: UInt64) -> Outcome {
        guard number < count else { return .unknown }
        let index = Int(number) >> Self.chunkShift
        guard let chunk = chunks[index] else { return .repeated }
        let slot = Int(number) & (Self.chunkCount - 1)
        let word = chunk[slot]
        guard word & flag == 0 else { return .repeated }
        chunk[slot] = word | flags
        let isFinished = (word | flags) & Self.flagBits == Self.flagBits
        if isFinished {
            unfinished[index] -= 1
            if unfinished[index] == 0 {
                chunk.deallocate()
                chunks[index] = nil
            }
        }
        return .first(
            Event(dueAt: Int64(word >> 3), isMeasured: word & Self.measured != 0, isFinished: isFinished))
    }
}
