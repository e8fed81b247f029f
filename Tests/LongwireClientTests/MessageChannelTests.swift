import Foundation
import Testing
import Wire

@testable import LongwireClient

@Suite("Messages as a sequence")
struct MessageChannelTests {
    private static func message(_ sequence: UInt64) -> ReceivedMessage { ReceivedMessage(CoreDriver.deliver(sequence)) }

    /// Offers messages as the client's thread does; the verdicts come when all are decided.
    private static func offer(_ sequences: ClosedRange<UInt64>, to channel: MessageChannel) async -> [MessageVerdict] {
        await withCheckedContinuation { continuation in
            let hasThread = ClientThread.start {
                continuation.resume(returning: sequences.map { channel.offer(message($0)) })
            }
            #expect(hasThread)
        }
    }

    @Test("asking for the next message processes the one before; a loop that is left leaves its message un-acked")
    func verdicts() async {
        let channel = MessageChannel()
        async let verdicts = Self.offer(1...3, to: channel)
        for await message in ReceivedMessages(channel: channel) where message.sequence == 3 { break }
        #expect(await verdicts == [.processed, .processed, .deferred])
    }

    @Test("a verdict of the loop's own comes before that, once")
    func finish() async {
        let channel = MessageChannel()
        async let verdicts = Self.offer(1...2, to: channel)
        for await message in ReceivedMessages(channel: channel) {
            if message.sequence == 1 {
                #expect(channel.decide(message, .rejected(reason: "not for us")))
                #expect(!channel.decide(message, .processed))
            } else {
                #expect(channel.decide(message, .processed))
                break
            }
        }
        #expect(await verdicts == [.rejected(reason: "not for us"), .processed])
    }

    @Test("a stop ends the loops, and defers what no loop has")
    func close() async {
        let channel = MessageChannel()
        async let reader: [UInt64] = {
            var seen: [UInt64] = []
            for await message in ReceivedMessages(channel: channel) { seen.append(message.sequence) }
            return seen
        }()
        #expect(await Self.offer(1...2, to: channel) == [.processed, .processed])
        channel.close()
        #expect(await reader == [1, 2])
        #expect(await Self.offer(3...3, to: channel) == [.deferred])
        channel.open()
        async let verdicts = Self.offer(4...4, to: channel)
        for await _ in ReceivedMessages(channel: channel) { break }
        #expect(await verdicts == [.deferred])
    }

    @Test("a cancelled task ends its loop")
    func cancelled() async {
        let channel = MessageChannel()
        let task = Task { for await _ in ReceivedMessages(channel: channel) {} }
        task.cancel()
        await task.value
    }

    @Test("a service extension's notes are taken twice, so that a crash between loses none, and no oftener")
    func notes() throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("longwire-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let notes = NotificationReports(path: folder.path + "/shown")
        let ids = (1...3).map { MessageID(high: 1, low: UInt64($0)) }
        #expect(notes.take() == [])
        try notes.addShown(ids[0])
        try notes.addShown(ids[1])
        #expect(notes.take() == [ids[0], ids[1]])
        try notes.addShown(ids[2])
        #expect(notes.take() == ids)
        #expect(notes.take() == [ids[2]])
        #expect(notes.take() == [])
    }
}
