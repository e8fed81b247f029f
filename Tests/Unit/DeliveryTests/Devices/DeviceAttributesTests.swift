import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Attributes of devices in the store")
struct DeviceAttributesTests {
    private static func attributes(
        _ platform: DeviceAttributes.Platform = .android, model: String = "Mate 60"
    ) -> DeviceAttributes {
        var attributes = DeviceAttributes()
        (attributes.platform, attributes.brand, attributes.model) = (platform, "HUAWEI", model)
        (attributes.systemVersion, attributes.appVersion) = ("14", "2.7.0")
        (attributes.locale, attributes.timeZone) = ("zh-Hans-CN", "Asia/Shanghai")
        attributes.notificationPermission = .allowed
        return attributes
    }

    private func stored(_ harness: DeliveryHarness, _ phone: Phone) -> DeviceAttributes? {
        guard case .device(let detail)? = harness.ask(.describe(phone.cid, readsAttributes: true), phone.bucket) else {
            return nil
        }
        return detail.attributes
    }

    /// Counts the devices of these platforms.
    private func count(_ harness: DeliveryHarness, _ platforms: DeviceAttributes.Platform...) -> Int? {
        let step = DirectoryStep.count(Self.expression(Set(platforms)), first: 0, stride: 1)
        guard case .count(let count)? = harness.ask(step, Bucket(0)) else { return nil }
        return count
    }

    private static func expression(_ platforms: Set<DeviceAttributes.Platform>) -> TagExpression {
        var expression = TagExpression()
        let isTaken = expression.add(platforms: platforms)
        #expect(isTaken)
        return expression
    }

    @Test("attributes survive a restart and a Hello without attributes")
    func survive() {
        let harness = DeliveryHarness()
        var phone = harness.register()
        #expect(stored(harness, phone) == nil && harness.rowCount(.attributes) == 0)
        harness.connect(&phone) { $0.attributes = Self.attributes() }
        #expect(stored(harness, phone) == Self.attributes())
        harness.store.cool()
        harness.crash()
        #expect(stored(harness, phone) == Self.attributes())
        harness.connect(&phone)
        #expect(stored(harness, phone) == Self.attributes())
        harness.connect(&phone) { $0.attributes = Self.attributes(model: "Mate 70") }
        harness.crash()
        #expect(stored(harness, phone)?.model == "Mate 70" && harness.rowCount(.attributes) == 1)
    }

    @Test("a Hello with known attributes writes and reads none of their rows, also after a restart")
    func unchanged() {
        let harness = DeliveryHarness()
        var phone = harness.register()
        harness.connect(&phone) { $0.attributes = Self.attributes() }
        let key = AttributesRow.key(phone.cid, in: phone.bucket)
        func isYoung() -> Bool { if case .found = harness.store.young(key) { true } else { false } }
        #expect(isYoung())
        for isRestarted in [false, true] {
            harness.store.cool()
            if isRestarted { harness.crash() }
            #expect(!isYoung())
            harness.connect(&phone) { $0.attributes = Self.attributes() }
            #expect(!isYoung(), "the Hello wrote known attributes again")
            #expect(stored(harness, phone) == Self.attributes())
        }
        harness.connect(&phone) { $0.attributes = Self.attributes(model: "other") }
        #expect(isYoung())
    }

    @Test("without their row the platform is known, and the next Hello writes the row again", arguments: [false, true])
    func lostRow(isDamaged: Bool) {
        let harness = DeliveryHarness()
        var phone = harness.register { $0.attributes = Self.attributes() }
        let key = AttributesRow.key(phone.cid, in: phone.bucket)
        harness.store.beginBatch(key.bucket)
        if isDamaged {
            harness.store.put(key, wakeAt: 0, prior: .maybe(wakeAt: 0), byteCount: 1) { $0.copyBytes(from: [255]) }
        } else {
            harness.store.delete(key, prior: .maybe(wakeAt: 0))
        }
        _ = harness.store.endBatch()
        harness.store.sync()
        harness.store.cool()
        var known = DeviceAttributes()
        known.platform = .android
        #expect(stored(harness, phone) == known && count(harness, .android) == 1)
        #expect(harness.statistics.damagedRows > 0)
        harness.connect(&phone) { $0.attributes = Self.attributes() }
        #expect(stored(harness, phone) == Self.attributes() && harness.rowCount(.attributes) == 1)
    }

    @Test("a detail without the texts has the platform and reads no row")
    func detail() {
        let harness = DeliveryHarness()
        let phone = harness.register { $0.attributes = Self.attributes() }
        harness.store.cool()
        guard case .device(let detail)? = harness.ask(.describe(phone.cid), phone.bucket) else {
            Issue.record("no detail")
            return
        }
        #expect(detail.attributes?.platform == .android && detail.attributes?.model == "")
    }

    @Test("a tag never has the digest of a platform or of the roster")
    func reserved() {
        #expect((0..<20).map { TagName(hash: $0, text: "").digest } == Array(repeating: 16, count: 17) + [17, 18, 19])
        let platforms = DeviceAttributes.Platform.allCases.compactMap(\.tag)
        #expect(platforms.allSatisfy { 1..<TagName.firstDigest ~= $0.digest } && platforms.count == 5)
    }

    @Test("empty attributes remove the row; dropped ones are logged and do not refuse the Hello")
    func removed() {
        let harness = DeliveryHarness()
        var phone = harness.register()
        harness.connect(&phone) { $0.attributes = Self.attributes() }
        harness.connect(&phone) {
            $0.attributes = DeviceAttributes()
            $0.droppedAttributes = ["model"]
        }
        #expect(harness.welcomes.last?.session == phone.session)
        #expect(stored(harness, phone) == nil && harness.rowCount(.attributes) == 0)
        #expect(count(harness, .android) == 0 && count(harness, .ios) == 1)
        #expect(harness.rowCount(.tag) == 1, "only the roster's row")
        harness.crash()
        #expect(stored(harness, phone) == nil)
    }

