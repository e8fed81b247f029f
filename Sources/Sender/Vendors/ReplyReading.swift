internal import JSON
internal import TextForms

/// Reads the parts of answers that several vendors share.
enum ReplyReading {
    /// The default delay after an exceeded rate limit, if the vendor names none.
    static let rateLimitSeconds: Int64 = 60

    /// Returns the delay in `Retry-After`, which is a number of seconds or a date (RFC 9110, section 10.2.3), at most a day.
    static func retryAfter(_ reply: VendorReply, now: Int64) -> Int64? {
        guard !reply.retryAfter.isEmpty, reply.retryAfter.utf8.count <= 64 else { return nil }
        let seconds = Int64(reply.retryAfter) ?? HTTPDate.secondsSince1970(reply.retryAfter.utf8).map { $0 - now }
        return seconds.map { min(max(0, $0), 86_400) }
    }

    /// Returns the outcome of an answer without a readable code.
    ///
    /// Such an answer may come from a proxy or a maintenance page, so only clear statuses end a message.
    static func outcomeOfStatus(_ reply: VendorReply, vendor: Vendor, now: Int64) -> VendorOutcome {
        let reason = "HTTP\(reply.status)"
        let delay = retryAfter(reply, now: now)
        switch reply.status {
        case 200...299: return .unknown(reason: reply.body.isEmpty ? "EmptyReply" : "UnreadableReply")
        case 401 where vendor.facts.tokenKind != .none: return .renewToken(reason: reason)
        case 401, 403:
            return .credentialRefused(
                reason: reason, advice: "check the credential in the vendor's console and this server's address there")
        case 408: return .retry(afterSeconds: delay, reason: reason)
        case 413: return .rejected(reason: reason)
        case 429: return .tooFast(afterSeconds: delay ?? rateLimitSeconds, reason: reason)
        case 500...599: return .retry(afterSeconds: delay, reason: reason)
        default: return .unknown(reason: reason)
        }
    }

    /// Passes the body's object to `body`; without one, or if `body` returns `nil`, the status decides.
    static func outcome(
        _ reply: VendorReply, vendor: Vendor, now: Int64, _ body: (JSONValue) -> VendorOutcome?
    ) -> VendorOutcome {
        let found = JSONTree.parsing(reply.body, byteLimit: VendorReply.bodyByteCount) { value in
            value.kind == .object ? body(value) : nil
        }
        return found ?? outcomeOfStatus(reply, vendor: vendor, now: now)
    }

    /// Returns the outcome of a code that no table has: a clear status decides, else the code is unknown.
    static func outcomeOfUnknownCode(
        _ code: String, _ reply: VendorReply, vendor: Vendor, now: Int64
    ) -> VendorOutcome {
        (200...299).contains(reply.status) || reply.status == 400
            ? .unknown(reason: PeerText.reason(code)) : outcomeOfStatus(reply, vendor: vendor, now: now)
    }
}

/// The requests to OAuth 2 token endpoints, and their answers (RFC 6749, sections 4.4, 5.1 and 5.2).
enum OAuth {
    /// Returns the request for an access token by the client's own credentials (RFC 6749, section 4.4.2).
    static func request(_ url: ServiceAddress, clientID: String, clientSecret: String) -> VendorRequest {
        let form = FormBody([
            "grant_type": "client_credentials", "client_id": clientID, "client_secret": clientSecret,
        ])
        return VendorRequest(url: url.text, headers: [.form], body: form.bytes)
    }

    static func token(
        _ reply: VendorReply, now: Int64, advice: String
    ) -> Result<AccessToken, VendorFault> {
        let found: Result<AccessToken, VendorFault>? = JSONTree.parsing(
            reply.body, byteLimit: VendorReply.bodyByteCount
        ) { value in
            if (200...299).contains(reply.status), let text = value["access_token"]?.string {
                return accessToken(text, lifetime: value["expires_in"]?.lenientInteger ?? 3_600, now: now)
            }
            guard let error = value["error"]?.lenientText ?? value["code"]?.lenientText else { return nil }
            guard reply.status < 500, reply.status != 429, reply.status != 408 else { return nil }
            let detail = value["sub_error"]?.lenientText ?? ""
            return .failure(.credentialRefused(reason: PeerText.reason(error, detail), advice: advice))
        }
        return found ?? .failure(fault(reply, now: now, advice: advice))
    }

    /// Returns a token that is renewed five minutes, or a quarter of a short lifetime, before it expires.
    static func accessToken(_ text: String, lifetime: Int64, now: Int64) -> Result<AccessToken, VendorFault> {
        // The text becomes a header's value, in which other characters could begin another header.
        guard (1...8_192).contains(text.utf8.count), text.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
            return .failure(.retry(afterSeconds: nil, reason: "UnreadableAccessToken"))
        }
        let lifetime = min(max(lifetime, 60), 7 * 86_400)
        let margin = min(300, lifetime / 4)
        return .success(AccessToken(text: text, renewsAt: now + lifetime - margin, expiresAt: now + lifetime))
    }

    static func fault(_ reply: VendorReply, now: Int64, advice: String) -> VendorFault {
        let reason = "HTTP\(reply.status)"
        switch reply.status {
        case 200...299: return .retry(afterSeconds: nil, reason: "UnreadableReply")
        case 400, 401, 403: return .credentialRefused(reason: reason, advice: advice)
        default: return .retry(afterSeconds: ReplyReading.retryAfter(reply, now: now), reason: reason)
        }
    }
}
