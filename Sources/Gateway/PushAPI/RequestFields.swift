// The use of each field of each body. A test compares docs/use/GetuiCompatibility.md, "Every field", with these tables.
internal import JSON
internal import TextForms
internal import Wire

/// The use that a call makes of a member of its body.
package enum FieldUse: Sendable {
    /// The call uses the value.
    case served
    /// Independent values; the call reads one after another, and an invalid one does not affect the others.
    case items
    /// The value has no effect; the answer lists the field.
    case ignored
    /// The call is refused, because the message would reach other devices if the field were ignored.
    case refused(StaticString)
    /// An object whose fields have a table.
    case object(FieldTable)
    /// An array of objects whose fields have a table.
    case list(FieldTable)
}

package final class FieldTable: Sendable {
    package typealias Field = (name: StaticString, use: FieldUse)

    /// The prefix of the fields' names in answers; empty or with a dot at its end.
    package let path: StaticString
    package let fields: [Field]
    /// The use of a field that is not in the table.
    package let others: FieldUse
    /// Whether the object has fields that select devices; an unknown field may then be a filter of a newer API.
    private let hasSelections: Bool

    init(_ path: StaticString = "", _ fields: [Field], others: FieldUse = .ignored) {
        (self.path, self.fields, self.others) = (path, fields, others)
        hasSelections = fields.contains { $0.use.isRefusal }
        precondition(fields.count <= UInt64.bitWidth, "each field has a bit")
    }
}

extension FieldUse {
    fileprivate var isRefusal: Bool { if case .refused = self { true } else { false } }
}

extension FieldTable {
    /// Parts of names that suggest a filter.
    static let selectingWords = ["filter", "exclude", "crowd", "audience"]
    private static let selectingPatterns = selectingWords.map(TextPattern.init)

    fileprivate func use(ofUnknown key: JSONValue) -> FieldUse {
        guard hasSelections, let name = key.stringBytes, name.count <= Limits.notedKeyByteCount else { return others }
        let lowered = name.lazy.map { 0x41...0x5A ~= $0 ? $0 | 0x20 : $0 }
        return Self.selectingPatterns.contains { $0.isIn(lowered) } ? .refused(Self.noFilter) : others
    }

    // MARK: Pushes

    private static let noFilter: StaticString = "this filter is not served here"
    private static let noSelection: StaticString = "here it selects nobody; audience does"

    /// Fields that select devices.
    ///
    /// Calls that do not support them must refuse them. Otherwise the message would be sent to more devices than requested.
    static let narrowing: [Field] = [
        ("activate_filter_day", .refused(noFilter)), ("activate_filter_type", .refused(noFilter)),
        ("filter_notify_off", .refused(noFilter)), ("crowd_id", .refused(noFilter)),
        ("smart_crowd_task_id", .refused(noFilter)), ("cid", .refused(noSelection)), ("alias", .refused(noSelection)),
        ("tag", .refused(noSelection)), ("fast_custom_tag", .refused(noSelection)),
        ("cid_by_tag", .refused(noSelection)), ("custom_tag", .refused(noSelection)),
        ("phone_type", .refused(noSelection)), ("region", .refused(noFilter)), ("portrait", .refused(noFilter)),
    ]

    private static func audience(_ fields: [Field]) -> FieldUse {
        .object(FieldTable("audience.", fields, others: .refused("this call knows no such selection")))
    }

    private static let cids = audience([("cid", .items)])
    private static let aliases = audience([("alias", .items), ("alias_type", .served)])
    private static let conditionedCIDs = audience([("cid_by_tag", .items)])

    private static let strategy = FieldTable(
        "settings.strategy.",
        [("default", .served)] + VendorChannel.vendors.map { ($0.getuiName, FieldUse.served) })

    /// The `settings` of a message; `own` has the fields whose use differs between calls.
    private static func settings(_ own: [Field]) -> FieldUse {
        .object(
            FieldTable(
                "settings.",
                [
                    ("ttl", .served), ("strategy", .object(strategy)), ("schedule_time", .served),
                    ("collapse_key", .served), ("first_ack_wins", .served), ("custom_callback", .served),
                ] + own + [
                    ("active_days", .ignored), ("need_backup", .ignored), ("active_push", .ignored), ("lst", .ignored),
                    ("active_push_platform", .ignored),
                ] + narrowing))
    }

    private static let pushMessage = FieldTable(
        "push_message.",
        [
            ("transmission", .served), ("notification", .served),
            (
                "revoke",
                .object(FieldTable("push_message.revoke.", [("old_task_id", .served), ("force", .ignored)]))
            ),
            ("network_type", .ignored), ("duration", .ignored),
        ])

