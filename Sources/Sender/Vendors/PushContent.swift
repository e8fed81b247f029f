package import JSON

/// The content of a message, in the neutral form that the gateway accepted.
package struct PushContent: Sendable, Equatable {
    package enum Kind: Sendable, Equatable {
        case notification(Notice)
        /// Data for the app, without a visible notification.
        case transmission(String)
        /// A HarmonyOS message of another type: `subscribe`, `form_update`, `live_view`, `voip_call`, …
        case custom(type: String, data: JSONTree)
    }

    /// A publisher's change to the rendered request.
    package struct Option: Sendable, Equatable {
        package var pointer: JSONPointer
        package var value: JSONTree
    }

    package enum Click: Sendable, Equatable {
        case startApp, none
        case intent(String)
        case url(String)
        /// The app receives the text when it is started by the tap.
        case payload(String)
    }

    package struct Notice: Sendable, Equatable {
        package var title: String
        package var body: String
        package var click: Click = .startApp
        package var notifyID: Int64?
        package var channelID: String?
        package var bigText: String?
        package var bigImage: String?
        package var category: String?
        package var badgeIncrement: Int64?
        /// The notification slot of HarmonyOS.
        package var slotType: Int64?

        package init(title: String, body: String, click: Click = .startApp) {
            (self.title, self.body, self.click) = (title, body, click)
        }

        var payload: String? {
            if case .payload(let text) = click { text } else { nil }
        }
    }

    package var kind: Kind
    package var options: [Option]

    package init(_ kind: Kind, options: [Option] = []) { (self.kind, self.options) = (kind, options) }

    /// An unreadable content: the field and a remedy in one line.
    package struct Failure: Error, Sendable, Equatable, CustomStringConvertible {
        package var field: String
        package var advice: String
        package var description: String { "\(field): \(advice)" }
    }

    /// The maximum size of a text: the gateway's limits count characters, which have at most four bytes.
    package static let textByteCount = 16_384
    package static let nameByteCount = 256
    package static let optionCount = 64

    /// Reads the `body` of a job with the options for `vendor`.
    package init(_ body: JSONValue, vendor: Vendor) throws(Failure) {
        guard body.kind == .object else { throw Failure(field: "body", advice: "must be an object") }
        let options = try Self.options(body, vendor: vendor)
        let present = [body["notification"], body["transmission"], body["custom"]].filter { $0 != nil }
        guard present.count == 1 else {
            throw Failure(field: "body", advice: "needs exactly one of notification, transmission and custom")
        }
        if let notice = body["notification"] {
            self.init(.notification(try Notice(notice)), options: options)
        } else if let custom = body["custom"] {
            guard let type = try ContentField(custom, "custom").text("type", limit: Self.nameByteCount), !type.isEmpty
            else { throw Failure(field: "custom.type", advice: "must be a text") }
            guard let data = custom["data"], data.kind == .object, let tree = JSONTree(data) else {
                throw Failure(field: "custom.data", advice: "must be an object of at most 1,024 values, 16 levels deep")
            }
            self.init(.custom(type: type, data: tree), options: options)
        } else {
            let text = try ContentField(body, "body").text("transmission", limit: Self.textByteCount)
            guard let text, !text.isEmpty else {
                throw Failure(field: "transmission", advice: "must be a text that is not empty")
            }
            self.init(.transmission(text), options: options)
        }
    }

    private static func options(_ body: JSONValue, vendor: Vendor) throws(Failure) -> [Option] {
        guard let all = body["options"] else { return [] }
        guard all.kind == .object else { throw Failure(field: "options", advice: "must be an object") }
        var options: [Option] = []
        for (key, list) in all.members {
            guard let name = key.string, vendor.facts.optionNames.contains(name) else { continue }
            guard list.kind == .object else { throw Failure(field: "options.\(name)", advice: "must be an object") }
            for (key, value) in list.members {
                guard let text = key.string, let pointer = JSONPointer(text), let tree = JSONTree(value) else {
                    throw Failure(
                        field: "options.\(name)",
                        advice: "each key must be a JSON pointer that begins with /, at most "
                            + "\(JSONPointer.byteCount) bytes long")
                }
                options.append(Option(pointer: pointer, value: tree))
                guard options.count <= optionCount else {
                    throw Failure(field: "options.\(name)", advice: "must have at most \(optionCount) members")
                }
            }
        }
        return options
    }
}

extension PushContent.Notice {
    /// `NotificationManager.SlotType` of HarmonyOS.
    private static let slotTypes: [String: Int64] = [
        "UNKNOWN_TYPE": 0, "SOCIAL_COMMUNICATION": 1, "SERVICE_INFORMATION": 2, "CONTENT_INFORMATION": 3,
        "LIVE_VIEW": 4, "CUSTOMER_SERVICE": 5, "OTHER_TYPES": 0xFFFF,
    ]

    init(_ value: JSONValue) throws(PushContent.Failure) {
        guard value.kind == .object else {
            throw PushContent.Failure(field: "notification", advice: "must be an object")
        }
        let fields = ContentField(value, "notification")
        func required(_ name: StaticString) throws(PushContent.Failure) -> String {
            guard let text = try fields.text(name, limit: PushContent.textByteCount), !text.isEmpty else {
                throw PushContent.Failure(field: "notification.\(name)", advice: "must be a text that is not empty")
            }
            return text
        }
        self.init(title: try required("title"), body: try required("body"))
        switch try fields.text("click_type", limit: PushContent.nameByteCount) ?? "startapp" {
        case "startapp": click = .startApp
        case "none": click = .none
        case "url": click = .url(try required("url"))
        case "payload", "payload_custom": click = .payload(try required("payload"))
        case "intent": click = .intent(try required("intent"))
        case "want": click = .intent(try required("want"))
        default:
            throw PushContent.Failure(
                field: "notification.click_type", advice: "must be intent, want, url, startapp, payload or none")
        }
        notifyID = try fields.integer("notify_id", in: 0...Int64(Int32.max))
        channelID = try fields.text("channel_id", limit: PushContent.nameByteCount)?.unlessEmpty
        bigText = try fields.text("big_text", limit: PushContent.textByteCount)?.unlessEmpty
        bigImage = try fields.text("big_image", limit: 2_048)?.unlessEmpty
        category = try fields.text("category", limit: PushContent.nameByteCount)?.unlessEmpty
        badgeIncrement = try fields.integer("badge_add_num", in: 1...99)
        if let name = value["slot_type"]?.string, let number = Self.slotTypes[name] {
            slotType = number
        } else {
            slotType = try fields.integer("slot_type", in: 0...0xFFFF)
        }
    }
}

/// Reads the members of one object and names them in failures.
private struct ContentField {
    private let object: JSONValue
    private let path: String

    init(_ object: JSONValue, _ path: String) { (self.object, self.path) = (object, path) }

    func text(_ name: StaticString, limit: Int) throws(PushContent.Failure) -> String? {
        guard let value = member(name) else { return nil }
        guard let text = value.string, text.utf8.count <= limit else {
            throw PushContent.Failure(field: "\(path).\(name)", advice: "must be a text of at most \(limit) bytes")
        }
        return text
    }

    func integer(_ name: StaticString, in range: ClosedRange<Int64>) throws(PushContent.Failure) -> Int64? {
        guard let value = member(name) else { return nil }
        guard let number = value.lenientInteger, range.contains(number) else {
            throw PushContent.Failure(
                field: "\(path).\(name)", advice: "must be an integer from \(range.lowerBound) to \(range.upperBound)")
        }
        return number
    }

    private func member(_ name: StaticString) -> JSONValue? { object[name] }
}
