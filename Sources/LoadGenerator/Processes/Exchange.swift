internal import FoundationEssentials
internal import Glibc
internal import Wire

/// How plans go to worker processes and findings come back, over pipes: a length and JSON, then a length and the devices
/// as bytes, since a million of them would be slow as text.
enum Exchange {
    struct Failure: Error, Equatable { var text: String }

    static func encode(_ plans: [WorkerPlan]) throws -> [UInt8] {
        var bytes: [UInt8] = []
        append(plans.count, to: &bytes)
        for plan in plans {
            append(Array(try JSONEncoder().encode(plan)), to: &bytes)
            append(pack(plan.devices), to: &bytes)
        }
        return bytes
    }

    static func plans(from source: inout some ByteSource) throws -> [WorkerPlan] {
        let count = try source.integer()
        guard (0...Limits.workerCount).contains(count) else { throw Failure(text: "a worker's plan is malformed") }
        var plans: [WorkerPlan] = []
        for _ in 0..<count {
            var plan = try JSONDecoder().decode(WorkerPlan.self, from: Data(try source.block()))
            plan.devices = try unpack(try source.block())
            plans.append(plan)
        }
        return plans
    }

    /// One worker's findings; its devices only when they are others than the plan's.
    static func encode(_ tally: WorkerTally, of plan: WorkerPlan) throws -> [UInt8] {
        var bytes: [UInt8] = []
        append(Array(try JSONEncoder().encode(tally)), to: &bytes)
        let isSame = tally.devices.map(\.cid) == plan.devices.map(\.cid)
        append(isSame ? [] : pack(tally.devices), to: &bytes)
        return bytes
    }

    static func tally(from source: inout some ByteSource, of plan: WorkerPlan) throws -> WorkerTally {
        var tally = try JSONDecoder().decode(WorkerTally.self, from: Data(try source.block()))
        let devices = try unpack(try source.block())
        tally.devices = devices.isEmpty ? plan.devices : devices
        return tally
    }

    private static func append(_ block: [UInt8], to bytes: inout [UInt8]) {
        append(block.count, to: &bytes)
        bytes += block
    }

    private static func append(_ number: Int, to bytes: inout [UInt8]) {
        withUnsafeBytes(of: UInt64(number).littleEndian) { bytes.append(contentsOf: $0) }
    }

    private static func pack(_ devices: [DeviceIdentity]) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(devices.count * 64)
        for device in devices {
            for word in [device.cid.high, device.cid.low, device.lastTimestamp, UInt64(device.secret.count)] {
                withUnsafeBytes(of: word.littleEndian) { bytes.append(contentsOf: $0) }
            }
            bytes += device.secret
        }
        return bytes
    }

    private static func unpack(_ bytes: [UInt8]) throws(Failure) -> [DeviceIdentity] {
        var devices: [DeviceIdentity] = []
        var offset = 0
        while offset < bytes.count {
            guard bytes.count - offset >= 32 else { throw Failure(text: "a worker's devices are malformed") }
            let words = bytes.withUnsafeBytes { bytes in
                (0..<4).map {
                    UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset + $0 * 8, as: UInt64.self))
                }
            }
            offset += 32
            guard words[3] <= UInt64(bytes.count - offset) else {
                throw Failure(text: "a worker's devices are malformed")
            }
            let secret = offset..<offset + Int(words[3])
            devices.append(
                DeviceIdentity(
                    cid: DeviceID(high: words[0], low: words[1]), secret: Array(bytes[secret]),
                    lastTimestamp: words[2]))
            offset = secret.upperBound
        }
        return devices
    }
}

/// Where an exchange's bytes come from.
protocol ByteSource {
    /// The next `count` bytes; an error when there are fewer.
    mutating func take(_ count: Int) throws(Exchange.Failure) -> [UInt8]
}

extension ByteSource {
    mutating func integer() throws(Exchange.Failure) -> Int {
        let value = try take(8).withUnsafeBytes { UInt64(littleEndian: $0.loadUnaligned(as: UInt64.self)) }
        guard value <= UInt64(Limits.exchangeByteCount) else { throw .init(text: "a worker sent too much") }
        return Int(value)
    }

    mutating func block() throws(Exchange.Failure) -> [UInt8] { try take(try integer()) }
}

/// A pipe's reading end; it stays the caller's to close.
struct PipeSource: ByteSource {
    var descriptor: CInt

    mutating func take(_ count: Int) throws(Exchange.Failure) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        var filled = 0
        while filled < count {
            let got = bytes.withUnsafeMutableBytes { read(descriptor, $0.baseAddress! + filled, count - filled) }
            if got < 0 && errno == EINTR { continue }
            guard got > 0 else { throw .init(text: "a worker process ended early") }
            filled += got
        }
        return bytes
    }
}
