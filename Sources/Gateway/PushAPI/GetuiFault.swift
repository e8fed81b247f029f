package import Quotas
internal import JSON

/// Getui's result codes, as far as this gateway answers them (docs/use/Errors.md, "Push API").
package enum GetuiCode: Int, Sendable, CaseIterable {
    case ok = 0
    /// The body is not JSON.
    case failure = 1
    /// The gateway is starting or stopping.
    case starting = 2
    case notFound = 404
    case methodNotAllowed = 405
    /// The token is wrong, expired or revoked.
    case badToken = 10001
    /// Authentications of this minute are used up.
    case authenticationRate = 10003
    /// The app may not see a message's trace, or the message is not known.
    case noDetail = 10004
    /// The app made more calls of a counted kind than it may in a minute, or in a day.
    case callRate = 10005
    /// A parameter is missing, wrong, too large, or names something that does not exist.
    case parameter = 20001
    /// A timed task has run or is about to: it cannot be deleted any more.
    case alreadyRan = 22001
    /// No such timed task, or a time out of range.
    case badSchedule = 22002
    /// No device of the call got the tag, or lost it.
    case tagFailed = 23001
    case tagTooLong = 30005
    /// Broadcasts to one tag, to all, and to conditions: used up for this day.
    case fastTagDayQuota = 30006
    case broadcastDayQuota = 30007
    /// List calls of this day are used up.
    case listDayQuota = 30008
    /// Broadcasts of this day are used up; those to conditions share the quota of those to all.
    case tagBroadcastDayQuota = 30010
    /// Tags are set too often: of one device, or by the app in all, on one day.
    case tagCallsPerDay = 30011
    case tagCallsPerMinute = 30012
    /// Broadcasts of this minute are used up: those to one tag, and all others.
    case fastTagRate = 30013
    case broadcastRate = 30014
    /// List calls of this minute are used up.
    case listRate = 30015
    /// An expression over tags names too many.
    case tooManyTags = 30016
    /// Nothing was accepted; repeat the same request with the same request id.
    case busy = 30019
    // From 30900 on: Longwire's own, where Getui has no code that a client would read rightly. Getui's 30009 is a day's quota,
    // and a client that obeys it stops for the day; nothing here answers it.
    /// A device's queue is full and its app's policy is to refuse.
    case queueFull = 30901
    /// The app has as many live broadcasts as it may.
    case tooManyBroadcasts = 30902
    /// A receipt's proof is no proof of a device of this app.
    case badProof = 30903
    /// A receipt's timestamp is too far from the gateway's time, which the answer tells.
    case clockSkew = 30904
    /// The caller's network address makes more requests than it may.
    case addressRate = 30905
    /// The app has used up one of its quotas, which the text names.
    case appQuota = 30906

    /// Only 200, 400, 401, 403 and 404 let Getui's Java SDK see what was said; it repeats a 5xx without looking.
    package var httpStatus: Int {
        switch self {
        case .ok, .failure: 200
        case .starting: 503
        case .notFound: 404
        case .methodNotAllowed: 405
        case .badToken, .authenticationRate, .noDetail, .callRate, .badProof: 401
        case .parameter, .tagFailed, .alreadyRan, .badSchedule: 400
        case .queueFull, .tooManyBroadcasts, .clockSkew, .addressRate, .appQuota, .busy, .tagTooLong,
            .tagCallsPerDay, .tagCallsPerMinute,
            .tooManyTags,
            .listDayQuota, .listRate,
            .fastTagDayQuota, .broadcastDayQuota, .tagBroadcastDayQuota, .fastTagRate, .broadcastRate:
            403
        }
    }
}

/// A refusal in Getui's terms.
struct GetuiFault: Error, Equatable {
    var code: GetuiCode
    var message: String
    /// What a 405 names in its header `Allow`.
    var allow: String?
    /// The app is not listed here; another gateway may have just made it.
    var isOfUnlistedApp = false

    init(code: GetuiCode, message: String, allow: String? = nil) {
        (self.code, self.message, self.allow) = (code, message, allow)
    }

