internal import Glibc
internal import Journal
internal import Platform

/// A journal segment as a faulty disk could return it.
///
/// Input: a byte for the kind. Then either the segment's bytes, or a script of records with valid checksums and any content,
/// followed by a script of damage.
enum JournalFuzz {
    private static let generation: UInt64 = 1

    static func run(_ input: [UInt8]) throws {
        var script = Script(input)
        switch script.choice(3) {
        case 0: _ = try recover(script.rest())
        case 1: try strangeRecords(&script)
        default: try damagedRecords(&script)
        }
    }

    /// Returns what a start reads from a segment with these bytes; `nil` if it refuses the journal.
    private static func recover(_ bytes: [UInt8]) throws -> [Visited]? {
        let folder = try ScratchFolder()
        let segments = SegmentFolder(path: folder.path)
        folder.write("segment-0000000000000001", bytes)
        do {
            let recovery = try Recovery(folder: segments)
            var visited: [Visited] = []
            for segment in recovery.segments {
                try require(segment.end <= bytes.count, "records behind the end of the file")
                try recovery.replay(segment) { visited.append(Visited($0)) }
            }
            try require(visited.count * 2 <= bytes.count, "more operations than bytes")
            return visited
        } catch let error as JournalError {
            guard case .damaged(let file, let offset, let what) = error else { throw error }
            try require(file.hasPrefix(folder.path) && !what.isEmpty, "damage without a place")
            try require((0...bytes.count).contains(offset), "damage at \(offset) of \(bytes.count)")
            return nil
        }
    }

    private struct Visited: Equatable {
        var item: UInt64
        var value: [UInt8]
        init(_ operation: Operation) { (item, value) = (operation.item, Array(operation.value)) }
        init(item: UInt64, value: [UInt8]) { (self.item, self.value) = (item, value) }
    }

    // MARK: Records

