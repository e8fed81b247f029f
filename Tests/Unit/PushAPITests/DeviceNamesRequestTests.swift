import Delivery
import Directory
import Testing
import Wire

@testable import PushAPI

@Suite("A device's request about its own names")
struct DeviceNamesRequestTests {
    private static let app = AppKey(7)
    private static let place = DevicePlace(cid: DeviceID(high: 1, low: 2), bucket: Bucket(3))

    private func request(
        _ operation: DeviceNames.Operation, alias: String = "", type: String = "", tags: [String] = [],
        limits: UserLimits = UserLimits()
    ) throws -> DeviceNamesRequest {
        var names = DeviceNames()
        (names.operation, names.alias, names.aliasType, names.tags) = (operation, alias, type, tags)
        return try DeviceNamesRequest(names, app: Self.app, limits: limits)
    }

    private func tag(_ text: String) -> TagName { TagName(app: Self.app, text: text) }

    private func alias(_ text: String, type: String = "") -> AliasName {
        AliasName(app: Self.app, text: text, type: type)
    }

    @Test("a name that the device has needs no work")
    func nothingToDo() throws {
        let device = DeviceDetail(aliases: [alias("one", type: "phone")], tags: [tag("a"), tag("b")])
        for request in [
            try request(.query), try request(.bindAlias, alias: "one", type: "phone"),
            try request(.setTags, tags: ["b", "a", "a"]), try request(.addTags, tags: ["b"]),
            try request(.removeTags, tags: ["c"]), try request(.unbindAlias, alias: "one"),
        ] {
            #expect(request.work(of: Self.place, as: device) == nil)
        }
    }

    @Test("work that remains is that of the missing names")
    func workLeft() throws {
        let device = DeviceDetail(aliases: [alias("one", type: "phone")], tags: [tag("a")])
        guard case .bind(let items)? = try request(.bindAlias, alias: "one").work(of: Self.place, as: device) else {
            throw Fixture.Refused()
        }
        #expect(items == [AliasItem(device: Self.place, name: alias("one"))])
        guard
            case .each([Self.place], .addTags(let added))? = try request(.addTags, tags: ["a", "b", "c"])
                .work(of: Self.place, as: device)
        else { throw Fixture.Refused() }
        #expect(added.count == 3)
        guard case .unbind? = try request(.unbindAlias, alias: "one", type: "phone").work(of: Self.place, as: device)
        else { throw Fixture.Refused() }
    }

    @Test("each change needs its right, and a query any")
    func permissions() throws {
        #expect(try request(.query).permission == nil)
        #expect(try request(.bindAlias, alias: "x").permission == .alias)
        #expect(try request(.unbindAlias, alias: "x").permission == .alias)
        for operation in [DeviceNames.Operation.setTags, .addTags, .removeTags] {
            #expect(try request(operation, tags: ["x"]).permission == .tags)
        }
    }

    @Test("names beyond the limits are refused, and an alias type counts in each operation")
    func refused() {
        var limits = UserLimits()
        (limits.tagsPerDevice, limits.tagTotalCharacters) = (2, 6)
        #expect(throws: RefusedNames.self) { try request(.setTags, tags: ["a", "b", "c"], limits: limits) }
        #expect(throws: RefusedNames.self) { try request(.addTags, tags: ["abcd", "efg"], limits: limits) }
        for operation in DeviceNames.Operation.allCases {
            #expect(throws: RefusedNames.self) { try request(operation, alias: "x", type: "a b") }
        }
    }
}
