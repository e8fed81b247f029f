import Testing
import Wire

@testable import LongwireClient

@Suite("Attributes of the client's device") struct DeviceAttributesTests {
    @Test("each Hello has the configuration's attributes, and those set later the next one")
    func hellos() throws {
        var attributes = DeviceAttributes()
        (attributes.platform, attributes.model) = (.harmony, "Mate 60")
        let first = attributes
        var driver = try CoreDriver.ready { $0.attributes = first }
        #expect(driver.hellos.map(\.attributes) == [first])
        attributes.notificationPermission = .denied
        driver.perform(.attributes(attributes))
        #expect(driver.hellos.count == 1)
        driver.core.disconnected(reason: "gone", at: driver.now)
        driver.turn()
        driver.pass(milliseconds: 10_000)
        driver.connect()
        #expect(driver.hellos.map(\.attributes) == [first, attributes])
    }

    @Test("without attributes the Hello leaves those at the gateway unchanged, and malformed ones are not sent")
    func absent() throws {
        var driver = CoreDriver { $0.attributes = nil }
        driver.start()
        #expect(driver.hellos.last.map { $0.attributes == nil } == true)
        var attributes = DeviceAttributes()
        (attributes.brand, attributes.model) = ("B", String(repeating: "x", count: 65))
        let given = attributes
        driver = CoreDriver { $0.attributes = given }
        driver.start()
        attributes.model = ""
        #expect(driver.hellos.last?.attributes == attributes)
    }

    @Test("the default is what the system knows")
    func system() {
        let configuration = ClientConfiguration(host: "h", port: 1, appID: "a")
        #expect(configuration.attributes == .current)
        var current = DeviceAttributes.current
        let dropped = current.clean()
        #expect(current.platform != .unknown && !current.systemVersion.isEmpty && dropped == [])
    }

    #if os(Linux)
    @Test(
        "a POSIX locale becomes a language tag",
        arguments: [
            ("zh_CN.UTF-8", "zh-CN"), ("de_DE@euro", "de-DE"), ("C.UTF-8", ""), ("POSIX", ""), ("en", "en"), ("", ""),
        ])
    func locale(name: String, tag: String) { #expect(DeviceAttributes.locale(named: name) == tag) }
    #endif
}
