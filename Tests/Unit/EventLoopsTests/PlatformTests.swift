import Foundation
import Glibc
import Platform
import Testing

@Suite("Platform")
struct PlatformTests {
    @Test("CRC32C matches the published check value, in one piece, in two, and continued")
    func checksum() {
        let text = Array("123456789".utf8)
        #expect(Checksum.crc32c(text.span.bytes) == 0xE306_9283)
        let first = Checksum.crc32c(text.span.bytes.extracting(first: 4))
        #expect(Checksum.crc32c(text.span.bytes.extracting(droppingFirst: 4), seed: first) == 0xE306_9283)
        #expect(Checksum.crc32c(text.span.bytes, seed: 1) != 0xE306_9283)
    }

    @Test("pieces are written consecutively, even if they exceed one call")
    func gatheredWrite() throws {
        try withTemporaryDirectory { folder in
            let bytes = (0..<5000).map { UInt8(truncatingIfNeeded: $0 &* 7) }
            let file = try File(path: folder + "/f", mode: .createNew)
            try bytes.withUnsafeBytes { all in
                var pieces: [UnsafeRawBufferPointer] = []
                var start = 0
                // Two bytes a piece yield 2,500 pieces, with empty ones in between.
                while start < all.count {
                    pieces.append(UnsafeRawBufferPointer(rebasing: all[start..<start + 2]))
                    pieces.append(UnsafeRawBufferPointer(start: nil, count: 0))
                    start += 2
                }
                try file.write(gathering: pieces, at: 3)
            }
            try file.synchronizeData()
            #expect(try FileSystem.read(folder + "/f") == [0, 0, 0] + bytes)
        }
    }

    @Test("a prepared file is all zeros, also where it had content before")
    func zeros() throws {
        try withTemporaryDirectory { folder in
            let file = try File(path: folder + "/f", mode: .createNew)
            try file.write([UInt8](repeating: 9, count: 5000).span.bytes, at: 0)
            try file.fillWithZeros(byteCount: 3000)
            #expect(try file.byteCount() == 3000)
            #expect(try FileSystem.read(folder + "/f") == [UInt8](repeating: 0, count: 3000))
        }
    }

    @Test("replacing a file leaves the new content and no draft")
    func replace() throws {
        try withTemporaryDirectory { folder in
            try FileSystem.createDirectory(folder + "/a/b")
            try FileSystem.replace(folder + "/a/b/f", with: [1, 2, 3])
            try FileSystem.replace(folder + "/a/b/f", with: [4])
            #expect(try FileSystem.read(folder + "/a/b/f") == [4])
            #expect(try FileSystem.list(folder + "/a/b") == ["f"])
            try FileSystem.removeTree(folder + "/a")
            #expect(try FileSystem.list(folder).isEmpty)
        }
    }

