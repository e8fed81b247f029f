/// One message for one device.
package struct VendorMessage: Sendable, Equatable {
    /// The vendor's device token; for Web Push `ENDPOINT#P256DH.AUTH`.
    package var token: String
    /// The package that the app registered with the token, or empty.
    package var packageName: String
    /// 32 hexadecimal digits.
    package var messageID: String
    package var taskID: String
    /// The publisher's collapse id, or the message id.
    package var collapseID: String
    package var content: PushContent
    /// The remaining lifetime in seconds.
    ///
    /// With 0 the vendor must not store the message.
    package var secondsToLive: Int64

    package init(
        token: String, packageName: String = "", messageID: String, taskID: String, collapseID: String = "",
        content: PushContent, secondsToLive: Int64
    ) {
        (self.token, self.packageName, self.messageID) = (token, packageName, messageID)
        (self.taskID, self.content, self.secondsToLive) = (taskID, content, secondsToLive)
        self.collapseID = collapseID.isEmpty ? messageID : collapseID
    }

    /// Whether the vendor may store the message for an offline device.
    package var isStored: Bool { secondsToLive > 0 }
    /// The publisher's collapse id, or `nil` if the gateway used the message id.
    ///
    /// FCM keeps at most four collapse keys per device, so a different key per message would discard messages.
    package var publisherCollapseID: String? { collapseID == messageID ? nil : collapseID }
    /// The value of `_gmid_`, by which the app filters duplicates and reports taps.
    package var reportID: String { taskID + ":" + messageID }

    package static let reportKey = "_gmid_"

    /// The data for the app: the report id and the publisher's payload.
    func appData(_ payload: String?) -> JSONTree {
        [Self.reportKey: .string(reportID), "payload": payload.map { .string($0) }]
    }

    /// The numeric id by which a later notification replaces this one; `nil` if the publisher asked for no replacement.
    func replacementID(_ notice: PushContent.Notice) -> Int64? {
        notice.notifyID ?? publisherCollapseID.map { _ in notificationNumber }
    }

    /// A number that is equal for equal collapse ids, for vendors whose notifications have numeric ids (FNV-1a).
    var notificationNumber: Int64 {
        let hash = collapseID.utf8.reduce(2_166_136_261 as UInt32) { ($0 ^ UInt32($1)) &* 16_777_619 }
        return Int64(hash & 0x7FFF_FFFF)
    }
}

/// An HTTPS request that the caller sends.
package struct VendorRequest: Sendable, Equatable {
    package struct Header: Sendable, Equatable {
        package var name: String
        package var value: String
        package init(_ name: String, _ value: String) { (self.name, self.value) = (name, value) }
    }

    package var method = "POST"
    package var url: String
    package var headers: [Header]
    package var body: [UInt8]

    package init(url: String, headers: [Header], body: [UInt8]) {
        (self.url, self.headers, self.body) = (url, headers, body)
    }

    package func header(_ name: String) -> String? { headers.first { $0.name == name }?.value }
}

/// The answer to a `VendorRequest`.
package struct VendorReply: Sendable, Equatable {
    package static let bodyByteCount = 64 << 10

    package var status: Int
    /// The value of `Retry-After`, or empty.
    package var retryAfter: String
    /// The value of `Location`, or empty.
    package var location: String
    /// The body; the caller may cut it after `bodyByteCount` bytes, because a longer body is treated as unreadable.
    package var body: [UInt8]

    package init(status: Int, retryAfter: String = "", location: String = "", body: [UInt8] = []) {
        (self.status, self.retryAfter, self.location, self.body) = (status, retryAfter, location, body)
    }
}

/// The result of one request.
///
/// Each `reason` is visible ASCII of at most 64 bytes.
package enum VendorOutcome: Sendable, Equatable {
    case accepted(vendorID: String)
    /// `afterSeconds` is the vendor's own delay.
    case retry(afterSeconds: Int64?, reason: String)
    case rejected(reason: String)
    case badToken(reason: String)
    /// The access token expired or was refused: renew the token once and repeat the request.
    case renewToken(reason: String)
    case credentialRefused(reason: String, advice: String)
    /// No message is accepted before `until`, in Unix seconds: the next midnight in Beijing.
    case quotaUsedUp(until: Int64, reason: String)
    /// This message is not accepted before `until`, in Unix seconds; others are.
    case postponed(until: Int64, reason: String)
    /// The rate limit was exceeded; `afterSeconds` is the vendor's delay or a default.
    case tooFast(afterSeconds: Int64, reason: String)
    /// An undocumented answer; the caller retries it a bounded number of times.
    case unknown(reason: String)

    package var reason: String {
        switch self {
        case .accepted: ""
        case .retry(_, let reason), .rejected(let reason), .badToken(let reason), .renewToken(let reason),
            .credentialRefused(let reason, _), .quotaUsedUp(_, let reason), .postponed(_, let reason),
            .tooFast(_, let reason), .unknown(let reason):
            reason
        }
    }
}

/// A message that violates a vendor's rule and was therefore not sent.
package struct VendorRefusal: Error, Sendable, Equatable, CustomStringConvertible {
    package var vendor: Vendor
    /// A stable identifier, such as `BadToken` or `TitleTooLong`.
    package var reason: String
    /// The field and the limit, for the publisher.
    package var advice: String
    /// Whether the device token itself is malformed and can be invalidated.
    package var isTokenFault = false

    package init(_ vendor: Vendor, _ reason: String, _ advice: String, isTokenFault: Bool = false) {
        (self.vendor, self.reason, self.advice, self.isTokenFault) = (vendor, reason, advice, isTokenFault)
    }

    package var description: String { "\(vendor.rawValue): \(advice)" }
}

/// An access token or JWT for several requests.
package struct AccessToken: Sendable, Equatable {
    package var text: String
    /// The renewal time, in Unix seconds: earlier than the expiry, so that requests in flight stay valid.
    package var renewsAt: Int64
    package var expiresAt: Int64

    package init(text: String, renewsAt: Int64, expiresAt: Int64) {
        (self.text, self.renewsAt, self.expiresAt) = (text, renewsAt, expiresAt)
    }
}

/// A failed token request.
package enum VendorFault: Error, Sendable, Equatable {
    case retry(afterSeconds: Int64?, reason: String)
    case credentialRefused(reason: String, advice: String)
}
