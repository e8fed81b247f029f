internal import Configuration
internal import JSON

// The bodies of answers, each in its vendor's form.
extension FakeVendorService {
    /// Returns a code as a number, for vendors whose codes are numbers.
    private func number(_ code: String) -> any JSONWritable { Int(code).map { $0 as any JSONWritable } ?? code }

    func write(_ refusal: Refusal, _ answer: inout FakeAnswer) {
        guard let vendor = answer.vendor else { return }
        if [429, 503].contains(refusal.status) { answer.headers["Retry-After"] = "1" }
        let (code, reason) = (refusal.code, refusal.reason)
        // A refusal without a code comes from the vendor's HTTP front end, which answers with HTML.
        guard !code.isEmpty else {
            answer.contentType = "text/html"
            answer.body = Array("<html><body>\(refusal.status)</body></html>".utf8)
            return
        }
        let isOAuth = answer.isForAccessToken && [.fcm, .hms, .honor].contains(vendor)
        let body: JSONObject =
            if isOAuth {
                ["error": code, "error_description": reason]
            } else {
                switch vendor {
                case .fcm: fcmError(refusal)
                case .hms, .harmony:
                    ["code": code, "msg": tokenDetail(refusal, answer.tokens), "requestId": Self.newID()]
                case .honor: ["code": number(code), "message": reason]
                case .xiaomi:
                    [
                        "result": "error", "reason": code == "20301" ? "No valid targets!" : reason,
                        "trace_id": Self.newID(), "code": number(code),
                        "description": code == "65003" ? "invalid regid" : reason,
                    ]
                case .oppo: ["code": number(code), "message": reason, "data": [:] as JSONObject]
                case .vivo:
                    // vivo answers with the code of success and names the unsubscribed device in `invalidUser`.
                    [
                        "result": number(code), "desc": code == "0" ? "请求成功" : reason,
                        "invalidUser": code == "0"
                            ? (["status": 2, "userid": answer.tokens.first ?? ""] as JSONObject) : nil,
                    ]
                case .meizu: ["code": code, "message": reason, "value": "", "redirect": ""]
                case .webPush: ["code": number(code), "error": "refused", "message": reason]
                }
            }
        answer.body = body.bytes
    }

    /// Returns Huawei's explanation of refused device tokens, which is JSON in a string.
    private func tokenDetail(_ refusal: Refusal, _ tokens: [String]) -> String {
        guard ["tokenFormatError", "noRight"].contains(refusal.reason) else { return refusal.reason }
        let illegal = JSONObject([(refusal.reason, tokens)])
        let detail: JSONObject = ["success": 0, "failure": tokens.count, "illegalTokens": illegal]
        return String(decoding: detail.bytes, as: UTF8.self)
    }

    private func fcmError(_ refusal: Refusal) -> JSONObject {
        let statuses = [
            400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
            429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE",
        ]
        let status = statuses[refusal.status] ?? "UNKNOWN"
        var details: [JSONObject] = []
        var text = refusal.reason
        if refusal.reason == "tokenFormatError" {
            text = "The registration token is not a valid FCM registration token"
            details = [["@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": refusal.code]]
        } else if refusal.code == "INVALID_ARGUMENT" {
            let violation: JSONObject = ["field": refusal.reason, "description": "Invalid value"]
            details = [["@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]]]
        } else if refusal.code != status {
            details = [["@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": refusal.code]]
        }
        let error: JSONObject = [
            "code": refusal.status, "message": text, "status": status, "details": details.unlessEmpty,
        ]
        return ["error": error]
    }

    /// Writes the answer to a message that at least one device gets; Honor and Meizu also list refused tokens in this form.
    func succeed(
        _ vendor: FakeVendor, _ message: Message, _ faults: [Fault?], _ id: String, _ answer: inout FakeAnswer
    ) {
        func refused(_ fault: Fault?) -> [String] {
            zip(message.tokens, faults).filter { $1 != nil && (fault == nil || $1 == fault) }.map(\.0)
        }
        let bad = refused(nil)
        if let fault = faults.compactMap({ $0 }).first {
            let refusal = Self.refusal(vendor, fault, "unregistered token")
            (answer.code, answer.reason) = (refusal.code, refusal.reason)
        }
        let body: JSONObject
        switch vendor {
        case .fcm: body = ["name": "projects/\(FakeAccounts.project)/messages/\(id)"]
        case .hms, .harmony:
            let counts: JSONObject = [
                "success": message.tokens.count - bad.count, "failure": bad.count, "illegal_tokens": bad,
            ]
            let text = bad.isEmpty ? "Success" : String(decoding: counts.bytes, as: UTF8.self)
            body = ["code": bad.isEmpty ? "80000000" : "80100000", "msg": text, "requestId": id]
        case .honor:
            let data: JSONObject = [
                "sendResult": bad.count < message.tokens.count, "requestId": id,
                "failTokens": refused(.malformed) + refused(.foreign), "expireTokens": refused(.unregistered),
            ]
            body = ["code": 200, "message": "success", "data": data]
        case .xiaomi:
            let data: JSONObject = ["id": id, "bad_regids": bad.joined(separator: ",").unlessEmpty]
            body = ["result": "ok", "trace_id": id, "code": 0, "data": data, "description": "成功"]
        case .oppo: body = ["code": 0, "message": "Success", "data": ["messageId": id] as JSONObject]
        case .vivo: body = ["result": 0, "desc": "请求成功", "taskId": id]
        case .meizu:
            let (gone, wrong) = (refused(.unregistered), refused(.malformed) + refused(.foreign))
            let value: JSONObject = ["110002": gone.unlessEmpty, "110003": wrong.unlessEmpty]
            body = ["code": "200", "message": "", "value": value, "redirect": "", "msgId": id]
        case .webPush:
            (answer.status, answer.contentType) = (201, "")
            answer.headers["Location"] = accounts.pushOrigin + "/message/" + id
            return
        }
        answer.body = body.bytes
    }
}
