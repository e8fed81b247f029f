internal import TextForms
internal import Wire

struct DeviceIdentity: Equatable, Sendable {
    var cid: DeviceID
    var secret: [UInt8]
    /// The timestamp of the last Hello; the next one must be greater.
    var lastTimestamp: UInt64 = 0
}

/// The file of registered devices; the first line names the app, each further one has `cid secret` in hex.
enum DevicesFile {
    private static let title = "longwire-bench-devices 1 "

    /// - Returns: the devices; none if the file does not exist.
    /// - Throws: a usage failure when the file belongs to another app or a line is malformed.
    static func load(_ path: String, appID: String) throws(CommandFailure) -> [DeviceIdentity] {
        guard let bytes = try TextFile.read(path, limit: Limits.devicesByteCount) else { return [] }
        return try parse(bytes, appID: appID, path: path)
    }

    static func save(_ devices: [DeviceIdentity], to path: String, appID: String) throws(CommandFailure) {
        try TextFile.replace(path, with: render(devices, appID: appID))
    }

    static func render(_ devices: [DeviceIdentity], appID: String) -> [UInt8] {
        var bytes = Array((title + appID + "\n").utf8)
        bytes.reserveCapacity(bytes.count + devices.count * 98)
        for device in devices {
            appendHex(device.cid.bytes, to: &bytes)
            bytes.append(UInt8(ascii: " "))
            appendHex(device.secret, to: &bytes)
            bytes.append(UInt8(ascii: "\n"))
        }
        return bytes
    }

    static func parse(_ bytes: [UInt8], appID: String, path: String) throws(CommandFailure) -> [DeviceIdentity] {
        let lines = bytes.split(separator: UInt8(ascii: "\n"))
        guard let first = lines.first, first.elementsEqual((title + appID).utf8) else {
            throw CommandFailure.usage(
                "\(path) is not a devices file of the app \(appID); name another with --devices-file")
        }
        var devices: [DeviceIdentity] = []
        devices.reserveCapacity(lines.count)
        for (index, line) in lines.enumerated().dropFirst() {
            let parts = line.split(separator: UInt8(ascii: " "))
            guard parts.count == 2, let cid = DeviceID(hex: parts[0]), let secret = hexBytes(parts[1]), !secret.isEmpty
            else { throw CommandFailure.usage("\(path): line \(index + 1) is not a cid and a secret") }
            devices.append(DeviceIdentity(cid: cid, secret: secret))
        }
        return devices
    }

    private static func appendHex(_ source: [UInt8], to bytes: inout [UInt8]) {
        for byte in source {
            for nibble in [byte >> 4, byte & 15] { bytes.append(nibble < 10 ? 48 + nibble : 87 + nibble) }
        }
    }

    private static func hexBytes(_ digits: ArraySlice<UInt8>) -> [UInt8]? {
        guard digits.count.isMultiple(of: 2) else { return nil }
        var bytes: [UInt8] = []
        var high: UInt8?
        for digit in digits {
            let value: UInt8
            switch digit {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): value = digit - 48
            case UInt8(ascii: "a")...UInt8(ascii: "f"): value = digit - 87
            default: return nil
            }
            if let first = high {
                bytes.append(first << 4 | value)
                high = nil
            } else {
                high = value
            }
        }
        return bytes
    }
}
