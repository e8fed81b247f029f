internal import JSON

/// The simulated phones and browsers, by vendor and device token.
struct FakeMakers {
    struct Shown {
        var id: String
        var at: Int64
        /// Empty for a message that the phone does not show.
        var title: String
        var text: String
        /// The text or the JSON that the app gets.
        var data: String
    }

    private struct Phone {
        var vendor: FakeVendor
        var token: String
        /// The messages, newest last.
        var shown: [Shown] = []
    }

    private static let phoneLimit = 1_000
    private static let shownLimit = 50

    private var phones: [String: Phone] = [:]
    private var order: [String] = []

    mutating func show(_ shown: Shown, _ vendor: FakeVendor, _ token: String) {
        let key = vendor.rawValue + " " + token
        if phones[key] == nil {
            if order.count >= Self.phoneLimit { phones[order.removeFirst()] = nil }
            order.append(key)
        }
        var phone = phones[key] ?? Phone(vendor: vendor, token: token)
        phone.shown.append(shown)
        if phone.shown.count > Self.shownLimit { phone.shown.removeFirst() }
        phones[key] = phone
    }

    func page() -> [UInt8] {
        let all = order.reversed().compactMap { phones[$0] }.map { phone -> JSONObject in
            let shown = phone.shown.reversed().map { one -> JSONObject in
                [
                    "id": one.id, "at": one.at, "vendor": phone.vendor.rawValue, "token": phone.token,
                    "title": one.title, "text": one.text, "data": one.data,
                ]
            }
            return ["vendor": phone.vendor.rawValue, "token": phone.token, "shown": shown]
        }
        return (["phones": all] as JSONObject).bytes
    }
}
