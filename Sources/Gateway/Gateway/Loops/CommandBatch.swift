internal import Delivery
internal import Wire

/// Publish commands for another loop, with all their bytes in one arena.
///
/// SAFETY: `@unchecked Sendable` is sound because one loop fills the batch, passes it on whole and never accesses it again.
final class CommandBatch: @unchecked Sendable {
    private struct Entry {
        var command: PublishCommand
        var offset: Int
        /// The sizes of payload, collapse key, title and body; the views in the contents keep their own sizes.
        var byteCounts: (Int32, Int32, Int32, Int32)
        /// The size of the custom callback, whose bytes follow the contents.
        var callbackByteCount: Int32
    }

    /// The size at which a batch is closed and the next one begins; the limit bounds the allocation of one turn.
    static let byteLimit = 4 << 20

    /// The largest arena, in bytes, that is kept for reuse.
    private static let keptByteCount = 256 << 10

    /// The prefetch distance in commands: a command takes about 2 µs, a memory access about 0.1 µs.
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

    /// Removes the commands and keeps the memory; returns `false` if the arena is too large to keep.
    func empty() -> Bool {
        entries.removeAll(keepingCapacity: true)
        byteCount = 0
        return capacity <= Self.keptByteCount
    }

    /// Writes the number of the requesting gateway into the commands' origins.
    func setAsker(_ node: Int) {
        for index in entries.indices {
            entries[index].command.origin = entries[index].command.origin.asked(by: node)
        }
    }

    /// Copies the command and all bytes that it points to.
    func append(_ command: borrowing PublishCommand) {
        var copy = copy command
        let offset = byteCount
        let empty = UnsafeRawBufferPointer(start: nil, count: 0)
        let counts = (add(copy.payload), add(copy.collapseKey), add(copy.alertTitle), add(copy.alertBody))
        // The source bytes of these views are freed before the command is read. Only the lengths of the views remain valid.
        copy.contents.forEach { content in
            _ = add(content.body)
            _ = add(content.collapseID)
        }
        let callbackByteCount = add(copy.customCallback)
        (copy.payload, copy.collapseKey, copy.alertTitle, copy.alertBody) = (empty, empty, empty, empty)
        copy.customCallback = empty
        entries.append(
            Entry(command: copy, offset: offset, byteCounts: counts, callbackByteCount: callbackByteCount))
    }

    /// Passes each command to `body` with its pointers set; the pointers are valid only during the call.
    ///
    /// `foresee` receives the device of a later command, for a prefetch.
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
            let end = command.contents.point(at: arena + offset)
            if entry.callbackByteCount > 0 {
                command.customCallback = UnsafeRawBufferPointer(start: end, count: Int(entry.callbackByteCount))
            }
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
