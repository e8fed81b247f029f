internal import Cryptography
internal import Glibc

/// A Lua script that servers keep by its digest.
package struct RedisScript: Sendable, Equatable {
    package let source: String
    /// The SHA-1 of the source in hex, by which `EVALSHA` names it.
    package let digest: String

    package init(_ source: String) {
        self.source = source
        digest = SHA1.hex(Array(source.utf8))
    }
}

/// One command with its arguments, in the form in which they are sent.
package struct RedisCommand: Sendable, Equatable {
    /// The arguments one after the other, each as the protocol's bulk string.
    private(set) var body: [UInt8] = []
    package private(set) var argumentCount = 0
    /// The script that an `EVALSHA` calls: it is sent whole to a server that does not have it.
    package private(set) var script: RedisScript?
    /// Where the arguments behind the script's name begin.
    private var restOffset = 0

    /// A command, its name first.
    package init(_ arguments: any RedisArgument...) {
        for argument in arguments { argument.append(to: &self) }
    }

    /// A call of a script; the script's arguments are appended behind.
    package init(_ script: RedisScript, keys: [[UInt8]]) {
        append("EVALSHA")
        append(script.digest)
        restOffset = body.count
        self.script = script
        append("\(keys.count)")
        for key in keys { append(key) }
    }

    package mutating func append(_ first: any RedisArgument, _ others: any RedisArgument...) {
        first.append(to: &self)
        for argument in others { argument.append(to: &self) }
    }

    package mutating func append(_ text: String) {
        var text = text
        text.withUTF8 { append(UnsafeRawBufferPointer($0)) }
    }

    package mutating func append(_ bytes: [UInt8]) { bytes.withUnsafeBytes { append($0) } }

    package mutating func append(_ number: some FixedWidthInteger) { append("\(number)") }

    package mutating func append(_ bytes: UnsafeRawBufferPointer) {
        begin(bytes.count)
        body.append(contentsOf: bytes)
        end()
    }

    /// Appends one argument of `byteCount` bytes, in pieces whose sizes add up to it.
    package mutating func append(byteCount: Int, gathering pieces: some Sequence<UnsafeRawBufferPointer>) {
        begin(byteCount)
        let start = body.count
        body.reserveCapacity(start + byteCount + 2)
        for piece in pieces { body.append(contentsOf: piece) }
        precondition(body.count - start == byteCount, "the pieces of an argument do not have its size")
        end()
    }

    private mutating func begin(_ byteCount: Int) {
        body.append(UInt8(ascii: "$"))
        body.append(contentsOf: "\(byteCount)".utf8)
        end()
        argumentCount += 1
    }

    private mutating func end() {
        body.append(13)
        body.append(10)
    }

    /// Bytes that sending it takes.
    package var byteCount: Int { body.count + 16 }

    /// As it is sent.
    func encode(into bytes: inout [UInt8]) {
        bytes.append(UInt8(ascii: "*"))
        bytes.append(contentsOf: "\(argumentCount)".utf8)
        bytes.append(13)
        bytes.append(10)
        bytes.append(contentsOf: body)
    }

    /// The same call with the script's source in place of its digest, for a server that does not have the script.
    package var withSource: RedisCommand {
        guard let script else { return self }
        var command = RedisCommand("EVAL", script.source)
        command.body.append(contentsOf: body[restOffset...])
        command.argumentCount = argumentCount
        return command
    }

    /// Whether the last argument ends in these bytes: is the same, when it has the same size.
    package func ends(in bytes: [UInt8]) -> Bool {
        guard body.count - 2 >= bytes.count else { return false }
        return body.withUnsafeBytes { body in
            bytes.withUnsafeBytes { bytes in
                bytes.isEmpty
                    || memcmp(body.baseAddress! + (body.count - 2 - bytes.count), bytes.baseAddress!, bytes.count) == 0
            }
        }
    }

    /// The arguments one by one, the command's name first; for servers of tests.
    package var arguments: [[UInt8]] {
        var arguments: [[UInt8]] = []
        arguments.reserveCapacity(argumentCount)
        var place = 0
        while place < body.count {
            var count = 0
            place += 1
            while body[place] != 13 {
                count = count * 10 + Int(body[place] - UInt8(ascii: "0"))
                place += 1
            }
            arguments.append(Array(body[place + 2..<place + 2 + count]))
            place += 2 + count + 2
        }
        return arguments
    }

    /// The command's name, in the case in which it was written.
    package var name: String { arguments.first.map { String(decoding: $0, as: UTF8.self) } ?? "" }
}

/// An argument of a command: a text, bytes, or a number in decimal digits.
package protocol RedisArgument { func append(to command: inout RedisCommand) }

extension String: RedisArgument { package func append(to command: inout RedisCommand) { command.append(self) } }
extension [UInt8]: RedisArgument { package func append(to command: inout RedisCommand) { command.append(self) } }
extension FixedWidthInteger where Self: RedisArgument {
    package func append(to command: inout RedisCommand) { command.append("\(self)") }
}
extension Int: RedisArgument {}
extension Int64: RedisArgument {}
extension UInt64: RedisArgument {}
