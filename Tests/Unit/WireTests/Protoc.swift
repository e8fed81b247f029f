import Foundation

/// An installed program, run in a temporary folder.
enum Tool {
    struct Failure: Error, CustomStringConvertible {
        var description: String
    }

    // Runs the program with `input` on its standard input and returns its standard output.
    //
    // Both use files instead of pipes, so that no amount of data can block. `files` are created in the folder by name.
    static func run(
        _ name: String, _ arguments: [String], input: [UInt8] = [], files: [String: String] = [:]
    ) throws -> [UInt8] {
        let folder = FileManager.default.temporaryDirectory
            .appendingPathComponent("longwire-wire-tests-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }

        let streams = ["input", "output", "errors"].map { folder.appendingPathComponent($0) }
        try Data(input).write(to: streams[0])
        try Data().write(to: streams[1])
        try Data().write(to: streams[2])
        for (name, text) in files { try Data(text.utf8).write(to: folder.appendingPathComponent(name)) }

        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.currentDirectoryURL = folder
        process.arguments = [name] + arguments
        process.standardInput = try FileHandle(forReadingFrom: streams[0])
        process.standardOutput = try FileHandle(forWritingTo: streams[1])
        process.standardError = try FileHandle(forWritingTo: streams[2])
        try process.run()
        process.waitUntilExit()
        guard process.terminationStatus == 0 else {
            let errors = String(decoding: try Data(contentsOf: streams[2]), as: UTF8.self)
            throw Failure(description: "\(name) ended with \(process.terminationStatus); is it installed? \(errors)")
        }
        return [UInt8](try Data(contentsOf: streams[1]))
    }
}

/// Google's compiler as the second implementation; Debian package `protobuf-compiler`.
enum Protoc {
    static let repository = URL(fileURLWithPath: #filePath)
        .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
    static let schema = "longwire/v1/longwire.proto"

    // Runs protoc. `batch` becomes batch.proto, a schema of the caller that may import ours.
    static func run(_ arguments: [String], input: [UInt8] = [], batch: String = "") throws -> [UInt8] {
        let proto = repository.appendingPathComponent("Proto").path
        return try Tool.run(
            "protoc", ["-I", proto, "-I", "."] + arguments, input: input, files: ["batch.proto": batch])
    }
}

/// A parser of any protobuf bytes that is independent of the codec under test.
struct RawFields {
    enum Value: Equatable {
        case number(UInt64)
        case bytes([UInt8])
    }

    struct Broken: Error {}

    private(set) var fields: [(number: Int, value: Value)] = []

    init(_ bytes: [UInt8]) throws {
        var rest = bytes[...]
        func varint() throws -> UInt64 {
            var value: UInt64 = 0
            for shift in stride(from: UInt64(0), to: 70, by: 7) {
                guard let byte = rest.popFirst() else { throw Broken() }
                value |= UInt64(byte & 0x7F) << shift
                if byte < 0x80 { return value }
            }
            throw Broken()
        }
        while !rest.isEmpty {
            let tag = try varint()
            switch tag & 7 {
            case 0: fields.append((Int(tag >> 3), .number(try varint())))
            case 2:
                let count = Int(try varint())
                guard count <= rest.count else { throw Broken() }
                fields.append((Int(tag >> 3), .bytes(Array(rest.prefix(count)))))
                rest = rest.dropFirst(count)
            default: throw Broken()
            }
        }
    }

    func number(_ field: Int) -> Int {
        for case (field, .number(let value)) in fields { return Int(value) }
        return 0
    }

    func text(_ field: Int) -> String { String(decoding: all(field).first ?? [], as: UTF8.self) }

    func all(_ field: Int) -> [[UInt8]] {
        fields.compactMap { entry in
            guard entry.number == field, case .bytes(let bytes) = entry.value else { return nil }
            return bytes
        }
    }
}
