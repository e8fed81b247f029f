package import Quotas
internal import JSON

/// Getui's result codes used by this gateway (docs/use/Errors.md, "Push API").
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
    /// The limit on authentications per minute is reached.
    case authenticationRate = 10003
    /// The app may not see a message's trace, or the message is unknown.
    case noDetail = 10004
    /// The app has reached the limit per minute or per day of a counted kind of call.
    case callRate = 10005
    /// A parameter is missing, wrong or too large, or names a missing object.
    case parameter = 20001
    /// A scheduled task has run or is about to run, so it cannot be deleted.
    case alreadyRan = 22001
    /// The scheduled task does not exist, or its time is out of range.
    case badSchedule = 22002
    /// The tag operation failed for every device of the call.
    case tagFailed = 23001
    case tagTooLong = 30005
    /// The daily limits: on broadcasts to one tag, and on broadcasts to all devices.
    case fastTagDayQuota = 30006
    case broadcastDayQuota = 30007
    /// The daily limit on list calls.
    case listDayQuota = 30008
    /// The daily limit on broadcasts to conditions, which share the quota of broadcasts to all.
    case tagBroadcastDayQuota = 30010
    /// The limits on tag changes: per day, of a device or an app, and per minute, of an app.
    case tagCallsPerDay = 30011
    case tagCallsPerMinute = 30012
    /// The limits per minute: on broadcasts to one tag, and on all other broadcasts.
    case fastTagRate = 30013
    case broadcastRate = 30014
    /// The limit per minute on list calls.
    case listRate = 30015
    /// A tag expression has too many tags.
    case tooManyTags = 30016
    /// Nothing was accepted; the caller may repeat the request with the same request id.
    case busy = 30019
    // Codes from 30900 on are Longwire's own, for cases without a suitable Getui code. Getui's 30009 is never used, because it
    // means a daily quota: a client that obeys it stops for the day.
    /// A device's queue is full, and its app's policy is to refuse.
    case queueFull = 30901
    /// The app has reached its limit of live broadcasts.
    case tooManyBroadcasts = 30902
    /// A receipt's proof does not match a device of this app.
    case badProof = 30903
    /// A receipt's timestamp is too far from gateway time, which the answer contains.
    case clockSkew = 30904
    /// The rate limit of the caller's network address is reached.
    case addressRate = 30905
    /// The app has used up a quota, which the text names.
    case appQuota = 30906

    /// Getui's Java SDK reads the body only with 200, 400, 401, 403 and 404; it repeats the call after any 5xx.
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

/// A refusal with a Getui code.
struct GetuiFault: Error, Equatable {
    var code: GetuiCode
    var message: String
    var allow: String?
    /// Whether the app is unknown here; another gateway may have just created it.
    var isOfUnlistedApp = false

    init(code: GetuiCode, message: String, allow: String? = nil) {
        (self.code, self.message, self.allow) = (code, message, allow)
    }

    // The texts of Getui's 20001, with the parameter's name first. The text after a comma is Longwire's.
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
    package static func getui(_ code: GetuiCode, _ message: String = "success") -> APIResponse {
        .object(status: code.httpStatus, .envelope(code, message))
    }

    /// The answer if nothing can be accepted because the store is behind or mailboxes are full; the call may be repeated
    /// unchanged.
    package static let busy = APIResponse.getui(.busy, "the gateway is busy, nothing was accepted, retry")
    package static let tooManyRevoked = APIResponse.getui(
        .authenticationRate,
        "the app has \(Limits.revokedTokensOfApp) void tokens that have not expired; void no more until their day is over"
    )
    package static let tooManyRevokedInAll = APIResponse.getui(
        .authenticationRate,
        "all apps have \(Limits.revokedTokens) void tokens that have not expired; void no more until their day is over")
    package static let statusUnreadable = APIResponse.getui(.busy, "a device's record cannot be read now, retry")
    package static let starting = GetuiFault.starting.response
    /// Returns the refusal of a network address above its rate limit; Getui's SDKs cannot parse a 429.
    package static func tooFast(isGetui: Bool, isAboutBytes: Bool = false, retryAfterSeconds: Int) -> APIResponse {
        let act = isAboutBytes ? "sends more request bytes" : "makes more requests"
        var response = APIResponse.getui(
            .addressRate, "this network address \(act) than it may, retry in \(retryAfterSeconds) s")
        if !isGetui { response.status = 429 }
        response.retryAfterSeconds = retryAfterSeconds
        return response
    }
    /// Returns the refusal of an app that has used up a quota.
    package static func overQuota(_ refusal: QuotaRefusal) -> APIResponse {
        var response = APIResponse.getui(.appQuota, "\(refusal.reason); nothing was accepted")
        response.retryAfterSeconds = refusal.retryAfterSeconds
        return response
    }
    package static let bodyTooLarge = APIResponse.getui(
        .parameter, "body size over limit, at most \(Limits.requestBodyByteCount) bytes")
}

extension JSONObject {
    static func envelope(_ code: GetuiCode, _ message: String) -> JSONObject {
        ["code": code.rawValue, "msg": message]
    }
}
