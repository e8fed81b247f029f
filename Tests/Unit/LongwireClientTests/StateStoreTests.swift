import Foundation
import Testing
import Wire

@testable import LongwireClient

@Suite("State")
struct StateStoreTests {
    private func sample() -> ClientState {
        var state = CoreDriver.registered
        (state.lastTimestamp, state.acceptedTimestamp, state.clockOffset) = (9, 8, -7)
        state.streams = [
            0: ProcessedSet(sequence: 4, ranges: [SequenceRange(first: 6, last: 9)]), 1: ProcessedSet(sequence: 2),
        ]
        state.opened = [MessageID(high: 1, low: 1), MessageID(high: 1, low: 2)]
        state.unreportedOpened = [MessageID(high: 1, low: 2)]
        state.unreported = [.shown(MessageID(high: 1, low: 3)), .action(90_001, MessageID(high: 1, low: 4))]
        state.keep(HeartbeatPlan(learnt: 60, ceiling: 300, failed: 90), on: "wifi \n")
        state.keep(HeartbeatPlan(learnt: 45, ceiling: 240, failed: 0), on: "")
        state.note(Rejected(stream: 1, sequence: 5, reason: "not\nfor us"))
        state.note(Rejected(sequence: 6))
        return state
    }

    private func withFolder(_ body: (String) throws -> Void) throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("longwire-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        try body(folder.path)
    }

    @Test("state survives writing and reading")
    func roundTrip() throws {
        for var state in [sample(), ClientState(appID: "a b\nc")] {
            #expect(try ClientState(serialized: state.serialized) == state)
            state.appID = ""
            #expect(try ClientState(serialized: state.serialized) == state)
        }
    }

    @Test("a truncated state, a newer one and an invalid line are refused as a whole")
    func refused() throws {
        let whole = sample().serialized
        for end in 0..<(whole.count - 1) {
            #expect(throws: LongwireClientError.self) { try ClientState(serialized: Array(whole[..<end])) }
        }
        func lines(_ text: String) -> [UInt8] {
            let text = Array("\(text)\n".utf8)
            return text + Array("check \(ClientState.checkSum(of: text))\nend\n".utf8)
        }
        #expect(try ClientState(serialized: lines("longwire state 1")) == ClientState(appID: ""))
        for text in [
            "longwire state 2", "longwire state 1\nheartbeat - 1 2", "longwire state 1\nheartbeat x 1 2 3",
            "longwire state 1\nshown 12", "longwire state 1\naction 1", "longwire state 1\nsurprise 1",
            "longwire state 1\ncid 12",
        ] {
            #expect(throws: LongwireClientError.self) { try ClientState(serialized: lines(text)) }
        }
        for text in [
            "longwire state 1\nend\n", "longwire state 1\ntimestamp 2 1\nend\n", "longwire state 1\n", "end\n",
        ] {
            #expect(throws: LongwireClientError.self) { try ClientState(serialized: Array(text.utf8)) }
        }
    }

    @Test("valid heartbeats of the eight last networks are kept")
    func heartbeats() throws {
        var state = ClientState(appID: "demo")
        for number in 0..<10 { state.keep(HeartbeatPlan(learnt: 60, ceiling: 300, failed: 90), on: "\(number)") }
        state.keep(HeartbeatPlan(learnt: 90, ceiling: 300, failed: 0), on: "3")
        #expect(state.heartbeats.map(\.network) == ["2", "4", "5", "6", "7", "8", "9", "3"])
        #expect(state.heartbeat(on: "3").learnt == 90 && state.heartbeat(on: "0").learnt == nil)
        for (learnt, ceiling) in [(7, 300), (400, 300), (0, 300)] as [(UInt32, UInt32)] {
            #expect(HeartbeatPlan(learnt: learnt, ceiling: ceiling, failed: 0).learnt == nil)
        }
        state.forgetRegistration()
        #expect(state.heartbeats.count == 8)
    }

