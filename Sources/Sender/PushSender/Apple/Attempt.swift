internal import APNs
internal import EventLoops
internal import HTTP2
internal import TextForms

/// A notification's request to Apple, and its answer.
final class Attempt: SentRequest {
    /// The maximum size of an answer's body, which holds a reason and a time.
    private static let answerByteLimit = 4 << 10

    let job: AppleJob
    /// The time when the request's provider token was signed, in Unix seconds, or 0.
    let tokenIssuedAt: Int64
    private(set) var status = 0
    private(set) var retryAfter: Int64?
    /// Apple's clock from the answer's date, in Unix seconds.
    private(set) var serverTime: Int64?
    /// Apple's id of the notification, or the request's id.
    private(set) var vendorID = ""
    private(set) var answer: [UInt8] = []

    init(_ job: AppleJob, on connection: AppleConnection, tokenIssuedAt: Int64) {
        (self.job, self.tokenIssuedAt) = (job, tokenIssuedAt)
        let now = connection.loop.now
        super.init(on: connection, sentAt: now, deadline: now + connection.lane.limits.requestMilliseconds)
        body = job.notification.body
    }

    override func received(header name: UnsafeBufferPointer<UInt8>, value: UnsafeBufferPointer<UInt8>) {
        func isNamed(_ text: StaticString) -> Bool {
            name.elementsEqual(UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
        }
        if isNamed(":status") {
            status = Int(String(decoding: value, as: UTF8.self)) ?? 0
        } else if isNamed("apns-unique-id") || isNamed("apns-id") && vendorID.isEmpty {
            vendorID = String(decoding: value.prefix(64), as: UTF8.self)
        } else if isNamed("retry-after") {
            retryAfter = Int64(String(decoding: value, as: UTF8.self)).map { min(max(0, $0), 86_400) }
        } else if status >= 400, isNamed("date") {
            serverTime = HTTPDate.secondsSince1970(value)
        }
    }

    override func received(body bytes: UnsafeBufferPointer<UInt8>) {
        if answer.count + bytes.count <= Self.answerByteLimit { answer += bytes }
    }
}
