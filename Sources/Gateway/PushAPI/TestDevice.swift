package import Delivery
package import Directory
package import Wire
internal import TextForms

/// A device on an app's list of test devices, with its name there.
package struct TestDevice: Sendable, Equatable, Codable {
    package var cid: DeviceID
    package var remark: String
    package var createdAt: GatewayTime
    package var updatedAt: GatewayTime

    package init(cid: DeviceID, remark: String, createdAt: GatewayTime, updatedAt: GatewayTime) {
        (self.cid, self.remark, self.createdAt, self.updatedAt) = (cid, remark, createdAt, updatedAt)
    }

    /// The stored form: the cid's first half, both times, the remark; the cid's other half is in the row's key.
    package var bytes: [UInt8] {
        let words = [cid.high, UInt64(bitPattern: createdAt), UInt64(bitPattern: updatedAt)]
        return words.flatMap { word in (0..<8).map { UInt8(truncatingIfNeeded: word >> UInt64(56 - 8 * $0)) } }
            + Array(remark.utf8)
    }

    /// - Returns: `nil` if the row is too short.
    package init?(bytes: UnsafeRawBufferPointer, low: UInt64) {
        guard bytes.count >= 24 else { return nil }
        let words = (0..<3).map {
            UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: $0 * 8, as: UInt64.self))
        }
        self.init(
            cid: DeviceID(high: words[0], low: low), remark: String(decoding: bytes[24...], as: UTF8.self),
            createdAt: Int64(bitPattern: words[1]), updatedAt: Int64(bitPattern: words[2]))
    }
}

package struct TestDeviceList: Sendable {
    private var devices: [AppKey: [DeviceID: TestDevice]] = [:]

    package init() {}

    package mutating func put(_ device: TestDevice, app: AppKey) { devices[app, default: [:]][device.cid] = device }

    package mutating func removeAll(of app: AppKey) -> [DeviceID] {
        devices.removeValue(forKey: app).map { Array($0.keys) } ?? []
    }

    package mutating func perform(
        _ request: TestDeviceRequest, known: Set<DeviceID>, limit: Int, now: GatewayTime
    ) -> (changes: [TestDeviceChange], result: TestDeviceResult) {
        let (changes, result) = plan(request, known: known, limit: limit, now: now)
        for change in changes {
            switch change {
            case .put(let device): put(device, app: request.app)
            case .remove(let cid): devices[request.app]?[cid] = nil
            }
        }
        return (changes, result)
    }

    private func plan(
        _ request: TestDeviceRequest, known: Set<DeviceID>, limit: Int, now: GatewayTime
    ) -> (changes: [TestDeviceChange], result: TestDeviceResult) {
        let mine = devices[request.app] ?? [:]
        var result = TestDeviceResult()
        var changes: [TestDeviceChange] = []
        switch request.work {
        case .add(let items):
            var count = mine.count
            for item in items {
                let cid = item.place.cid
                guard known.contains(cid), mine[cid] != nil || count < limit else {
                    if known.contains(cid) { result.isFull = true }
                    result.failed.append(cid)
                    continue
                }
                if mine[cid] == nil { count += 1 }
                changes.append(
                    .put(
                        TestDevice(
                            cid: cid, remark: item.remark, createdAt: mine[cid]?.createdAt ?? now, updatedAt: now)))
            }
        case .update(let cid, let remark):
            guard var device = mine[cid] else {
                result.failed.append(cid)
                break
            }
            (device.remark, device.updatedAt) = (remark, now)
            changes.append(.put(device))
        case .delete(let cids):
            for cid in cids { if mine[cid] != nil { changes.append(.remove(cid)) } else { result.failed.append(cid) } }
        case .list(let query):
            let remark = TextPattern(query.remark)
            let found = mine.values.filter { device in
                (query.cid.map { $0 == device.cid.description } ?? true) && remark.isIn(device.remark.utf8)
            }
            result.total = found.count
            let sorted = found.sorted {
                ($0.createdAt, $0.cid.high, $0.cid.low) < ($1.createdAt, $1.cid.high, $1.cid.low)
            }
            let (start, isFar) = (query.page - 1).multipliedReportingOverflow(by: query.pageSize)
            result.page = isFar ? [] : Array(sorted.dropFirst(start).prefix(query.pageSize))
        }
        return (changes, result)
    }
}

package enum TestDeviceChange: Sendable, Equatable {
    case put(TestDevice)
    case remove(DeviceID)
}

package struct TestDeviceResult: Sendable, Equatable, Codable {
    /// Devices that do not belong to the app, are not on its list, or would exceed the limit.
    var failed: [DeviceID] = []
    /// Whether some devices exceeded the limit.
    var isFull = false
    var page: [TestDevice] = []
    var total = 0

    /// The devices of the page, whose platforms the answer shows.
    package func pagePlaces(of app: App) -> [DevicePlace] {
        page.map { DevicePlace(cid: $0.cid, bucket: app.bucket(of: $0.cid)) }
    }
}

package struct TestDeviceRequest: Sendable, Codable {
    package struct Item: Sendable, Codable {
        var place: DevicePlace
        var remark: String
    }

    package struct Query: Sendable, Codable {
        /// Compared as text, so an invalid cid matches no device.
        var cid: String?
        /// A part of the remark; empty for any.
        var remark = ""
        var page = 1
        var pageSize = 10
    }

    enum Work: Sendable, Codable {
        case add([Item])
        case update(DeviceID, String)
        case delete([DeviceID])
        case list(Query)
    }

    package let app: AppKey
    let work: Work
    /// Texts in the request that are not a cid.
    var notCIDs: [String] = []
    /// Notes for the answer; the gateway that received the request renders it, so the notes are not encoded.
    var notes = RequestNotes()

    private enum CodingKeys: CodingKey { case app, work, notCIDs }

    /// Whether the request is within the limits; checked again for requests from another gateway.
    package var isSound: Bool {
        switch work {
        case .add(let items): items.count <= Limits.testDeviceCount
        case .update: true
        case .delete(let cids): cids.count <= Limits.testDeviceCount
        case .list(let query): query.page >= 1 && 0...Limits.testDevicePageCount ~= query.pageSize
        }
    }

    package var isQuestion: Bool { if case .list = work { true } else { false } }

    /// The devices whose existence must be checked first.
    package var lookUp: [DevicePlace] {
        guard case .add(let items) = work else { return [] }
        return items.map(\.place)
    }
}