    // The templates of Getui's 20001, the parameter's name first. What follows a comma is ours.
    static func invalid(_ name: String, _ detail: String = "") -> GetuiFault { parameter("\(name) is invalid", detail) }
    static func empty(_ name: String) -> GetuiFault { parameter("\(name) can not be empty") }
    static func null(_ name: String) -> GetuiFault { parameter("\(name) cannot be null") }
    static func type(_ name: String) -> GetuiFault { parameter("\(name) type error") }
    static func size(_ name: String, _ detail: String = "") -> GetuiFault {
        parameter("\(name) size over limit", detail)
    }
    static func parameter(_ text: String, _ detail: String = "") -> GetuiFault {
        GetuiFault(code: .parameter, message: detail.isEmpty ? text : "\(text), \(detail)")
    }

    /// The same fault of a call whose app is not listed.
    var ofUnlistedApp: GetuiFault {
        var fault = self
        fault.isOfUnlistedApp = true
        return fault
    }

    static let targetUser = GetuiFault.parameter("target user is invalid")
    static let token = GetuiFault(code: .badToken, message: "token is invalid or has expired")
    static func notJSON(_ error: JSONError) -> GetuiFault {
        GetuiFault(code: .failure, message: "body is not JSON: \(error.explanation)")
    }

    static let starting = GetuiFault(code: .starting, message: "the gateway is not ready, retry")

    static let notFound = GetuiFault(code: .notFound, message: "not found.")
    static func methodNotAllowed(_ allowed: String) -> GetuiFault {
        GetuiFault(code: .methodNotAllowed, message: "method not allowed, use \(allowed)", allow: allowed)
    }

    var response: APIResponse {
        var response = APIResponse.getui(code, message)
        response.allow = allow
        if code == .starting { response.retryAfterSeconds = 1 }
        return response
    }
}

extension APIResponse {
    /// Getui's envelope without data.
    package static func getui(_ code: GetuiCode, _ message: String = "success") -> APIResponse {
        .object(status: code.httpStatus, .envelope(code, message))
    }

    /// Nothing can be accepted now (the store is behind, the loops' mailboxes are full): safe to repeat as it is.
    package static let busy = APIResponse.getui(.busy, "the gateway is busy, nothing was accepted, retry")
    /// The app has as many void tokens as are remembered.
    package static let tooManyRevoked = APIResponse.getui(
        .authenticationRate,
        "the app has \(Limits.revokedTokensOfApp) void tokens that have not expired; void no more until their day is over"
    )
    /// All apps together have as many void tokens as are remembered.
    package static let tooManyRevokedInAll = APIResponse.getui(
        .authenticationRate,
        "all apps have \(Limits.revokedTokens) void tokens that have not expired; void no more until their day is over")
    /// A question could not be answered because a device's record could not be read.
    package static let statusUnreadable = APIResponse.getui(.busy, "a device's record cannot be read now, retry")
    /// The gateway is starting or stopping.
    package static let starting = GetuiFault.starting.response
    /// The caller's network address makes more requests than it may; Getui's SDKs cannot read a 429.
    package static func tooFast(isGetui: Bool, isAboutBytes: Bool = false, retryAfterSeconds: Int) -> APIResponse {
        let act = isAboutBytes ? "sends more request bytes" : "makes more requests"
        var response = APIResponse.getui(
            .addressRate, "this network address \(act) than it may, retry in \(retryAfterSeconds) s")
        if !isGetui { response.status = 429 }
        response.retryAfterSeconds = retryAfterSeconds
        return response
    }
    /// The app has used up one of its quotas; nothing was accepted.
    package static func overQuota(_ refusal: QuotaRefusal) -> APIResponse {
        var response = APIResponse.getui(.appQuota, "\(refusal.reason); nothing was accepted")
        response.retryAfterSeconds = refusal.retryAfterSeconds
        return response
    }
    /// The body did not fit; for a front that finds out while it reads.
    package static let bodyTooLarge = APIResponse.getui(
        .parameter, "body size over limit, at most \(Limits.requestBodyByteCount) bytes")
}

extension JSONObject {
    static func envelope(_ code: GetuiCode, _ message: String) -> JSONObject {
        ["code": code.rawValue, "msg": message]
    }
}