    @Test("rows of attributes and platforms go with their device")
    func removal() {
        let harness = DeliveryHarness()
        let phone = harness.register { $0.attributes = Self.attributes() }
        #expect(stored(harness, phone) == Self.attributes() && count(harness, .android) == 1)
        harness.disconnect(phone)
        harness.store.cool()
        harness.advance(24 * 3_600_000 + 1)
        #expect(harness.publish(phone).code == .unknownDevice)
        #expect(harness.rowCount(.device) == 0 && harness.rowCount(.attributes) == 0 && harness.rowCount(.tag) == 0)
    }

    @Test("conditions count devices by platform; a device without a platform counts as iOS")
    func conditions() {
        let harness = DeliveryHarness()
        var phones = DeviceAttributes.Platform.allCases.map { ($0, harness.register()) }
        for index in phones.indices {
            let platform = phones[index].0
            harness.connect(&phones[index].1) { $0.attributes = Self.attributes(platform) }
        }
        _ = harness.register()
        for isRestarted in [false, true] {
            if isRestarted {
                harness.store.cool()
                harness.crash()
            }
            for platform in DeviceAttributes.Platform.allCases where platform != .unknown {
                #expect(count(harness, platform) == (platform == .ios ? 3 : 1), "\(platform)")
            }
            #expect(count(harness, .android, .web) == 2 && count(harness, .android, .ios) == 4)
            #expect(count(harness, .android, .ios, .harmony, .web, .miniProgram, .other) == 8)
            #expect(count(harness) == 0)
        }
        harness.connect(&phones[1].1) { $0.attributes = Self.attributes(.harmony) }
        #expect(count(harness, .android) == 0 && count(harness, .harmony) == 2)
        harness.connect(&phones[1].1) { $0.attributes = Self.attributes(.ios) }
        #expect(count(harness, .harmony) == 1 && count(harness, .ios) == 4)
    }

    @Test("a broadcast to a platform reaches its devices, connected or not, and nobody else")
    func broadcast() {
        let world = BroadcastHarness()
        let harness = world.harness
        var phones = [DeviceAttributes.Platform.android, .android, .ios, .web].map { ($0, harness.register()) }
        for index in phones.indices {
            let platform = phones[index].0
            harness.connect(&phones[index].1) { $0.attributes = Self.attributes(platform) }
        }
        harness.disconnect(phones[1].1)
        let record = world.send("hello", to: Self.expression([.android]))
        #expect(harness.takeDelivered().map(\.session) == [phones[0].1.session])
        harness.connect(&phones[1].1)
        #expect(harness.takeDelivered().map(\.session) == [phones[1].1.session])
        harness.connect(&phones[3].1)
        #expect(harness.takeDelivered().isEmpty && world.totals(record).accepted == 2)
        world.send("apple", to: Self.expression([.ios]))
        #expect(harness.takeDelivered().map(\.session) == [phones[2].1.session])
    }

    // MARK: Rows

    private static func row(_ attributes: DeviceAttributes) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: AttributesRow.byteCount(attributes))
        bytes.withUnsafeMutableBytes { AttributesRow.write(attributes, into: $0) }
        return bytes
    }

    @Test("the row has its documented bytes; a truncated row and one of a later version are unreadable")
    func bytes() {
        var attributes = DeviceAttributes()
        (attributes.platform, attributes.notificationPermission) = (.web, .denied)
        (attributes.brand, attributes.model, attributes.timeZone) = ("b", "", "+08:00")
        let row = Self.row(attributes)
        #expect(row == [1, 4, 2, 1, 98, 0, 0, 0, 0, 6] + Array("+08:00".utf8))
        #expect(row.withUnsafeBytes { AttributesRow.read($0) } == attributes)
        for count in 0..<row.count { #expect(row.prefix(count).withUnsafeBytes { AttributesRow.read($0) } == nil) }
        #expect(([2] + row.dropFirst()).withUnsafeBytes { AttributesRow.read($0) } == nil)
        // A platform and a permission of a later release.
        let later = [1, 9, 9] + row.dropFirst(3)
        let read = later.withUnsafeBytes { AttributesRow.read($0) }
        #expect(read?.platform == .other && read?.notificationPermission == .unknown && read?.brand == "b")
    }

    @Test("a device's row keeps the mark before its names, with and without a vendor's failure before it")
    func mark() throws {
        for hasFailure in [false, true] {
            for tags in [[], [TagName(digest: 77, text: "vip")]] {
                var profile = DeviceProfile(secret: [1, 2, 3], tokens: [])
                profile.attributes = AttributesMark(Self.attributes())
                profile.names.tags = tags
                if hasFailure {
                    profile.vendorFailure = VendorFailure(
                        message: MessageID(high: 5, low: 6), at: 7, outcome: .badToken, attempts: 2, reason: "x")
                }
                var bytes = [UInt8](repeating: 0, count: profile.byteCount)
                bytes.withUnsafeMutableBytes {
                    var writer = RowWriter($0)
                    profile.write(&writer)
                    #expect(writer.offset == $0.count)
                }
                let read = try #require(bytes.withUnsafeBytes { DeviceProfile($0) })
                #expect(read.attributes == profile.attributes && read.attributes?.platform == .android)
                #expect(read.names.tags == tags && read.vendorFailure == profile.vendorFailure)
            }
        }
    }
}