    /// Keys that are not in the table are copied beside `aps`; `RequestNotes` lists them.
    private static let ios = FieldTable(
        "push_channel.ios.",
        [
            ("type", .served), ("aps", .served), ("auto_badge", .served), ("payload", .served),
            ("multimedia", .served), ("apns-collapse-id", .served), ("laId", .served), ("_gmid_", .ignored),
            ("longwire_media", .ignored),
        ], others: .served)
    private static let android = FieldTable(
        "push_channel.android.",
        [
            (
                "ups",
                .object(
                    FieldTable(
                        "push_channel.android.ups.",
                        [
                            ("notification", .served), ("transmission", .served), ("options", .served),
                            ("revoke", .ignored),
                        ]))
            )
        ])
    private static let harmony = FieldTable(
        "push_channel.harmony.", [("notification", .served), ("custom", .served), ("options", .served)])
    private static let pushChannel = FieldTable(
        "push_channel.",
        [
            ("ios", .object(ios)), ("android", .object(android)), ("harmony", .object(harmony)),
            ("custom", .served), ("mp", .ignored),
        ])

    private static func push(audience: FieldUse, group: FieldUse, settings own: [Field]) -> FieldTable {
        FieldTable(
            "",
            [
                ("request_id", .served), ("audience", audience), ("settings", settings(own)),
                ("push_message", .object(pushMessage)), ("push_channel", .object(pushChannel)), ("group_name", group),
                ("task_name", .ignored),
            ] + narrowing)
    }

    package static let pushToDevice = push(audience: cids, group: .ignored, settings: [("speed", .ignored)])
    package static let pushToAlias = push(audience: aliases, group: .ignored, settings: [("speed", .ignored)])
    package static let pushByTag = push(audience: conditionedCIDs, group: .ignored, settings: [("speed", .ignored)])
    package static let newList = push(audience: .ignored, group: .served, settings: [("speed", .ignored)])
    package static let pushToAll = push(audience: .served, group: .served, settings: [("speed", .served)])
    package static let pushToTags = push(
        audience: audience([("tag", .list(condition("audience.tag[].")))]), group: .served,
        settings: [("speed", .served)])
    package static let pushToTag = push(
        audience: audience([("fast_custom_tag", .served)]), group: .served, settings: [("speed", .served)])

    package static let batch = FieldTable("", [("msg_list", .items), ("is_async", .served)] + narrowing)

    private static func listCall(_ audience: FieldUse, detail: FieldUse) -> FieldTable {
        FieldTable(
            "",
            [
                ("taskid", .served), ("audience", audience), ("is_async", .served), ("need_alias_detail", detail),
                ("request_id", .served), ("settings", .object(FieldTable("settings.", narrowing))),
            ] + narrowing)
    }

    package static let listToDevices = listCall(cids, detail: .ignored)
    package static let listToAliases = listCall(aliases, detail: .served)
    package static let listByTag = listCall(conditionedCIDs, detail: .ignored)
    package static let conditionedCID = FieldTable(
        "audience.cid_by_tag[].", [("cid", .served), ("tag", .served), ("op_type", .served)],
        others: .refused("a device has no such condition"))

    private static func condition(_ path: StaticString) -> FieldTable {
        FieldTable(
            path, [("key", .served), ("values", .served), ("opt_type", .served)],
            others: .refused("a condition has no such part"))
    }

    // MARK: Users

    package static let userCount = FieldTable("", [("tag", .list(condition("tag[].")))])
    package static let aliasList = FieldTable("", [("data_list", .items)])
    package static let aliasItem = FieldTable(
        "data_list[].", [("cid", .served), ("alias", .served), ("alias_type", .served)])
    package static let tagsOfDevice = FieldTable("", [("custom_tag", .served)])
    package static let taggedDevices = FieldTable("", [("cid", .items)])
    package static let blacklist = FieldTable("", [])
    package static let badge = FieldTable("", [("badge", .served)])
    package static let testDevices = FieldTable("", [("cid_list", .items)])
    package static let testDevice = FieldTable("cid_list[].", [("cid", .served), ("remark", .served)])
    package static let changedTestDevice = FieldTable("", [("cid", .served), ("remark", .served)])
    package static let deviceTokens = FieldTable("", [("dt_list", .items)])
    package static let deviceToken = FieldTable("dt_list[].", [("cid", .served), ("device_token", .served)])
    package static let authentication = FieldTable(
        "", [("appkey", .served), ("timestamp", .served), ("sign", .served)])

