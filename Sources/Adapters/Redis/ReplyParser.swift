// A parser of replies on top of hiredis. hiredis keeps the state of partial replies. The reply objects are created here, so that
// an array count sent by a server does not reserve memory.

internal import CHiredis

package struct MalformedReply: Error, Equatable {
    package let what: String
}

/// An incremental parser of replies; malformed input only causes an error: hiredis bounds the nesting (7), and the parser bounds
/// the bytes and elements of a reply.
package struct ReplyParser: ~Copyable {
    private let reader: UnsafeMutablePointer<redisReader>
    private let builder: ReplyBuilder
    private let byteLimit: Int
    /// The number of bytes of incomplete replies.
    private var unfinishedByteCount = 0

    /// - Parameters:
    ///   - byteLimit: the maximum size of a reply.
    ///   - elementLimit: the maximum number of parts of a reply, including the reply itself.
    package init(byteLimit: Int = Limits.replyByteCount, elementLimit: Int = Limits.replyElementCount) {
        self.byteLimit = byteLimit
        builder = ReplyBuilder(elementLimit: elementLimit)
        guard let reader = redisReaderCreateWithFunctions(ReplyBuilder.functions) else {
            preconditionFailure("no memory for a parser of replies")
        }
        self.reader = reader
        // Not retained: the parser owns both objects and frees the reader first.
        reader.pointee.privdata = Unmanaged.passUnretained(builder).toOpaque()
    }

    deinit { redisReaderFree(reader) }

    package mutating func feed(_ bytes: UnsafeRawBufferPointer) throws(MalformedReply) {
        guard let start = bytes.baseAddress, !bytes.isEmpty else { return }
        unfinishedByteCount += bytes.count
        guard redisReaderFeed(reader, start.assumingMemoryBound(to: CChar.self), bytes.count) == REDIS_OK else {
            throw failure
        }
    }

    /// Returns the next complete reply, or `nil` if more bytes are needed.
    package mutating func next() throws(MalformedReply) -> RedisReply? {
        var object: UnsafeMutableRawPointer?
        guard redisReaderGetReply(reader, &object) == REDIS_OK else { throw failure }
        guard object != nil, let reply = builder.take() else {
            if unfinishedByteCount > byteLimit { throw MalformedReply(what: "a reply of more than \(byteLimit) bytes") }
            return nil
        }
        unfinishedByteCount = reader.pointee.len - reader.pointee.pos
        return reply
    }

    private var failure: MalformedReply {
        if builder.isOverLimit { return MalformedReply(what: "a reply of more than \(builder.elementLimit) parts") }
        let text = withUnsafeBytes(of: reader.pointee.errstr) { bytes in
            String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
        }
        return MalformedReply(what: text)
    }
}

/// Assembles the elements that the reader reports depth first.
private final class ReplyBuilder {
    private struct Open {
        var elementCount: Int
        var elements: [RedisReply] = []
    }

    let elementLimit: Int
    private var open: [Open] = []
    private var whole: RedisReply?
    private var count = 0
    private(set) var isOverLimit = false

    init(elementLimit: Int) { self.elementLimit = elementLimit }

    func take() -> RedisReply? {
        defer { (whole, count) = (nil, 0) }
        return whole
    }

    /// Adds an element; returns `false` if the reply has too many parts.
    func add(_ reply: RedisReply) -> Bool {
        guard isWithinLimit() else { return false }
        close(reply)
        return true
    }

    func beginArray(_ elementCount: Int) -> Bool {
        guard isWithinLimit() else { return false }
        if elementCount == 0 { close(.array([])) } else { open.append(Open(elementCount: elementCount)) }
        return true
    }

    private func isWithinLimit() -> Bool {
        count += 1
        isOverLimit = isOverLimit || count > elementLimit
        return !isOverLimit
    }

    private func close(_ reply: RedisReply) {
        var reply = reply
        while !open.isEmpty {
            open[open.count - 1].elements.append(reply)
            guard open[open.count - 1].elements.count == open[open.count - 1].elementCount else { return }
            reply = .array(open.removeLast().elements)
        }
        whole = reply
    }

    private static func of(_ task: UnsafePointer<redisReadTask>?) -> ReplyBuilder? {
        task?.pointee.privdata.map { Unmanaged<ReplyBuilder>.fromOpaque($0).takeUnretainedValue() }
    }

    /// Returns a placeholder object: the reader only checks whether the pointer is null.
    private static func mark(_ isTaken: Bool) -> UnsafeMutableRawPointer? {
        isTaken ? UnsafeMutableRawPointer(bitPattern: 8) : nil
    }

    /// The reader's callbacks, shared by all parsers and never freed.
    nonisolated(unsafe) static let functions: UnsafeMutablePointer<redisReplyObjectFunctions> = {
        // Safe: the memory is written once here and only read afterwards.
        let functions = UnsafeMutablePointer<redisReplyObjectFunctions>.allocate(capacity: 1)
        functions.initialize(
            to: redisReplyObjectFunctions(
                createString: { task, text, count in
                    guard let builder = of(task), let task else { return nil }
                    let bytes = UnsafeRawBufferPointer(start: text, count: count)
                    let reply: RedisReply =
                        switch task.pointee.type {
                        case REDIS_REPLY_STATUS: .status(String(decoding: bytes, as: UTF8.self))
                        case REDIS_REPLY_ERROR: .error(RedisFault(String(decoding: bytes, as: UTF8.self)))
                        default: .bytes(Array(bytes))
                        }
                    return mark(builder.add(reply))
                },
                createArray: { task, count in mark(of(task)?.beginArray(Int(count)) ?? false) },
                createInteger: { task, number in mark(of(task)?.add(.integer(number)) ?? false) },
                createNil: { task in mark(of(task)?.add(.none) ?? false) },
                // Nothing to free: the reply builder owns the objects.
                freeObject: { _ in }))
        return functions
    }()
}
