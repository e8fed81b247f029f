import Testing

@testable import Vendors

@Suite("Hostile bytes") struct HostileTests {
    private static let replies = [
        "{\"code\":\"80100000\",\"msg\":\"{\\\"success\\\":0,\\\"failure\\\":1}\",\"requestId\":\"r\"}",
        "{\"code\":200,\"value\":{\"110002\":[\"token-1\"]},\"data\":{\"failTokens\":[1,null],\"sendResult\":5}}",
        "{\"result\":0,\"taskId\":{},\"invalidUser\":{\"status\":\"x\"},\"data\":{\"bad_regids\":[1]}}",
        "{\"error\":{\"status\":5,\"details\":[1,{\"fieldViolations\":[5,{}],\"errorCode\":7}]},\"name\":[]}",
        "{\"access_token\":\"a\",\"expires_in\":\"99999999999999999999\",\"authToken\":5}",
    ]

    private func isBounded(_ reason: String) -> Bool {
        reason.utf8.count <= 64 && reason.utf8.allSatisfy { (0x21...0x7E).contains($0) }
    }

    @Test("every prefix and every changed byte of an answer gives an outcome", arguments: Vendor.allCases)
    func prefixes(vendor: Vendor) throws {
        let api = try Samples.api(vendor)
        for text in Self.replies {
            let bytes = Array(text.utf8)
            for place in bytes.indices {
                var changed = bytes
                changed[place] = UInt8(truncatingIfNeeded: place &* 37)
                for body in [Array(bytes[..<place]), changed] {
                    for status in [200, 400] {
                        let reply = VendorReply(status: status, body: body)
                        let outcome = api.outcome(of: reply, token: "token-1", now: Samples.now)
                        #expect(isBounded(outcome.reason))
                        if case .accepted(let id) = outcome { #expect(isBounded(id)) }
                        if case .failure(.retry(_, let reason)) = api.readToken(reply, now: Samples.now) {
                            #expect(isBounded(reason))
                        }
                    }
                }
            }
        }
    }

    @Test("a vendor's texts are reduced to visible ASCII of 64 bytes", arguments: Vendor.allCases)
    func texts(vendor: Vendor) throws {
        let api = try Samples.api(vendor)
        let text = "\\u001b[31m中\\n" + String(repeating: "x", count: 200)
        for name in ["code", "result", "error"] {
            let reply = Samples.reply("{\"\(name)\":\"\(text)\"}")
            #expect(isBounded(api.outcome(of: reply, token: "t", now: 0).reason))
            if case .failure(.credentialRefused(let reason, _)) = api.readToken(reply, now: 0) {
                #expect(isBounded(reason))
            }
        }
    }

    @Test("an answer above the bound is judged by its status")
    func large() throws {
        let body =
            "{\"code\":\"80000000\",\"msg\":\"" + String(repeating: "x", count: VendorReply.bodyByteCount) + "\"}"
        let outcome = try Samples.api(.hms).outcome(of: Samples.reply(body), token: "t", now: 0)
        #expect(outcome == .unknown(reason: "UnreadableReply"))
    }

    @Test("no field of a message can add a header, a form field or a JSON member")
    func injection() throws {
        let text = "\r\nX: y&sign=1\",\"token\":[\"other\"]"
        for vendor in Vendor.allCases {
            var message = Samples.message(vendor, .notification(.init(title: "t", body: text)), collapseID: text)
            message.taskID = text
            let request = try Samples.request(message, vendor)
            for header in request.headers {
                #expect(header.value.utf8.allSatisfy { (0x20...0x7E).contains($0) }, "\(vendor) \(header.name)")
            }
            #expect(request.url.utf8.allSatisfy { (0x21...0x7E).contains($0) })
            switch vendor {
            case .xiaomi, .oppo, .meizu:
                let form = try #require(FormBody(parsing: request.body))
                #expect(form.fields.filter { $0.name == "sign" }.count == (vendor == .meizu ? 1 : 0))
            case .webPush: break
            default: #expect(try Samples.tree(request.body).text == String(decoding: request.body, as: UTF8.self))
            }
        }
    }

    @Test("extreme times cause no overflow", arguments: Vendor.allCases)
    func times(vendor: Vendor) throws {
        let api = try Samples.api(vendor)
        for now in [Int64(0), 4_102_444_800] {
            _ = api.tokenRequest(now: now)
            _ = api.signToken(scope: "https://a.example", now: now)
            _ = api.outcome(of: Samples.reply("{\"code\":33,\"result\":10070}"), token: "t", now: now)
        }
    }
}
