internal import HTTPClient
internal import Platform
internal import Vendors

extension Doctor {
    /// Checks a vendor's credential: requests or signs an access token, and sends the vendor's test request if there is one.
    mutating func vendor(_ account: VendorAccount) {
        let what = "\(account.vendor.rawValue), \(account.name)"
        let settings = configuration.vendorSettings[account.vendor] ?? VendorSettings(account.vendor)
        let api = account.api
        let now = Int64(SystemClock.wallMilliseconds / 1_000)
        var bearer: String?
        switch account.vendor.facts.tokenKind {
        case .none: break
        case .signed:
            guard let token = api.signToken(scope: Self.exampleOrigin, now: now) else {
                return bad(what, "the token could not be signed")
            }
            bearer = token.text
        case .exchanged:
            guard let request = api.tokenRequest(now: now) else { return bad(what, "the token could not be requested") }
            guard let reply = answer(to: request, what, settings, account) else { return }
            switch api.readToken(reply, now: now) {
            case .success(let token): bearer = token.text
            case .failure(let fault): return report(fault, what)
            }
        }
        guard let request = api.testRequest(bearer: bearer, now: now) else {
            let isAsked = account.vendor.facts.tokenKind == .exchanged
            return good(
                what,
                isAsked ? "the vendor issued an access token" : "readable; the vendor has no request that checks it")
        }
        guard let reply = answer(to: request, what, settings, account) else { return }
        if let fault = api.testFailure(reply, now: now) { return report(fault, what) }
        good(what, "the vendor accepts the credential")
    }

    /// An example origin; signing a token for it shows that the key works.
    private static let exampleOrigin = "https://push.example.com"

    private mutating func answer(
        to request: VendorRequest, _ what: String, _ settings: VendorSettings, _ account: VendorAccount
    ) -> VendorReply? {
        let call = settings.call(request, account)
        let host = VendorSender.host(of: request.url)
        if let proxy = call.proxy { good(what, "\(host) is reached through the proxy \(proxy.url)") }
        guard let transfers = HTTPTransfers(), let transfer = HTTPTransfer(call, in: transfers) else {
            bad(what, "libcurl has no memory")
            return nil
        }
        defer { transfer.leave() }
        // The call's own timeout ends this loop.
        while true {
            transfers.perform()
            if let ended = transfers.nextEnded() {
                switch ended.result {
                case .success(let reply): return VendorReply(reply)
                case .failure(let failure):
                    bad(what, "\(host) cannot be used: \(failure.cause)")
                    return nil
                }
            }
            transfers.wait(milliseconds: 1_000)
        }
    }

    private mutating func report(_ fault: VendorFault, _ what: String) {
        switch fault {
        case .retry(_, let reason): bad(what, "the vendor cannot be used now: \(reason)")
        case .credentialRefused(let reason, let advice): bad(what, "\(reason): \(advice)")
        }
    }
}