    package static let receipt = FieldTable("", [("cid", .served), ("timestamp", .served), ("events", .items)])
    package static let receiptEvent = FieldTable(
        "events[].", [("msgId", .served), ("event", .served), ("action", .served), ("at", .served)])

    /// All bodies with the calls that accept them, as in the documentation.
    package static let documented: [(calls: String, tables: [FieldTable])] = [
        ("POST push/single/cid, each of msg_list in push/single/batch/cid", [pushToDevice]),
        ("POST push/single/alias, each of msg_list in push/single/batch/alias", [pushToAlias]),
        ("POST push/single/batch/cid, push/single/batch/alias", [batch]),
        ("POST push/single/cid_by_tag", [pushByTag, conditionedCID]),
        ("POST push/list/message", [newList]),
        ("POST push/list/cid", [listToDevices]),
        ("POST push/list/alias", [listToAliases]),
        ("POST push/list/cid_by_tag", [listByTag, conditionedCID]),
        ("POST push/all", [pushToAll]),
        ("POST push/tag", [pushToTags]),
        ("POST push/fast_custom_tag", [pushToTag]),
        ("POST auth", [authentication]),
        ("POST user/alias, DELETE user/alias", [aliasList, aliasItem]),
        ("POST user/custom_tag/cid/{cid}", [tagsOfDevice]),
        ("PUT user/custom_tag/batch/{tag}, DELETE user/custom_tag/batch/{tag}", [taggedDevices]),
        ("POST user/black/cid/{cids}, DELETE user/black/cid/{cids}", [blacklist]),
        ("POST user/badge/cid/{cids}", [badge]),
        ("POST user/count", [userCount]),
        ("POST user/bind_dt/{type}", [deviceTokens, deviceToken]),
        ("POST user/test/cid/add", [testDevices, testDevice]),
        ("POST user/test/cid/update", [changedTestDevice]),
        ("POST user/test/cid/delete", [testDevices]),
        ("POST receipt", [receipt, receiptEvent]),
    ]
}

extension RequestNotes {
    /// Checks an object against its table: refuses fields that must not be ignored, and notes ignored ones.
    ///
    /// With `hasUnreadable`, the call is refused if it uses a value that cannot be read; the error names the value.
    mutating func check(_ object: JSONValue?, _ table: FieldTable, hasUnreadable: Bool) throws(GetuiFault) {
        guard let object, object.kind == .object else { return }
        var seen: UInt64 = 0
        for (key, value) in object.members {
            let place = table.fields.firstIndex { key.equals($0.name) }
            if let place {
                // Two values for one field are ambiguous.
                if seen & 1 << UInt64(place) != 0, !value.isAbsent {
                    throw .invalid(Self.name(table, key), "it is there twice")
                }
                seen |= 1 << UInt64(place)
            } else {
                unknownCount += 1
                guard unknownCount <= Limits.unknownFieldCount else {
                    throw .size(Self.name(table, key), "at most \(Limits.unknownFieldCount) unknown fields in a call")
                }
            }
            switch place.map({ table.fields[$0].use }) ?? table.use(ofUnknown: key) {
            case .served:
                if hasUnreadable, let path = value.unreadablePath ?? (key.kind == .unreadable ? "" : nil) {
                    throw .unreadable(Self.name(table, key) + path)
                }
            case .items: if value.kind == .unreadable { throw .unreadable(Self.name(table, key)) }
            case .ignored where value.isAbsentOrZero: break
            case .ignored: addIgnored(Self.name(table, key))
            case .refused where value.isAbsentOrZero: break
            case .refused(let reason): throw .invalid(Self.name(table, key), "\(reason)")
            case .object(let inner):
                if value.kind == .unreadable { throw .unreadable(Self.name(table, key)) }
                try check(value, inner, hasUnreadable: hasUnreadable)
            case .list(let inner):
                if value.kind == .unreadable { throw .unreadable(Self.name(table, key)) }
                for element in value.elements {
                    if element.kind == .unreadable { throw .unreadable(Self.name(table, key)) }
                    try check(element, inner, hasUnreadable: hasUnreadable)
                }
            }
        }
    }

    private static func name(_ table: FieldTable, _ key: JSONValue) -> String {
        // An unreadable key has no name to show.
        let bytes = key.stringBytes ?? UnsafeRawBufferPointer(start: nil, count: 0)
        let text =
            key.kind == .unreadable ? "?" : String(decoding: bytes.prefix(Limits.notedKeyByteCount), as: UTF8.self)
        return "\(table.path)\(text)"
    }
}

extension GetuiFault {
    static func unreadable(_ name: String) -> GetuiFault {
        .invalid(name, "a text in it is not valid Unicode, or a number is none")
    }
}