    /// Returns a segment header; `words` replace those at 16, 24 and 32, with any numbers.
    private static func header(fileByteCount: Int, words: (UInt64, UInt64, UInt64)? = nil) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: SegmentHeader.byteCount)
        let header = SegmentHeader(
            generation: generation, run: 1, segmentByteCount: fileByteCount, previousGeneration: 0, previousEnd: 0)
        bytes.withUnsafeMutableBytes { bytes in
            header.write(to: bytes)
            guard let words else { return }
            bytes.storeBytes(of: words.0, toByteOffset: 16, as: UInt64.self)
            bytes.storeBytes(of: words.1, toByteOffset: 24, as: UInt64.self)
            bytes.storeBytes(of: words.2, toByteOffset: 32, as: UInt64.self)
            seal(bytes, byteCount: 56)
        }
        return bytes
    }

    private static func record(
        _ body: [UInt8], operationCount: Int, bodyByteCount: UInt32? = nil, groupStart: UInt64
    ) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: RecordHeader.recordByteCount(bodyByteCount: body.count))
        bytes.withUnsafeMutableBytes { bytes in
            guard let start = bytes.baseAddress else { return }
            bytes[RecordHeader.byteCount...].copyBytes(from: body)
            RecordHeader.write(
                bodyByteCount: body.count, bucket: 7, operationCount: operationCount,
                bodyChecksum: body.withUnsafeBytes { Checksum.crc32c($0) }, ticket: 1, to: start)
            if let bodyByteCount { start.storeBytes(of: bodyByteCount, as: UInt32.self) }
            RecordHeader.seal(start, generation: generation, groupStart: 0)
            start.storeBytes(of: UInt32(truncatingIfNeeded: groupStart), toByteOffset: 24, as: UInt32.self)
            seal(bytes, byteCount: 28)
        }
        return bytes
    }

    private static func seal(_ bytes: UnsafeMutableRawBufferPointer, byteCount: Int) {
        let checksum = Checksum.crc32c(
            UnsafeRawBufferPointer(rebasing: bytes[..<byteCount]), seed: RecordHeader.seed(generation: generation))
        bytes.storeBytes(of: checksum, toByteOffset: byteCount, as: UInt32.self)
    }

    /// Checks records with valid checksums and invalid content, which only the reader's own checks can reject.
    private static func strangeRecords(_ script: inout Script) throws {
        var bytes: [UInt8] = []
        let count = script.choice(6)
        let words = (script.number(), script.number(), script.number())
        for _ in 0..<count {
            let operations = script.choice(4)
            let groupStart = script.flag() ? UInt64(SegmentHeader.byteCount) : script.number()
            let claimed = script.choice(4) == 0 ? UInt32(truncatingIfNeeded: script.number()) : nil
            bytes += record(
                script.bytes(upTo: 255), operationCount: operations, bodyByteCount: claimed, groupStart: groupStart)
        }
        _ = try recover(header(fileByteCount: 0, words: words) + bytes)
    }

    /// Checks a damaged journal: the records read are a prefix of those written, and all of them without damage.
    private static func damagedRecords(_ script: inout Script) throws {
        var bytes = [UInt8](repeating: 0, count: SegmentHeader.byteCount)
        var written: [Visited] = []
        var batchEnds: [Int] = []
        for _ in 0...script.choice(4) {
            let groupStart = bytes.count
            for _ in 0...script.choice(3) {
                var body: [UInt8] = []
                let operations = 1 + script.choice(3)
                for _ in 0..<operations { append(to: &body, &written, script.bytes(upTo: 24)) }
                bytes += record(body, operationCount: operations, groupStart: UInt64(groupStart))
                batchEnds.append(written.count)
            }
        }
        let end = bytes.count
        bytes += [UInt8](repeating: 0, count: 128)
        bytes.replaceSubrange(0..<SegmentHeader.byteCount, with: header(fileByteCount: bytes.count))
        let whole = try recover(bytes)
        try require(whole == written, "a whole journal is not read as it was written")
        guard !script.isAtEnd else { return }

        for _ in 0...script.choice(4) {
            let place = Int(script.byte()) << 8 | Int(script.byte())
            let mask = script.byte()
            bytes[place % end] ^= mask
        }
        if script.choice(8) == 0 { bytes.removeLast(script.choice(256) % bytes.count) }
        guard let found = try recover(bytes) else { return }
        try require(found == Array(written.prefix(found.count)), "something that was never written was read")
        try require(found.isEmpty || batchEnds.contains(found.count), "half a batch was read")
    }

    private static func append(to body: inout [UInt8], _ written: inout [Visited], _ value: [UInt8]) {
        let item = UInt64(written.count)
        let header = OperationHeader(
            .put, table: 2, prior: .nothing, ownerHigh: 1, ownerLow: 2, isOwnerAsBefore: !body.isEmpty, item: item,
            wakeAt: 0,
            coldAlarm: 0, valueByteCount: value.count)
        var operation = [UInt8](repeating: 0, count: header.byteCount)
        operation.withUnsafeMutableBytes { if let start = $0.baseAddress { header.write(to: start) } }
        body += operation + value
        written.append(Visited(item: item, value: value))
    }
}

/// A temporary folder for one input, removed in `deinit`.
private final class ScratchFolder {
    let path: String
    private var files: [String] = []

    init() throws {
        // A memory file system if available, because the target does not test the disk.
        let root = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"
        var template = Array("\(root)/longwire-fuzz-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw FuzzFailure(description: "no folder: \(errno)") }
        path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    func write(_ name: String, _ bytes: [UInt8]) {
        let file = open(path + "/" + name, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        guard file >= 0 else { return }
        _ = bytes.withUnsafeBytes { Glibc.write(file, $0.baseAddress, $0.count) }
        close(file)
        files.append(path + "/" + name)
    }

    deinit {
        for file in files { unlink(file) }
        rmdir(path)
    }
}
