// The rules of Apple for parsed JSON. The gateway, the sender and the test server all use them.

package import JSON

extension BodyValue {
    package init(_ value: JSONValue) {
        if let byteCount = unsafe value.stringBytes?.count {
            self = byteCount <= Bounds.shortTextByteCount ? .text(value.string ?? "") : .longText
        } else if let number = value.integer {
            self = .integer(number)
        } else if let flag = value.bool {
            self = .flag(flag)
        } else if value.kind == .object {
            self = .object(isEmpty: value.isEmptyContainer)
        } else if value.kind == .array {
            self = .list(isEmpty: value.isEmptyContainer)
        } else if value.isNull {
            self = .null
        } else {
            self = .number(value.double ?? value.unsignedInteger.map(Double.init) ?? .infinity)
        }
    }
}

extension BodyFacts {
    package init(_ body: JSONValue, isActivity: Bool) {
        self.init()
        isObject = body.kind == .object
        guard let aps = body["aps"], aps.kind == .object else { return }
        hasAps = true
        let keys = isActivity ? BodyKey.ofActivity : BodyKey.ofNotification
        for (name, value) in aps.members {
            if let key = keys.first(where: { name.equals($0.name) }) { note(key, BodyValue(value)) }
        }
    }
}
