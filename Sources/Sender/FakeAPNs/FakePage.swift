package import APNs
internal import Configuration
package import EventLoops
package import FakeVendors
package import Platform

/// The fakes' web page: the phones of all makers with their notifications, and buttons to tap Apple's notifications.
package final class FakePage {
    private let fakes: [Environment: FakeAPNs]
    private let vendors: FakeVendors?
    private let isOpen: Bool
    private var server: HTTPServer?

    /// Starts the page on `socket`; with `isOpen`, any host name is accepted.
    package init(
        of fakes: [Environment: FakeAPNs], vendors: FakeVendors? = nil, on loop: EventLoop,
        socket: consuming ListeningSocket, isOpen: Bool
    ) throws(SystemError) {
        (self.fakes, self.vendors, self.isOpen) = (fakes, vendors, isOpen)
        server = try HTTPServer(on: loop, socket: socket) { [unowned self] in handle($0) }
    }

    /// Whether a request comes from this page or from a program, and not from another site in a browser.
    ///
    /// The check of `Host` prevents DNS rebinding: a site whose name resolves to this machine has its own name there. Browsers
    /// add the header `Origin` to every request that may change something.
    static func isOwn(host: String?, origin: String?, isOpen: Bool) -> Bool {
        guard let host else { return origin == nil }
        if let origin, origin.lowercased() != "http://" + host.lowercased() { return false }
        if isOpen { return true }
        let isBracketed = host.hasPrefix("[")
        let name = isBracketed ? host.dropFirst().prefix { $0 != "]" } : host.prefix { $0 != ":" }
        return name.lowercased() == "localhost" || ListenAddress.isLoopback(host: String(name))
    }

    private func handle(_ exchange: HTTPExchange) {
        guard Self.isOwn(host: exchange.header("host"), origin: exchange.header("origin"), isOpen: isOpen) else {
            return exchange.respond(status: 403, body: Array("{\"error\":\"another site's request\"}".utf8))
        }
        let target = exchange.rawTarget
        let path = String(target.prefix { $0 != "?" })
        let query = Self.fields(target.dropFirst(path.count + 1))
        let method = exchange.method == .head ? .get : exchange.method
        switch (method, path) {
        case (.get, "/"):
            exchange.respond(status: 200, contentType: "text/html; charset=utf-8", body: Array(Self.html.utf8))
        case (.get, "/phones"):
            exchange.respond(status: 200, body: all({ $0.phonesPage() }, vendors?.phonesPage()))
        case (.get, "/channels"):
            exchange.respond(status: 200, body: all { $0.channelsPage() })
        case (.get, "/taps"):
            exchange.respond(status: 200, body: all { $0.tapsPage(after: Int(query["after"] ?? "") ?? 0) })
        case (.get, "/counts"):
            func counts(_ requests: Int, _ taken: Int) -> [UInt8] {
                Array("{\"requests\":\(requests),\"taken\":\(taken)}".utf8)
            }
            exchange.respond(
                status: 200,
                body: all(
                    { counts($0.requestCount, $0.takenCount) }, vendors.map { counts($0.requestCount, $0.takenCount) }))
        case (.post, "/tap"):
            let fake = fakes[Environment(rawValue: query["environment"] ?? "production") ?? .production]
            guard let tap = fake?.tap(token: query["token"] ?? "", id: query["id"] ?? "") else {
                return exchange.respond(status: 404, body: Array("{\"error\":\"no such notification\"}".utf8))
            }
            exchange.respond(status: 200, body: tap)
        case (.post, "/script"): play(exchange, query)
        default: exchange.respond(status: 404, body: Array("{\"error\":\"no such page\"}".utf8))
        }
    }

    private func play(_ exchange: HTTPExchange, _ query: [String: String]) {
        do {
            let script = try FakeScript.read(Array(exchange.body), file: "script")
            for (environment, fake) in fakes
            where query["environment"].map({ $0 == environment.rawValue }) ?? true { fake.play(script) }
            if query["environment"] == nil { vendors?.play(script.vendors) }
            exchange.respond(status: 204)
        } catch {
            exchange.respond(status: 400, contentType: "text/plain", body: Array("\(error)\n".utf8))
        }
    }

    /// Returns an object with the page of each of Apple's environments, and the other vendors' page.
    private func all(_ page: (FakeAPNs) -> [UInt8], _ others: [UInt8]? = nil) -> [UInt8] {
        var bytes: [UInt8] = []
        for environment in Environment.allCases {
            bytes += (bytes.isEmpty ? "{" : ",").utf8
            bytes += "\"\(environment.rawValue)\":".utf8
            bytes += fakes[environment].map(page) ?? Array("null".utf8)
        }
        if let others { bytes += Array(",\"vendors\":".utf8) + others }
        return bytes + Array("}".utf8)
    }

    private static func fields(_ query: some StringProtocol) -> [String: String] {
        var fields: [String: String] = [:]
        for part in query.split(separator: "&") {
            let pair = part.split(separator: "=", maxSplits: 1)
            if pair.count == 2 { fields[String(pair[0])] = String(pair[1]) }
        }
        return fields
    }

    private static let html = """
        <!doctype html>
        <html lang="en"><head><meta charset="utf-8"><title>Fake push services</title>
        <meta name="viewport" content="width=device-width"><style>
        :root { color-scheme: light dark; font: 15px/1.4 system-ui, sans-serif }
        body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
        main { display: flex; flex-wrap: wrap; gap: 1.5rem }
        article { border: 2px solid #8888; border-radius: 1.6rem; padding: 1rem; width: 18rem }
        h2 { font-size: .8rem; overflow-wrap: anywhere; margin: 0 0 .5rem }
        .badge { background: #d22; color: #fff; border-radius: 1rem; padding: 0 .5rem; margin-left: .4rem }
        .note { background: #8883; border-radius: .8rem; padding: .6rem; margin: .5rem 0 }
        .note.silent { opacity: .6 } .note.tapped { outline: 2px solid #2a2 }
        .note p { margin: .1rem 0 } .small { font-size: .75rem; opacity: .8; overflow-wrap: anywhere }
        </style></head><body><h1 data-zh="手机">The phones</h1>
        <p id="state" role="status" data-zh="还没有收到通知。">No notification has come yet.</p><main id="phones"></main>
        <h1 data-zh="苹果的频道">Apple's channels</h1><main id="channels"></main><script>
        const isChinese = navigator.language.startsWith("zh")
        const say = (english, chinese) => isChinese ? chinese : english
        if (isChinese) {
            document.documentElement.lang = "zh-CN"
            for (const element of document.querySelectorAll("[data-zh]")) element.textContent = element.dataset.zh
        }
        const makers = {
            production: ["Apple production", "苹果 生产环境"], sandbox: ["Apple sandbox", "苹果 沙盒环境"],
            fcm: ["Android, FCM", "安卓 FCM"], hms: ["Huawei", "华为"], harmony: ["HarmonyOS", "鸿蒙"],
            honor: ["Honor", "荣耀"], xiaomi: ["Xiaomi", "小米"], oppo: ["OPPO", "OPPO"], vivo: ["vivo", "vivo"],
            meizu: ["Meizu", "魅族"], webPush: ["Browser", "浏览器"],
        }
        const make = (name, text, type) => {
            const element = document.createElement(name)
            element.textContent = text ?? ""
            if (type) element.className = type
            return element
        }
        async function show() {
            const all = await (await fetch("phones")).json()
            const main = document.createDocumentFragment()
            let count = 0
            for (const [environment, page] of Object.entries(all)) for (const phone of page?.phones ?? []) {
                count += 1
                const card = make("article")
                const head = make("h2", say(...makers[phone.vendor ?? environment]) + " · " + phone.token.slice(0, 16))
                if (phone.badge) head.append(make("span", phone.badge, "badge"))
                card.append(head)
                for (const note of phone.shown) {
                    const box = make("div", "", "note" + (note.pushType == "background" ? " silent" : "")
                        + (note.tapped ? " tapped" : ""))
                    box.append(make("p", note.title), make("p", note.text || note.data || "(" + note.pushType + ")"),
                        make("p", (note.topic ?? note.vendor) + " · " + new Date(note.at).toLocaleTimeString() + " · " + note.id, "small"))
                    card.append(box)
                    if (phone.vendor) continue
                    const button = make("button", note.tapped ? say("Tapped", "已点击") : say("Tap", "点击"))
                    button.onclick = () => fetch("tap?environment=" + environment + "&token=" + phone.token
                        + "&id=" + note.id, { method: "POST" }).then(show)
                    box.append(button)
                }
                main.append(card)
            }
            document.getElementById("phones").replaceChildren(main)
            const channels = document.createDocumentFragment()
            for (const [environment, page] of Object.entries(await (await fetch("channels")).json()))
                for (const channel of page?.channels ?? []) {
                    const card = make("article")
                    card.append(make("h2", say(...makers[environment]) + " · " + channel.id),
                        make("p", channel.topic + say(" · storage ", " · 存储 ") + channel.storage, "small"),
                        make("p", channel.broadcasts + say(" broadcast(s)", " 次广播")))
                    if (channel.last) card.append(make("p", JSON.stringify(channel.last.aps), "note small"))
                    channels.append(card)
                }
            document.getElementById("channels").replaceChildren(channels)
            if (count) document.getElementById("state").textContent = count + say(" phone(s)", " 台手机")
        }
        show(); setInterval(show, 1000)
        </script></body></html>
        """
}
