internal import APNs
import Configuration
internal import Quotas
internal import Cryptography
internal import Delivery
internal import Gateway
internal import PushAPI
internal import Wire

/// A production for each call of both HTTP listeners: meaningful requests around every limit.
package enum GatewayGrammar {
    typealias Body = @Sendable (inout Script, FuzzWords, Int, inout JSONText) -> Void

    package static let served = (open: PublicEndpoint.table.calls, admin: AdminEndpoint.table.calls)
    /// The calls with productions, by listener.
    package static var known: (open: [String], admin: [String]) {
        (openBodies.keys + bodiless.open, adminBodies.keys + bodiless.admin)
    }

    private static let openCalls = placed(known.open)
    private static let adminCalls = placed(known.admin)

    /// Orders calls by a digest of their names, so that a new call does not move the others.
    private static func placed(_ calls: [String]) -> [(place: Int, call: String)] {
        calls.map { call in
            (call.utf8.reduce(0x1505) { ($0 &* 33 ^ Int($1)) & 0xFFFF }, call)
        }.sorted { $0 < $1 }
    }

    /// Returns the next request, of any call.
    static func request(_ script: inout Script, _ words: FuzzWords) -> FuzzRequest {
        let isAdmin = script.choice(6) == 0
        let calls = isAdmin ? adminCalls : openCalls
        let place = Int(script.byte()) << 8 | Int(script.byte())
        let call = (calls.first { $0.place >= place } ?? calls[0]).call
        return request(call, isAdmin: isAdmin, &script, words)
    }

    static func request(
        _ call: String, isAdmin: Bool, _ script: inout Script, _ words: FuzzWords
    ) -> FuzzRequest {
        let app = script.choice(8) == 0 ? 1 : 0
        var request = FuzzRequest(call: call, isAdmin: isAdmin, target: target(call, app, &script, words))
        request.isUncouth = request.target.count > words.configuration.limits.httpHeaderBytes / 2
        if isAdmin {
            let token = script.choice(16) == 0 ? "nobody-has-this-one" : GatewayFuzz.bearers[app]
            request.credential = "Authorization: Bearer \(token)"
        } else {
            let tokens = words.tokens[script.choice(32) == 0 ? 1 - app : app]
            request.credential = "token: \(script.choice(32) == 0 ? "none" : tokens.first ?? "none")"
        }
        if let body = (isAdmin ? adminBodies : openBodies)[call] {
            var json = JSONText()
            if script.choice(32) == 0 {
                // A body of raw bytes from the input.
                json.value(script.text(upTo: 255))
            } else {
                body(&script, words, app, &json)
            }
            request.body = json.bytes
        }
        if call.hasSuffix("/receipt") { prove(&request, app, words) }
        let limit =
            isAdmin
            ? Limits.adminBodyByteCount
            : call.hasSuffix("/receipt") ? Limits.openBodyByteCount : Limits.requestBodyByteCount
        if request.body.count > limit / 2 { request.isUncouth = true }
        words.byteBudget -= request.body.count
        return request
    }

    /// Signs the request with the secret of the device in the body, if the device exists.
    private static func prove(_ request: inout FuzzRequest, _ app: Int, _ words: FuzzWords) {
        let cid = String(decoding: request.body.dropFirst(8).prefix(32), as: UTF8.self)
        let transcript = ReceiptRequest.transcript(appID: FuzzWords.appIDs[app], body: request.body)
        let proof = HMACSHA256.code(key: words.secrets[cid] ?? [], message: transcript)
        let hex = proof.map { byte in (byte < 16 ? "0" : "") + String(byte, radix: 16) }.joined()
        request.credential = "X-Longwire-Proof: \(hex)"
    }

    // MARK: Targets

    private static func target(
        _ call: String, _ app: Int, _ script: inout Script, _ words: FuzzWords
    ) -> [UInt8] {
        var target: [UInt8] = []
        for segment in call.drop(while: { $0 != "/" }).split(separator: "/") {
            target.append(UInt8(ascii: "/"))
            guard segment.first == "{" else {
                target += segment.utf8
                continue
            }
            target += parameter(String(segment.dropFirst().dropLast()), call, app, &script, words)
        }
        if call == "GET /v2/{appId}/user/test/cid/list" {
            target += "?pageNum=\(script.edge(1...3))&pageSize=\(script.edge(1...1_000))&remark=w".utf8
        }
        return target
    }

    private static func parameter(
        _ name: String, _ call: String, _ app: Int, _ script: inout Script, _ words: FuzzWords
    ) -> [UInt8] {
        // Arbitrary bytes, percent-encoded.
        if script.choice(32) == 0 { return script.bytes(upTo: 64).flatMap { Array("%\(hexDigits($0))".utf8) } }
        let limits = words.configuration.limits
        switch name {
        // Apps of the configuration file are never changed.
        case "appId" where changesApp(call) && script.choice(8) != 0: return Array(script.pick(madeApps).utf8)
        case "appId": return Array((script.choice(32) == 0 ? "none" : FuzzWords.appIDs[app]).utf8)
        case "token": return Array((words.tokens[app].dropFirst().last ?? "gone").utf8)
        case "taskId": return Array(task(&script, words).utf8)
        case "taskIds":
            return list(script.size(words.app(app).push.bounds.reportedTasks), &script) { task(&$0, words) }
        case "cid": return Array(cid(&script, words, app).utf8)
        case "cids":
            let users = limits.users
            let limit =
                call.contains("/black/")
                ? users.blacklistDevices
                : call.contains("/badge/")
                    ? users.badgeDevices
                    : call.contains("/deviceStatus/")
                        ? users.deviceStatusDevices
                        : call.contains("/status/") ? users.statusDevices : users.detailDevices
            return list(script.size(limit), &script) { cid(&$0, words, app) }
        case "alias":
            return script.choice(8) == 0
                ? plain(&script, limits.users.aliasCharacters) : Array(script.pick(FuzzWords.aliases).utf8)
        case "tag":
            return script.choice(8) == 0
                ? plain(&script, limits.users.tagCharacters) : Array(script.pick(FuzzWords.tags).utf8)
        case "group": return script.choice(4) == 0 ? plain(&script, Limits.groupNameByteCount) : Array("group0".utf8)
        case "date": return Array(script.pick(["2026-11-18", "2026-11-17", "2026-12-01", "2020-02-30", "x"]).utf8)
        case "type": return Array(script.pick(["xm", "hw", "apns"]).utf8)
        case "requestId": return Array(script.pick(["repeated-1", "request-1", "request-2", "request-9"]).utf8)
        case "msgId": return Array(words.messages.pick(&script, otherwise: absent).utf8)
        default: return Array("x".utf8)
        }
    }

    private static let absent = "00000000000000000000000000000123"

    private static func hexDigits(_ byte: UInt8) -> String {
        let text = String(byte, radix: 16)
        return byte < 16 ? "0" + text : text
    }

    private static func plain(_ script: inout Script, _ limit: Int) -> [UInt8] {
        [UInt8](repeating: UInt8(ascii: "p"), count: max(1, script.size(limit)))
    }

    private static func list(
        _ count: Int, _ script: inout Script, _ element: (inout Script) -> String
    ) -> [UInt8] {
        let different = (0..<min(count, 3)).map { _ in element(&script) }
        guard count > 3 else { return Array(different.joined(separator: ",").utf8) }
        // All cids after the first few are unregistered and distinct.
        let others = (3..<count).map { number in
            let digits = String(number, radix: 16)
            return String(repeating: "e", count: 32 - digits.count) + digits
        }
        return Array((different + others).joined(separator: ",").utf8)
    }

    static func cid(_ script: inout Script, _ words: FuzzWords, _ app: Int) -> String {
        let known = words.cids[app]
        guard !known.isEmpty, script.choice(24) != 0 else { return absent }
        return known[script.choice(known.count)]
    }

    static func task(_ script: inout Script, _ words: FuzzWords) -> String {
        words.tasks.pick(&script, otherwise: "RASL_1118_000000000000000000000000")
    }

    private static let madeApps = ["made-0", "made-1", "made-2"]

    private static func changesApp(_ call: String) -> Bool {
        let ends = [
            "/v1/apps/{appId}", "/v1/apps/{appId}/rotate", "/v1/apps/{appId}/enable", "/v1/apps/{appId}/disable",
        ]
        return ends.contains { call.hasSuffix($0) }
    }

    /// Writes valid and invalid settings of an app.
    private static func settings(_ script: inout Script, _ json: inout JSONText) {
        for _ in 0..<script.choice(4) {
            let number = script.edge(1...1_000)
            switch script.choice(6) {
            case 0: json.member("maxAttempts", number: number)
            case 1:
                json.key("queue")
                json.object { $0.member("messages", number: number) }
            case 2:
                json.key("push")
                json.object { $0.member("callsPerMinute", number: number) }
            case 3:
                json.key("apns")
                json.object { $0.member("topic", "com.example.\(number)") }
            case 4:
                json.key(script.pick(["queue", "push", "apns", "maxAttempts", "appSecret"]))
                json.value("null")
            default: json.member(script.pick(["novelty", "appSecretFile", "appKey"]), script.words(64))
            }
        }
    }

    // MARK: Calls without a body

    private static let bodiless: (open: [String], admin: [String]) = (
        [
            "DELETE /v2/{appId}/auth/{token}", "DELETE /v2/{appId}/task/{taskId}",
            "GET /v2/{appId}/task/schedule/{taskId}", "DELETE /v2/{appId}/task/schedule/{taskId}",
            "GET /v2/{appId}/task/detail/{cid}/{taskId}", "GET /v2/{appId}/user/status/{cids}",
            "GET /v2/{appId}/user/deviceStatus/{cids}", "GET /v2/{appId}/user/detail/{cids}",
            "DELETE /v2/{appId}/user/alias/{alias}", "GET /v2/{appId}/user/alias/cid/{cid}",
            "GET /v2/{appId}/user/cid/alias/{alias}", "GET /v2/{appId}/user/custom_tag/cid/{cid}",
            "POST /v2/{appId}/user/black/cid/{cids}", "DELETE /v2/{appId}/user/black/cid/{cids}",
            "GET /v2/{appId}/user/info/base/{cids}", "GET /v2/{appId}/user/info/advanced/{cids}",
            "GET /v2/{appId}/user/test/cid/list", "GET /v2/{appId}/report/push/task/{taskIds}",
            "GET /v2/{appId}/report/push/task/{taskIds}/detail", "GET /v2/{appId}/report/push/task_group/{group}",
            "GET /v2/{appId}/report/push/date/{date}", "GET /v2/{appId}/report/push/count",
            "GET /v2/{appId}/report/user/date/{date}", "GET /v2/{appId}/report/online_user",
            "POST /v2/{appId}/log/upload", "GET /v2/check", "HEAD /v2/check", "GET /healthz", "HEAD /healthz",
            "GET /readyz", "HEAD /readyz",
        ],
        [
            "GET /v1/apps/{appId}", "DELETE /v1/apps/{appId}", "POST /v1/apps/{appId}/enable",
            "POST /v1/apps/{appId}/disable", "GET /v1/messages/{msgId}", "GET /v1/apps",
            "GET /v1/apps/{appId}/devices/{cid}", "GET /v1/cluster",
            "GET /v1/backup", "POST /v1/sign-in", "GET /v1/drain", "GET /v1/health",
            "GET /metrics", "GET /v1/metrics/history",
            "GET /v1/apps/{appId}/devices", "GET /v1/apps/{appId}/devices/{cid}/messages",
            "POST /v1/apps/{appId}/devices/{cid}/purge", "POST /v1/apps/{appId}/devices/{cid}/replay",
            "POST /v1/apps/{appId}/devices/{cid}/disconnect", "POST /v1/apps/{appId}/devices/{cid}/unblacklist",
            "GET /v1/apps/{appId}/aliases/{alias}",
            "GET /v1/apps/{appId}/tasks/{taskId}", "GET /v1/apps/{appId}/tasks/{taskId}/devices/{cid}",
            "GET /v1/apps/{appId}/requests/{requestId}", "GET /v1/handoff/jobs",
            "GET /v1/apps/{appId}/upstream", "GET /v1/apps/{appId}/events",
            "GET /healthz", "HEAD /healthz", "GET /readyz", "HEAD /readyz",
        ]
    )

    // MARK: Calls with a body

    private static let openBodies: [String: Body] = [
        "POST /v2/{appId}/auth": { script, words, app, json in
            let known = words.app(app)
            let time = script.choice(16) == 0 ? script.edge(0...(1 << 52)) : words.time
            let secret = known.masterSecrets.first?.exposed ?? ""
            json.object {
                $0.member("appkey", known.appKey)
                $0.member("timestamp", "\(time)")
                $0.member("sign", SHA256.digest(Array((known.appKey + "\(time)" + secret).utf8)).hex)
            }
        },
        "POST /v2/{appId}/receipt": { script, words, app, json in
            let time = script.choice(16) == 0 ? script.edge(0...(1 << 52)) : words.time
            let count = script.size(Limits.receiptEventCount)
            json.object { json in
                json.member("cid", cid(&script, words, app))
                json.member("timestamp", number: time)
                json.key("events")
                json.array { json in
                    for _ in 0..<count {
                        let message = words.messages.pick(&script, otherwise: String(repeating: "0", count: 32))
                        let kind = script.pick(["shown", "opened", "action"])
                        let action = kind == "action" ? script.edge(90_001...90_999) : 0
                        let at = script.flag() ? "" : #","at":\#(script.edge(0...words.time))"#
                        json.value(#"{"msgId":"\#(message)","event":"\#(kind)","action":\#(action)\#(at)}"#)
                    }
                }
            }
        },
        "POST /v2/{appId}/push/single/cid": { script, words, app, json in
            json.object { push(&script, words, app, &$0, audience: .device) }
        },
        "POST /v2/{appId}/push/single/alias": { script, words, app, json in
            json.object { push(&script, words, app, &$0, audience: .alias) }
        },
        "POST /v2/{appId}/push/single/batch/cid": { script, words, app, json in
            batch(&script, words, app, &json, audience: .device)
        },
        "POST /v2/{appId}/push/single/batch/alias": { script, words, app, json in
            batch(&script, words, app, &json, audience: .alias)
        },
        "POST /v2/{appId}/push/list/message": { script, words, app, json in
            json.object { push(&script, words, app, &$0, audience: .nobody) }
        },
        "POST /v2/{appId}/push/list/cid": { script, words, app, json in
            json.object { json in
                listCall(&script, words, &json)
                json.key("audience")
                json.object { json in
                    json.key("cid")
                    devices(&script, words, app, script.size(words.app(app).push.bounds.listTargets), &json)
                }
            }
        },
        "POST /v2/{appId}/push/list/alias": { script, words, app, json in
            json.object { json in
                listCall(&script, words, &json)
                json.key("audience")
                json.object { json in
                    json.key("alias")
                    names(FuzzWords.aliases, script.size(words.app(app).push.bounds.listTargets), &json)
                }
            }
        },
        "POST /v2/{appId}/push/single/cid_by_tag": { script, words, app, json in
            json.object { push(&script, words, app, &$0, audience: .candidates) }
        },
        "POST /v2/{appId}/push/list/cid_by_tag": { script, words, app, json in
            json.object { json in
                listCall(&script, words, &json)
                json.key("audience")
                candidates(&script, words, app, &json)
            }
        },
        "POST /v2/{appId}/push/all": { script, words, app, json in
            json.object { push(&script, words, app, &$0, audience: .all) }
        },
        "POST /v2/{appId}/push/tag": { script, words, app, json in
            json.object { push(&script, words, app, &$0, audience: .conditions) }
        },
        "POST /v2/{appId}/push/fast_custom_tag": { script, words, app, json in
            json.object { push(&script, words, app, &$0, audience: .oneTag) }
        },
        "POST /v2/{appId}/user/alias": { script, words, app, json in aliasItems(&script, words, app, &json) },
        "DELETE /v2/{appId}/user/alias": { script, words, app, json in aliasItems(&script, words, app, &json) },
        "POST /v2/{appId}/user/custom_tag/cid/{cid}": { script, words, _, json in
            let users = words.configuration.limits.users
            let count = script.size(users.tagsPerDevice)
            let long = script.choice(4) == 0 ? script.size(users.tagTotalCharacters / max(1, count)) : 0
            let tail = String(repeating: "t", count: min(long, 4_096))
            json.object { json in
                json.key("custom_tag")
                json.array { json in for index in 0..<count { json.text("tag\(index)\(tail)") } }
            }
        },
        "PUT /v2/{appId}/user/custom_tag/batch/{tag}": { script, words, app, json in
            cidList(&script, words, app, &json, limit: words.configuration.limits.users.tagDevices)
        },
        "DELETE /v2/{appId}/user/custom_tag/batch/{tag}": { script, words, app, json in
            cidList(&script, words, app, &json, limit: words.configuration.limits.users.tagDevices)
        },
        "POST /v2/{appId}/user/badge/cid/{cids}": { script, _, _, json in
            let badge = script.pick(["+1", "-1", "5", "+2147483647", "-2147483648", "2147483648", "0", ""])
            json.object { $0.member("badge", badge) }
        },
        "POST /v2/{appId}/user/count": { script, words, _, json in
            json.object { conditions(&script, words, &$0) }
        },
        "POST /v2/{appId}/user/bind_dt/{type}": { script, words, app, json in
            let item = #"{"cid":"\#(cid(&script, words, app))","device_token":"dt"}"#
            let count = script.size(Limits.deviceTokenItemCount)
            json.object { json in
                json.key("dt_list")
                json.array { $0.repeated(item, count: count) }
            }
        },
        "POST /v2/{appId}/user/test/cid/add": { script, words, app, json in
            let count = script.size(words.configuration.limits.users.testDevices)
            let remark = String(decoding: script.words(Limits.remarkCharacterCount), as: UTF8.self)
            let first = cid(&script, words, app)
            json.object { json in
                json.key("cid_list")
                json.array { json in
                    for number in 0..<count {
                        let digits = String(number, radix: 16)
                        let name = number == 0 ? first : String(repeating: "d", count: 32 - digits.count) + digits
                        json.value(#"{"cid":"\#(name)","remark":"\#(count > 8 ? "w" : remark)"}"#)
                    }
                }
            }
        },
        "POST /v2/{appId}/user/test/cid/update": { script, words, app, json in
            let name = cid(&script, words, app)
            let remark = script.words(Limits.remarkCharacterCount)
            json.object {
                $0.member("cid", name)
                $0.member("remark", remark)
            }
        },
        "POST /v2/{appId}/user/test/cid/delete": { script, words, app, json in
            let count = script.size(words.configuration.limits.users.testDevices)
            json.object { json in
                json.key("cid_list")
                devices(&script, words, app, count, &json)
            }
        },
    ]

    private static let adminBodies: [String: Body] = [
        "POST /v1/handoff/lease": { script, _, _, json in
            let most = script.size(HandoffBounds.jobCount)
            let seconds = script.edge(HandoffBounds.leaseSeconds),
                wait = script.choice(8) == 0 ? script.edge(0...30) : 0
            let channel = script.choice(4) == 0 ? script.pick(VendorChannel.allCases.map { "\($0.name)" }) : "apns"
            json.object {
                $0.member("channel", channel)
                $0.member("max", number: most)
                $0.member("leaseSeconds", number: seconds)
                $0.member("waitSeconds", number: wait)
            }
        },
        "POST /v1/apps/{appId}/push": { script, words, app, json in
            json.object { push(&script, words, app, &$0, audience: .device) }
        },
        "POST /v1/handoff/results": { script, words, _, json in
            let outcome = script.pick(["accepted", "retry", "rejected", "badToken", "lost", "unsent"])
            let reason = String(decoding: script.words(Limits.vendorReasonByteCount), as: UTF8.self)
            let after = script.edge(HandoffBounds.retryAfterSeconds)
            let count = script.size(HandoffBounds.jobCount)
            let some = (0..<3).map { _ in words.leases.pick(&script, otherwise: noLease) }
            let extra = outcome == "retry" || outcome == "unsent" ? #","retryAfterSeconds":\#(after)"# : ""
            json.object { json in
                json.key("results")
                json.array { json in
                    for number in 0..<min(count, 3) {
                        json.value(#"{\#(some[number]),"outcome":"\#(outcome)","reason":"\#(reason)"\#(extra)}"#)
                    }
                    json.repeated(#"{\#(some[0]),"outcome":"accepted"}"#, count: count - 3)
                }
            }
        },
        "POST /v1/handoff/receipts": { script, words, app, json in
            let kind = script.pick(["delivered", "clicked", "badToken"])
            let channel = script.choice(4) == 0 ? script.pick(VendorChannel.allCases.map { "\($0.name)" }) : nil
            let appID = script.choice(4) == 0 ? FuzzWords.appIDs[app] : nil
            let token = script.choice(3) == 0 ? script.words(Wire.Limits.tokenByteCount) : nil
            let at = script.choice(3) == 0 ? script.edge(0...words.time) : nil
            let count = script.size(HandoffBounds.jobCount)
            let some = (0..<3).map { _ in words.messages.pick(&script, otherwise: String(repeating: "0", count: 32)) }
            json.object { json in
                json.key("receipts")
                json.array { json in
                    for number in 0..<min(count, 3) {
                        json.object {
                            $0.member("msgId", some[number])
                            $0.member("kind", kind)
                            if let channel { $0.member("channel", channel) }
                            if let appID { $0.member("appId", appID) }
                            if let token { $0.member("token", token) }
                            if let at { $0.member("at", number: at) }
                        }
                    }
                    json.repeated(#"{"msgId":"\#(some[0])","kind":"\#(kind)"}"#, count: count - 3)
                }
            }
        },
        "POST /v1/apps": { script, _, _, json in
            let name = script.choice(16) == 0 ? FuzzWords.appIDs[0] : script.pick(madeApps)
            let secret = script.choice(3)
            json.object { json in
                json.member("appId", name)
                if secret == 0 { json.member("masterSecret", script.words(256)) }
                if secret == 1 { json.member("appSecret", "a-secret-of-the-fuzzer") }
                settings(&script, &json)
            }
        },
        "PATCH /v1/apps/{appId}": { script, _, _, json in json.object { settings(&script, &$0) } },
        "POST /v1/apps/{appId}/rotate": { script, _, _, json in
            let seconds = script.edge(0...31_622_400)
            json.object { json in
                json.member("secret", script.pick(["appSecret", "masterSecret", "appKey"]))
                if script.choice(2) == 0 { json.member("overlapSeconds", number: seconds) }
                if script.choice(4) == 0 { json.member("value", script.words(256)) }
            }
        },
        "POST /v1/backup": { script, _, _, json in
            // A few names, so that duplicates are refused and the number of objects stays small.
            let name = ["one", "two", "..", "a/b"][script.choice(4)]
            json.object { $0.member("name", name) }
        },
        "POST /v1/drain": { script, _, _, json in
            json.object {
                $0.member("pace", number: script.edge(0...1_000_001))
                if script.choice(3) == 0 { $0.member("alternate", ["127.0.0.1:7443", "a", ""][script.choice(3)]) }
            }
        },
        "POST /v1/apps/{appId}/upstream/ack": { script, _, _, json in
            let cursor = script.edge(0...Int64.max)
            json.object { $0.member("cursor", "\(cursor)") }
        },
        "POST /v1/apps/{appId}/events/ack": { script, _, _, json in
            let cursor = script.edge(0...Int64.max)
            json.object { $0.member("cursor", "\(cursor)") }
        },
        "POST /v1/cluster/drain": { script, _, _, json in
            let node = script.edge(1...1_023)
            let isUndone = script.choice(2) == 0
            json.object { json in
                json.member("node", number: node)
                if isUndone {
                    json.key("undo")
                    json.value("true")
                }
            }
        },
        "POST /v1/cluster/move": { script, _, _, json in
            let part = script.edge(0...255)
            let node = script.edge(1...1_023)
            json.object { json in
                json.member("part", number: part)
                json.member("to", number: node)
            }
        },
        "POST /v1/handoff/extend": { script, words, _, json in
            let count = script.size(HandoffBounds.jobCount)
            let lease = words.leases.pick(&script, otherwise: noLease)
            let seconds = script.edge(HandoffBounds.leaseSeconds)
            json.object { json in
                json.key("jobs")
                json.array { $0.repeated("{\(lease)}", count: count) }
                json.member("leaseSeconds", number: seconds)
            }
        },
    ]

    private static let noLease =
        #""jobId":"00000000000000000000000000000123","leaseId":"00000000000000010000000000000001""#

    // MARK: Parts

    private enum Audience { case device, alias, nobody, candidates, all, conditions, oneTag }

    private static func push(
        _ script: inout Script, _ words: FuzzWords, _ app: Int, _ json: inout JSONText, audience: Audience
    ) {
        let way = script.byte()
        if audience != .nobody || way & 1 == 0 { requestID(&script, words, &json) }
        if way & 0x1E == 0x02 { json.member("group_name", plain(&script, Limits.groupNameByteCount)) }
        if way & 0x1E == 0x04 { json.member("group_name", "group0") }
        self.audience(&script, words, app, &json, audience)
        if way & 0x20 != 0 { settings(&script, words, app, &json) }
        message(&script, words, app, &json)
        if way & 0x40 != 0 {
            json.key("push_channel")
            json.object { json in
                json.key("ios")
                ios(&script, &json)
            }
        }
    }

    private static func requestID(_ script: inout Script, _ words: FuzzWords, _ json: inout JSONText) {
        switch script.choice(16) {
        case 0: json.member("request_id", script.words(Limits.requestIDCharacterCount.upperBound))
        case 1: json.member("request_id", plain(&script, Limits.requestIDCharacterCount.lowerBound))
        case 2: json.member("request_id", "repeated-\(script.choice(4))")
        default:
            words.requestCount += 1
            json.member("request_id", "request-\(words.requestCount)")
        }
    }

    private static func audience(
        _ script: inout Script, _ words: FuzzWords, _ app: Int, _ json: inout JSONText, _ audience: Audience
    ) {
        if audience == .nobody { return }
        json.key("audience")
        switch audience {
        case .device:
            let name = cid(&script, words, app)
            json.value(#"{"cid":["\#(name)"]}"#)
        case .alias: json.value(#"{"alias":["\#(script.pick(FuzzWords.aliases))"]}"#)
        case .candidates: candidates(&script, words, app, &json)
        case .all: json.text("all")
        case .conditions: json.object { conditions(&script, words, &$0) }
        case .oneTag: json.value(#"{"fast_custom_tag":"\#(script.pick(FuzzWords.tags))"}"#)
        case .nobody: break
        }
    }

    private static func batch(
        _ script: inout Script, _ words: FuzzWords, _ app: Int, _ json: inout JSONText, audience: Audience
    ) {
        let count = script.size(words.app(app).push.bounds.batchItems)
        let isAsync = script.flag()
        json.object { json in
            json.key("is_async")
            json.value("\(isAsync)")
            json.key("msg_list")
            json.array { json in
                for index in 0..<count {
                    // The input chooses only the first three. The others are minimal.
                    guard index >= 3 else {
                        json.object { push(&script, words, app, &$0, audience: audience) }
                        continue
                    }
                    words.requestCount += 1
                    let whom =
                        audience == .alias
                        ? #""alias":["\#(FuzzWords.aliases[index % FuzzWords.aliases.count])"]"#
                        : #""cid":["\#(words.cids[app].isEmpty ? absent : words.cids[app][index % words.cids[app].count])"]"#
                    json.value(
                        #"{"request_id":"request-\#(words.requestCount)","audience":{\#(whom)},"#
                            + #""push_message":{"transmission":"m"}}"#)
                }
            }
        }
    }

    private static func listCall(_ script: inout Script, _ words: FuzzWords, _ json: inout JSONText) {
        json.member("taskid", task(&script, words))
        if script.choice(4) == 0 { requestID(&script, words, &json) }
        json.key("is_async")
        json.value("\(script.flag())")
    }

    private static func devices(
        _ script: inout Script, _ words: FuzzWords, _ app: Int, _ count: Int, _ json: inout JSONText
    ) {
        let known = words.cids[app]
        let first = cid(&script, words, app)
        json.array { json in
            for number in 0..<count {
                if number == 0 {
                    json.text(first)
                } else if number < known.count {
                    json.text(known[number])
                } else {
                    let digits = String(number, radix: 16)
                    json.text(String(repeating: "e", count: 32 - digits.count) + digits)
                }
            }
        }
    }

    private static func names(_ known: [String], _ count: Int, _ json: inout JSONText) {
        json.array { json in
            for number in 0..<count { json.text(number < known.count ? known[number] : "alias\(number)") }
        }
    }

    private static func cidList(
        _ script: inout Script, _ words: FuzzWords, _ app: Int, _ json: inout JSONText, limit: Int
    ) {
        let count = script.size(limit)
        json.object { json in
            json.key("cid")
            devices(&script, words, app, count, &json)
        }
    }

    private static func aliasItems(
        _ script: inout Script, _ words: FuzzWords, _ app: Int, _ json: inout JSONText
    ) {
        let count = script.size(words.configuration.limits.users.aliasItems)
        let known = words.cids[app]
        let alias =
            script.choice(6) == 0
            ? plain(&script, words.configuration.limits.users.aliasCharacters)
            : Array(script.pick(FuzzWords.aliases).utf8)
        let first = cid(&script, words, app)
        json.object { json in
            json.key("data_list")
            json.array { json in
                for number in 0..<count {
                    let device =
                        number == 0 ? first : known.isEmpty ? absent : known[number % known.count]
                    json.object {
                        $0.member("cid", device)
                        $0.member("alias", alias)
                    }
                }
            }
        }
    }

    /// Writes `tag` with up to thousands of conditions, each with one tag or many.
    private static func conditions(_ script: inout Script, _ words: FuzzWords, _ json: inout JSONText) {
        let counts =
            [1, 2, 3, TagExpression.tagLimit - 1, TagExpression.tagLimit, TagExpression.tagLimit + 1, 1_000]
            + [15_000, 150_000, TagExpression.groupLimit - 1, TagExpression.groupLimit, TagExpression.groupLimit + 1]
        var count = script.choice(4) == 0 ? script.pick(counts) : 1 + script.choice(3)
        let each = script.size(TagExpression.tagLimit)
        let key = script.pick(["custom_tag", "custom_tag", "custom_tag", "phone_type", "region", "portrait"])
        let combination = script.pick(["or", "and", "not"])
        let isLong = script.choice(8) == 0
        let length = isLong ? script.size(words.configuration.limits.users.tagCharacters) : 0
        let differ = script.flag()
        func condition(_ number: Int) -> String {
            let values = (0..<each).map { place in
                let value =
                    key == "phone_type"
                    ? "ios"
                    : isLong
                        ? String(repeating: "t", count: length) : "tag\(differ ? (number + place) % 5_000 : place % 6)"
                return "\"\(value)\""
            }
            return #"{"key":"\#(key)","values":[\#(values.joined(separator: ","))],"opt_type":"\#(combination)"}"#
        }
        let one = condition(0)
        if one.utf8.count * count > words.byteBudget { count = 1 + words.byteBudget / (one.utf8.count * 4) }
        json.key("tag")
        json.array { json in
            if differ {
                for number in 0..<min(count, 2_000) { json.value(condition(number)) }
            } else {
                json.repeated(one, count: count)
            }
        }
    }

    private static func candidates(
        _ script: inout Script, _ words: FuzzWords, _ app: Int, _ json: inout JSONText
    ) {
        let count = script.size(words.app(app).push.bounds.listTargets)
        let tagCount = script.size(TagExpression.tagLimit)
        let tags = (0..<tagCount).map { "\"tag\($0)\"" }.joined(separator: ",")
        let kind = script.edge(0...2)
        let known = words.cids[app]
        let isAffordable = tags.utf8.count * count < words.byteBudget
        json.object { json in
            json.key("cid_by_tag")
            json.array { json in
                for number in 0..<(isAffordable ? count : 3) {
                    let digits = String(number, radix: 16)
                    let device =
                        number < known.count ? known[number] : String(repeating: "e", count: 32 - digits.count) + digits
                    json.value(#"{"cid":"\#(device)","op_type":\#(kind),"tag":[\#(tags)]}"#)
                }
            }
        }
    }

    private static func settings(
        _ script: inout Script, _ words: FuzzWords, _ app: Int, _ json: inout JSONText
    ) {
        let way = script.byte()
        json.key("settings")
        json.object { json in
            if way & 1 != 0 { json.member("ttl", number: script.edge(-1...words.app(app).push.longestTTL)) }
            if way & 2 != 0 {
                json.key("strategy")
                json.value(#"{"default":\#(script.pick([1, 2, 3, 4, 6, 0, 5]))}"#)
            }
            if way & 4 != 0 { json.member("collapse_key", script.words(Limits.collapseKeyByteCount)) }
            if way & 24 == 24 {
                let days = Int64(words.app(app).push.scheduleDays) * 86_400_000
                json.member("schedule_time", number: words.time + script.pick([1_000, 60_000, days - 1, days + 1, -1]))
            }
            if way & 32 != 0 { json.member("speed", number: script.edge(0...1_000_000)) }
            if way & 64 != 0 {
                json.key("first_ack_wins")
                json.value("true")
            }
        }
    }

    private static func message(
        _ script: inout Script, _ words: FuzzWords, _ app: Int, _ json: inout JSONText
    ) {
        json.key("push_message")
        json.object { json in
            switch script.choice(10) {
            case 0:
                json.key("notification")
                json.object {
                    $0.member("title", script.words(50))
                    $0.member("body", script.words(256))
                    $0.member("click_type", "none")
                    if script.flag() { $0.member("payload", script.words(3_072)) }
                    if script.flag() { $0.member("intent", script.words(4_096)) }
                }
            case 1:
                json.key("revoke")
                json.object { $0.member("old_task_id", task(&script, words)) }
            default: json.member("transmission", script.words(words.app(app).push.transmissionCharacters))
            }
        }
    }

    static func ios(_ script: inout Script, _ json: inout JSONText) {
        let way = script.byte()
        json.object { json in
            if way & 3 == 3 { json.member("type", script.pick(["notify", "voip", "liveactivity"])) }
            if way & 4 != 0 {
                json.member("auto_badge", script.pick(["+1", "-1", "5", "0", "+2147483647", "x"]))
            }
            if way & 8 != 0 { json.member("payload", script.words(Limits.apnsBodyByteCount)) }
            if way & 16 != 0 { json.member("apns-collapse-id", script.words(Limits.apnsCollapseIDByteCount)) }
            json.key("aps")
            json.object { json in
                json.key("alert")
                json.object {
                    $0.member("title", script.words(64))
                    $0.member("body", script.words(Limits.apnsBodyByteCount))
                }
                if way & 32 != 0 { json.member("content-available", number: script.choice(3)) }
                if way & 64 != 0 { json.member("badge", number: script.edge(0...2_147_483_647)) }
            }
            if way & 128 != 0 {
                json.key("multimedia")
                let count = script.size(Limits.multimediaCount)
                json.array { $0.repeated(#"{"url":"https://e.com/i","type":1}"#, count: count) }
            }
        }
    }
}

extension GatewayGrammar {
    /// Returns a body that obtains a token.
    static func authentication(_ words: FuzzWords, _ app: Int) -> [UInt8] {
        let known = words.app(app)
        let secret = known.masterSecrets.first?.exposed ?? ""
        var json = JSONText()
        json.object {
            $0.member("appkey", known.appKey)
            $0.member("timestamp", "\(words.time)")
            $0.member("sign", SHA256.digest(Array((known.appKey + "\(words.time)" + secret).utf8)).hex)
        }
        return json.bytes
    }
}
