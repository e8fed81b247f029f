import Foundation
import Testing
import Wire

@testable import LongwireClient

@Suite("Messages as a sequence")
struct MessageChannelTests {
    private static func message(_ sequence: UInt64) -> ReceivedMessage { ReceivedMessage(CoreDriver.deliver(sequence)) }

    private final class Verdicts: Sendable {
        let list = Guarded<[(UInt64, MessageVerdict)]>([])

        var channel: MessageChannel {
            MessageChannel { message, verdict in
                self.list.withValue { $0.append((message.sequence, verdict)) }
            }
        }

        var processed: [UInt64] { list.withValue { list in list.filter { $0.1 == .processed }.map(\.0) } }
        var deferred: [UInt64] { list.withValue { list in list.filter { $0.1 == .deferred }.map(\.0) } }
    }

    @Test("without a loop messages queue up and can be taken back")
    func withoutLoop() {
        let verdicts = Verdicts()
        let channel = verdicts.channel
        for sequence in UInt64(1)...3 { #expect(channel.offer(Self.message(sequence)) == nil) }
        #expect(channel.withdraw().map(\.sequence) == [1, 2, 3])
        #expect(channel.withdraw().isEmpty)
    }

    @Test("the waiting messages of a revoked task are taken back alone")
    func ofTask() {
        let channel = Verdicts().channel
        let task = TaskID(high: 1, low: 2)
        for sequence in UInt64(1)...3 {
            _ = channel.offer(ReceivedMessage(CoreDriver.deliver(sequence) { if sequence == 2 { $0.taskID = task } }))
        }
        #expect(channel.withdraw(task).map(\.sequence) == [2])
        #expect(channel.withdraw().map(\.sequence) == [1, 3])
    }

    @Test("a request for the next message processes the previous one; a loop that ends leaves its message unacked")
    func verdicts() async {
        let verdicts = Verdicts()
        let channel = verdicts.channel
        for sequence in UInt64(1)...4 { _ = channel.offer(Self.message(sequence)) }
        for await message in ReceivedMessages(channel: channel) where message.sequence == 3 { break }
        #expect(verdicts.processed == [1, 2] && verdicts.deferred == [3])
        #expect(channel.withdraw().map(\.sequence) == [4], "the loop took one at a time")
    }

    @Test("the loop's own verdict precedes that, and counts once")
    func finish() async {
        let verdicts = Verdicts()
        let channel = verdicts.channel
        for sequence in UInt64(1)...2 { _ = channel.offer(Self.message(sequence)) }
        #expect(!channel.decide(Self.message(1), .processed), "no loop has it")
        for await message in ReceivedMessages(channel: channel) {
            if message.sequence == 1 {
                #expect(channel.decide(message, .rejected(reason: "not for us")))
                #expect(!channel.decide(message, .processed))
            } else {
                #expect(channel.decide(message, .processed))
                break
            }
        }
        #expect(verdicts.list.withValue { $0.map(\.1) } == [.rejected(reason: "not for us"), .processed])
    }

    @Test("a stop ends the loops and drops queued messages; a loop's message may still get a verdict")
    func close() async {
        let verdicts = Verdicts()
        let channel = verdicts.channel
        for sequence in UInt64(1)...2 { _ = channel.offer(Self.message(sequence)) }
        var seen: [UInt64] = []
        for await message in ReceivedMessages(channel: channel) {
            seen.append(message.sequence)
            channel.close()
        }
        #expect(seen == [1] && verdicts.processed == [1])
        #expect(channel.offer(Self.message(3)) == .deferred)
        channel.open()
        #expect(channel.withdraw().isEmpty)
    }

    @Test("while one loop has a message another one waits, and gets the next after the first one's verdict")
    func twoLoops() async {
        let verdicts = Verdicts()
        let channel = verdicts.channel
        for sequence in UInt64(1)...2 { _ = channel.offer(Self.message(sequence)) }
        let (first, second) = (channel.makeReader(), channel.makeReader())
        #expect(await channel.next(reader: first)?.sequence == 1)
        async let later = channel.next(reader: second)
        channel.leave(first)
        #expect(await later?.sequence == 2)
        #expect(verdicts.deferred == [1])
    }

    @Test("a copy of a loop's message is not given to the next loop")
    func copy() async {
        let verdicts = Verdicts()
        let channel = verdicts.channel
        _ = channel.offer(Self.message(1))
        let reader = channel.makeReader()
        #expect(await channel.next(reader: reader)?.sequence == 1)
        _ = channel.offer(Self.message(1))
        #expect(channel.withdraw().isEmpty)
        channel.leave(reader)
        #expect(verdicts.deferred == [1])
    }

    @Test("a cancelled task ends its loop")
    func cancelled() async {
        let channel = MessageChannel { _, _ in }
        let task = Task { for await _ in ReceivedMessages(channel: channel) {} }
        task.cancel()
        await task.value
    }

    @Test("a service extension's notes are taken twice, so that a crash in between loses none, and not more often")
    func notes() throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("longwire-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let notes = NotificationReports(path: folder.path + "/shown")
        let ids = (1...3).map { MessageID(high: 1, low: UInt64($0)) }
        #expect(notes.take() == [])
        // Half a line, as a full disk leaves it.
        try Data("00a1b2".utf8).write(to: URL(fileURLWithPath: folder.path + "/shown"))
        try notes.addShown(ids[0])
        try notes.addShown(ids[1])
        #expect(notes.take() == [ids[0], ids[1]])
        try notes.addShown(ids[2])
        #expect(notes.take() == ids)
        #expect(notes.take() == [ids[2]])
        #expect(notes.take() == [])
    }
}
