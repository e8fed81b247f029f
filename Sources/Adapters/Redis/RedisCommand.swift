internal import Cryptography
internal import Glibc

/// A Lua script that servers cache by its digest.
package struct RedisScript: Sendable, Equatable {
    package let source: String
    /// The SHA-1 of the source in hex, the argument of `EVALSHA`.
    package let digest: String

    package init(_ source: String) {
        self.source = source
        digest = SHA1.hex(Array(source.utf8))
    }
}

package struct RedisCommand: Sendable, Equatable {
    /// The concatenated arguments, each as a bulk string of the protocol.
    private(set) var body: [UInt8] = []
    package private(set) var argumentCount = 0
    /// The script of an `EVALSHA`; its source is sent to a server that does not have it.
    package private(set) var script: RedisScript?
    private var restOffset = 0

    package init(_ arguments: any RedisArgument...) {
        for argument in arguments { argument.append(to: &self) }
    }

    /// Creates a script call; the script's arguments are appended afterwards.
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

    /// Appends one argument of `byteCount` bytes from pieces whose sizes must add up to it.
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

    /// The approximate encoded size in bytes.
    package var byteCount: Int { body.count + 16 }

    func encode(into bytes: inout [UInt8]) {
        bytes.append(UInt8(ascii: "*"))
        bytes.append(contentsOf: "\(argumentCount)".utf8)
        bytes.append(13)
        bytes.append(10)
        bytes.append(contentsOf: body)
    }

    /// The same call as an `EVAL` with the script's source, for a server that does not have the script.
    package var withSource: RedisCommand {
        guard let script else { return self }
        var command = RedisCommand("EVAL", script.source)
        command.body.append(contentsOf: body[restOffset...])
        command.argumentCount = argumentCount
        return command
    }

    /// Returns whether the last argument ends with these bytes; if both have the same size, they are equal.
    package func ends(in bytes: [UInt8]) -> Bool {
        guard body.count - 2 >= bytes.count else { return false }
        return body.withUnsafeBytes { body in
            bytes.withUnsafeBytes { bytes in
                bytes.isEmpty
                    || memcmp(body.baseAddress! + (body.count - 2 - bytes.count), bytes.baseAddress!, bytes.count) == 0
            }
        }
    }

    /// The separate arguments, the command's name first, for test servers.
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

    /// The command's name as written, in upper or lower case.
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