    @Test("a file store starts empty, replaces atomically, restricts the secret to its owner, and leaves no other file")
    func file() throws {
        try withFolder { folder in
            let store = FileStateStore(path: folder + "/device.state")
            #expect(try store.load() == nil)
            var state = sample()
            try store.save(state)
            state.queueEpoch = 99
            try store.save(state)
            #expect(try FileStateStore(path: folder + "/device.state").load() == state)
            let mode = try FileManager.default.attributesOfItem(atPath: folder + "/device.state")[.posixPermissions]
            #expect(mode as? Int == 0o600)
            #expect(try FileManager.default.contentsOfDirectory(atPath: folder) == ["device.state"])
        }
    }

    @Test("files that a killed client left are removed at the next start, and no others")
    func drafts() throws {
        try withFolder { folder in
            let path = folder + "/device.state"
            try FileStateStore(path: path).save(sample())
            let kept = [
                "device.state.damaged", "device.state.new", "device.state.new-copy", "other.state.new1",
                "xdevice.state.new1",
            ]
            for name in kept + ["device.state.new3w5e11264sgsf", "device.state.new1"] {
                try Data("half".utf8).write(to: URL(fileURLWithPath: folder + "/" + name))
            }
            // A reader in another process, such as an extension, does not change the client's files.
            _ = try FileStateStore(path: path).load()
            #expect(try FileManager.default.contentsOfDirectory(atPath: folder).count == kept.count + 3)
            let client = LongwireClient(
                configuration: ClientConfiguration(host: "127.0.0.1", port: 1, appID: sample().appID),
                store: FileStateStore(path: path))
            try client.start()
            client.stop()
            #expect(
                Set(try FileManager.default.contentsOfDirectory(atPath: folder)) == Set(kept + ["device.state"]))
        }
    }

    @Test("a file that cannot be parsed or written is an error that names it, never an empty state")
    func damaged() throws {
        try withFolder { folder in
            let path = folder + "/device.state"
            try Data("rubbish".utf8).write(to: URL(fileURLWithPath: path))
            #expect(throws: LongwireClientError.self) { try FileStateStore(path: path).load() }
            #expect(throws: LongwireClientError.self) { try FileStateStore(path: folder + "/no/such").save(sample()) }
        }
    }

    @Test("one changed bit anywhere is detected, because too high a position would silently lose messages")
    func changedBit() throws {
        let whole = sample().serialized
        for index in whole.indices {
            var bytes = whole
            bytes[index] ^= 1
            do {
                _ = try ClientState(serialized: bytes)
                Issue.record("byte \(index) was believed")
            } catch {
                #expect(error.code == .stateDamaged)
            }
        }
    }

    @Test("of two clients on one file the second to write is refused, and the file stays the first one's")
    func twoClients() throws {
        try withFolder { folder in
            for isNew in [true, false] {
                let path = folder + "/\(isNew).state"
                if !isNew { try FileStateStore(path: path).save(sample()) }
                let (first, second) = (FileStateStore(path: path), FileStateStore(path: path))
                _ = (try first.load(), try second.load())
                var state = sample()
                state.queueEpoch = 7
                try first.save(state)
                #expect(throws: LongwireClientError.self) { try second.save(sample()) }
                state.queueEpoch = 8
                try first.save(state)
                #expect(try second.load() == state)
                try second.save(sample())
                #expect(throws: LongwireClientError.self) { try first.save(state) }
            }
            #expect(try FileManager.default.contentsOfDirectory(atPath: folder).count == 2)
        }
    }

    @Test("a damaged file can be set aside, and the device then registers again")
    func setAside() throws {
        try withFolder { folder in
            let path = folder + "/device.state"
            try Data("rubbish".utf8).write(to: URL(fileURLWithPath: path))
            let store = FileStateStore(path: path)
            do {
                _ = try store.load()
            } catch let error as LongwireClientError {
                #expect(error.code == .stateDamaged)
            }
            try store.setAside()
            #expect(try store.load() == nil)
            try store.save(sample())
            #expect(
                try FileManager.default.contentsOfDirectory(atPath: folder).sorted() == [
                    "device.state", "device.state.damaged",
                ])
            #expect(throws: LongwireClientError.self) { try FileStateStore(path: folder + "/none").setAside() }
        }
    }
}
