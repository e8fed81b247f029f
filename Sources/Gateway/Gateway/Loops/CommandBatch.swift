internal import Delivery
internal import Wire

/// Publish commands on their way to another loop, their bytes in one arena.
///
/// Sound to send because one loop fills it, gives it away whole and never looks again.
final class CommandBatch: @unchecked Sendable {
    private struct Entry {
        var command: PublishCommand
        var offset: Int
        /// Of the texts; a content's lengths are in its own views.
        var byteCounts: (Int32, Int32, Int32, Int32)
    }

    /// A batch over this is closed and the next begun, so that one turn's flood does not become one allocation.
    static let byteLimit = 4 << 20

    /// An arena over this is not kept for another turn.
    private static let keptByteCount = 256 << 10

    /// How far ahead devices are fetched: a command takes about two microseconds, memory a tenth of one.
    private static let foreseenCount = 2

    private var entries: [Entry] = []
    private var arena: UnsafeMutableRawPointer
    private var capacity: Int
    private(set) var byteCount = 0

    init() {
        capacity = 16 << 10
        arena = .allocate(byteCount: capacity, alignment: 16)
    }

    deinit { arena.deallocate() }

    var count: Int { entries.count }

    /// Forgets the commands and keeps the memory; false when that is too much to keep.
    func empty() -> Bool {
        entries.removeAll(keepingCapacity: true)
        byteCount = 0
        return capacity <= Self.keptByteCount
    }

    /// Writes into each command which other gateway asked for it.
    func setAsker(_ node: Int) {
        for index in entries.indices {
            entries[index].command.origin = entries[index].command.origin.asked(by: node)
        }
    }

    /// Copies the command and everything it points to.
    func append(_ command: borrowing PublishCommand) {
        var copy = copy command
        let offset = byteCount
        let empty = UnsafeRawBufferPointer(start: nil, count: 0)
        let counts = (add(copy.payload), add(copy.collapseKey), add(copy.alertTitle), add(copy.alertBody))
        // What these views point to is gone when the command is handed out: only their lengths count then.
        copy.contents.forEach { content in
            _ = add(content.body)
            _ = add(content.collapseID)
        }
        (copy.payload, copy.collapseKey, copy.alertTitle, copy.alertBody) = (empty, empty, empty, empty)
        entries.append(Entry(command: copy, offset: offset, byteCounts: counts))
    }

    /// Hands each command out with its pointers set; they are valid during the call.
    ///
    /// `foresee` gets the device of one that is some places behind.
    func forEach(foresee: (DeviceID) -> Void = { _ in }, _ body: (borrowing PublishCommand) -> Void) {
        for (index, entry) in entries.enumerated() {
            if index + Self.foreseenCount < entries.count { foresee(entries[index + Self.foreseenCount].command.cid) }
            var command = entry.command
            var offset = entry.offset
            func take(_ count: Int) -> UnsafeRawBufferPointer {
                defer { offset += count }
                return UnsafeRawBufferPointer(start: arena + offset, count: count)
            }
            command.payload = take(Int(entry.byteCounts.0))
            command.collapseKey = take(Int(entry.byteCounts.1))
            command.alertTitle = take(Int(entry.byteCounts.2))
            command.alertBody = take(Int(entry.byteCounts.3))
            _ = command.contents.point(at: arena + offset)
            body(command)
        }
    }

    private func add(_ bytes: UnsafeRawBufferPointer) -> Int32 {
        guard let source = bytes.baseAddress, bytes.count > 0 else { return 0 }
        if byteCount + bytes.count > capacity {
            capacity = max(capacity * 2, byteCount + bytes.count)
            let larger = UnsafeMutableRawPointer.allocate(byteCount: capacity, alignment: 16)
            larger.copyMemory(from: arena, byteCount: byteCount)
            arena.deallocate()
            arena = larger
        }
        (arena + byteCount).copyMemory(from: source, byteCount: bytes.count)
        byteCount += bytes.count
        return Int32(bytes.count)
    }
}