    @Test("a second holder of the lock file learns the first one's process, and succeeds after its end")
    func lockFile() throws {
        try withTemporaryDirectory { folder in
            let path = folder + "/lock"
            do {
                let first = try LockFile(path: path)
                let text = String(decoding: try FileSystem.read(path), as: UTF8.self)
                let process = try #require(Int32(text.dropLast()))
                #expect(throws: LockFile.Failure.heldByAnotherProcess(path: path, process: process)) {
                    _ = try LockFile(path: path)
                }
                _ = consume first
            }
            _ = try LockFile(path: path)
        }
    }

    @Test("a released lock is free although a copy of its descriptor stays open, as in a starting child")
    func lockWithCopiedDescriptor() throws {
        try withTemporaryDirectory { folder in
            let path = folder + "/lock"
            let lock = try LockFile(path: path)
            let open = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")
            let copies = open.compactMap { name -> CInt? in
                let target = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/" + name)
                return target == path ? CInt(name).map { dup($0) } : nil
            }
            defer { for copy in copies { close(copy) } }
            #expect(!copies.isEmpty)
            _ = consume lock
            _ = try LockFile(path: path)
        }
    }

    #if DEBUG
    @Test("a folder's name is on disk once it is created, and once a start finds it after an interruption")
    func foldersAreSynced() throws {
        try withTemporaryDirectory { folder in
            for number in 1...3 {
                let path = "\(folder)/\(number)/a/b"
                let failing = FaultPlan(folder: folder, kind: .error(5), at: number, extent: .once) { $0 == "fsync" }
                #expect(throws: SystemError.self) { try FileSystem.createDirectory(path) }
                failing.remove()
                try FileSystem.createDirectory(path)
                let parent = FaultPlan(folder: "\(folder)/\(number)/a", kind: .error(5), at: 1, extent: .once) {
                    $0 == "fsync"
                }
                #expect(throws: SystemError.self) { try FileSystem.createDirectory(path) }
                #expect(parent.hits == ["fsync \(folder)/\(number)/a"])
                parent.remove()
            }
        }
    }

    @Test("a failed replacement leaves no draft, and a successful one is on disk with its name")
    func replacedFile() throws {
        try withTemporaryDirectory { folder in
            let path = folder + "/file"
            var number = 1
            while true {
                let plan = FaultPlan(folder: folder, kind: .error(28), at: number, extent: .once) { $0 != "unlink" }
                defer { plan.remove() }
                if (try? FileSystem.replace(path, with: Array("new".utf8))) != nil { break }
                number += 1
                let names = try FileSystem.list(folder)
                #expect(names.allSatisfy { $0 == "file" })
            }
            // Open, write, sync, rename, and open and sync of the folder.
            #expect(number == 7)
            let content = try FileSystem.read(path)
            #expect(content == Array("new".utf8))
        }
    }
    #endif

    @Test("a missing file's error names the call and the path")
    func missingFile() {
        let error = #expect(throws: SystemError.self) { _ = try File(path: "/nowhere/at/all", mode: .read) }
        #expect(error?.isNotFound == true)
        #expect(error?.description == "open /nowhere/at/all: No such file or directory")
    }

    @Test("a bounded wait ends without a signal, and a signal ends an unbounded one")
    func monitor() throws {
        let monitor = Monitor(false)
        #expect(monitor.wait(atMostMilliseconds: 5, while: { !$0 }, then: { $0 }) == false)
        let thread = try Thread(named: "setter") { monitor.signal { $0 = true } }
        #expect(monitor.wait(while: { !$0 }, then: { $0 }))
        thread.join()
    }

    @Test("a hanging name server delays nothing beyond the bound, and its last answer is used")
    func hungNames() throws {
        let isHung = Lock(false), isOver = Lock(false)
        defer { isOver.withLock { $0 = true } }
        let count = Lock(0)
        let names = NameLookups { host, port in
            count.withLock { $0 += 1 }
            if isHung.withLock({ $0 }) { while !isOver.withLock({ $0 }) { Pause.milliseconds(5) } }
            return NameLookups.askSystem("127.0.0.1", port)
        }
        func resolve(_ host: String) throws -> [RemoteAddress] {
            try names.resolve(host: host, port: 80, timeoutMilliseconds: 100)
        }
        #expect(try resolve("known.test").map(\.host) == ["127.0.0.1"])
        // A literal address needs no name server.
        #expect(try resolve("127.0.0.2").map(\.host) == ["127.0.0.2"] && resolve("::1").map(\.host) == ["::1"])
        #expect(count.withLock { $0 } == 1)
        isHung.withLock { $0 = true }
        let began = SystemClock.monotonicMilliseconds
        #expect(try resolve("known.test").map(\.host) == ["127.0.0.1"])
        let failure = #expect(throws: RemoteAddress.Failure.self) { _ = try resolve("other.test") }
        #expect(failure?.description.contains("name server did not answer for other.test") == true)
        #expect(SystemClock.monotonicMilliseconds - began < 5_000)
        // One thread per name, with a bound on their number.
        for _ in 0..<20 { _ = try? names.resolve(host: "other.test", port: 80, timeoutMilliseconds: 1) }
        #expect(count.withLock { $0 } <= 3)
        for number in 0..<2 * NameLookups.threadLimit {
            _ = try? names.resolve(host: "n\(number).test", port: 80, timeoutMilliseconds: 1)
        }
        #expect(count.withLock { $0 } <= NameLookups.threadLimit + 1)
    }
}
