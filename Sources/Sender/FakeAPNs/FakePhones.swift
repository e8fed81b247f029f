internal import JSON

/// The simulated phones, by token.
struct FakePhones {
    struct Shown {
        var id: String
        var collapseID: String
        var at: Int64
        var pushType: String
        var topic: String
        /// The alert's title, body and sound; empty without an alert.
        var title = ""
        var text = ""
        var sound = ""
        var payload: [UInt8]
        var isTapped = false
    }

    struct Phone {
        var badge: Int64 = 0
        /// The notifications, newest last.
        var shown: [Shown] = []
    }

    /// A tap, for a program that simulates the app.
    struct Tap {
        var number: Int
        var token: String
        var id: String
        var payload: [UInt8]

        var members: JSONObject {
            ["number": number, "token": token, "id": id, "userInfo": JSONText(payload)]
        }
    }

    private static let phoneLimit = 1_000
    private static let shownLimit = 50

    private(set) var phones: [String: Phone] = [:]
    private var order: [String] = []
    private(set) var taps: [Tap] = []
    private var tapCount = 0

    mutating func show(_ request: FakeRequest, at time: Int64, parser: JSONParser) {
        let token = request.token
        if phones[token] == nil {
            if order.count >= Self.phoneLimit { phones[order.removeFirst()] = nil }
            order.append(token)
            phones[token] = Phone()
        }
        var shown = Shown(
            id: request.fields["apns-id"] ?? "", collapseID: request.fields["apns-collapse-id"] ?? "", at: time,
            pushType: request.fields["apns-push-type"] ?? "alert", topic: request.fields["apns-topic"] ?? "",
            payload: request.body)
        var badge: Int64?
        request.body.withUnsafeBytes { bytes in
            guard let aps = (try? parser.parse(bytes))?["aps"] else { return }
            badge = aps["badge"]?.integer
            shown.sound = aps["sound"]?.string ?? aps["sound"]?["name"]?.string ?? ""
            guard let alert = aps["alert"] else { return }
            shown.text = alert.string ?? alert["body"]?.string ?? ""
            shown.title = alert["title"]?.string ?? ""
        }
        if let badge { phones[token]?.badge = badge }
        phones[token]?.shown.removeAll {
            $0.id == shown.id || !shown.collapseID.isEmpty && $0.collapseID == shown.collapseID
        }
        phones[token]?.shown.append(shown)
        if let count = phones[token]?.shown.count, count > Self.shownLimit { phones[token]?.shown.removeFirst() }
    }

    mutating func tap(_ token: String, _ id: String) -> Tap? {
        guard let place = phones[token]?.shown.firstIndex(where: { $0.id == id }),
            let payload = phones[token]?.shown[place].payload
        else { return nil }
        phones[token]?.shown[place].isTapped = true
        tapCount += 1
        let tap = Tap(number: tapCount, token: token, id: id, payload: payload)
        taps.append(tap)
        if taps.count > 1_000 { taps.removeFirst() }
        return tap
    }

    func page() -> [UInt8] {
        let all = order.reversed().compactMap { token in
            phones[token].map { phone -> JSONObject in
                ["token": token, "badge": phone.badge, "shown": phone.shown.reversed().map(Self.members)]
            }
        }
        return (["phones": all] as JSONObject).bytes
    }

    private static func members(_ shown: Shown) -> JSONObject {
        [
            "id": shown.id, "at": shown.at, "pushType": shown.pushType, "topic": shown.topic,
            "collapseId": shown.collapseID, "title": shown.title, "text": shown.text, "sound": shown.sound,
            "tapped": shown.isTapped, "payload": JSONText(shown.payload),
        ]
    }

    func page(tapsAfter number: Int) -> [UInt8] {
        (["taps": taps.filter { $0.number > number }.map(\.members)] as JSONObject).bytes
    }
}
