import Delivery
import Directory
import Testing
import Wire

@testable import Gateway

@Suite("Operations on names, over partitions")
struct DirectoryHandlerTests {
    private let partitions = FakePartitions(partitionCount: 4)
    private let app = AppKey(0xA99)

    private func device(_ number: UInt16) -> DevicePlace {
        DevicePlace(cid: DeviceID(high: 1, low: UInt64(number)), bucket: Bucket(number))
    }

    @Test("each step goes to the partition of its bucket, and the last answer completes the operation")
    func steps() {
        let handler = DirectoryHandler(partitions)
        var outcomes: [ItemOutcome] = []
        let devices = (0..<8).map { device(UInt16($0)) }
        #expect(handler.run(.each(devices, .setBlacklisted(true)), app: app) { outcomes = $0.outcomes })
        #expect(partitions.open.map(\.partition) == [0, 1, 2, 3, 0, 1, 2, 3] && handler.hasWorkUnderWay)
        partitions.answerAll { request, partition in
            let command = request as? DirectoryCommand
            #expect(command?.bucket.loop(of: 4) == partition && command?.app == app)
            // Partition 2 is being moved; partition 3 is unknown.
            return switch partition {
            case 2: nil
            case 3: DirectoryReply.unknown
            default: DirectoryReply.done
            }
        }
        #expect(outcomes == [.done, .done, .failed, .unknown, .done, .done, .failed, .unknown])
        #expect(!handler.hasWorkUnderWay)
    }

    @Test("a late answer has no effect, and one of the wrong form counts as missing")
    func strayAnswers() throws {
        let handler = DirectoryHandler(partitions)
        var ends: [[ItemOutcome]] = []
        #expect(handler.run(.each([device(1)], .describe), app: app) { ends.append($0.outcomes) })
        let question = try #require(partitions.open.first)
        question.answer("no reply of a directory")
        question.answer(DirectoryReply.done)
        #expect(ends == [[.failed]])
    }

    @Test("a token change that a partition refuses is retried every second, but only its missing part")
    func lateTokens() throws {
        let handler = DirectoryHandler(partitions)
        func name(_ bucket: UInt16) -> AliasName {
            AliasName(high: UInt64(bucket) << 52 | 7, low: 8, type: 0, text: "token \(bucket)")
        }
        handler.follow(
            TokenNews(
                app: app, cid: device(5).cid, bucket: device(5).bucket,
                claims: [TokenStamp(name: name(1), stamp: 9), TokenStamp(name: name(2), stamp: 9)], releases: []))
        var asked: [Int] = []
        func answer(isAway: Bool) {
            partitions.answerAll { request, partition in
                // The device confirms the received part.
                guard case .takeToken? = (request as? DirectoryCommand)?.step else { return DirectoryReply.done }
                asked.append(partition)
                return partition == 2 && isAway ? nil : DirectoryReply.tokenTaken
            }
        }
        answer(isAway: true)
        #expect(asked.sorted() == [1, 2] && !handler.hasWorkUnderWay)
        for _ in 0..<3 {
            asked = []
            handler.tick()
            answer(isAway: true)
            #expect(asked == [2])
        }
        handler.tick()
        answer(isAway: false)
        asked = []
        handler.tick()
        #expect(partitions.open.isEmpty && asked.isEmpty)
    }
}
