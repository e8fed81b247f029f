internal import APNs
internal import JSON
internal import Vendors

/// A leased handoff job, until its result is queued for the gateway.
class HandoffJob {
    /// The fields that jobs of all channels have.
    struct Lease {
        var id: String
        /// The id of the newest lease.
        var leaseID: String
        var appID: String
        /// The number of leases of this job, including this one.
        var attempt: Int
        /// The end of the job's first lease at this sender, in milliseconds of the gateway's clock.
        var leasedUntil: Int64
        /// The time when the job became due, in milliseconds of the gateway's clock, or 0.
        var dueAt: Int64
    }

    let id: String
    /// The id of the newest lease.
    var leaseID: String
    let appID: String
    let attempt: Int
    let leasedUntil: Int64
    let dueAt: Int64
    /// The channel's name, also of a channel that this program does not know.
    let channel: String
    /// The time when the lease expires, in the loop's milliseconds.
    var deadline: UInt64 = .max
    /// The number of requests for the job in this lease.
    var tries = 0
    /// Whether a request of this lease ended without an answer, so that the vendor may have the notification.
    var mayBeTaken = false
    /// The time when the job arrived, in the loop's milliseconds.
    var takenAt: UInt64 = 0
    /// The time between due and lease, in milliseconds.
    private(set) var waited: UInt64 = 0

    init(_ lease: Lease, channel: String) {
        (id, leaseID, appID, attempt) = (lease.id, lease.leaseID, lease.appID, lease.attempt)
        (leasedUntil, dueAt, self.channel) = (lease.leasedUntil, lease.dueAt, channel)
    }

    /// Computes `waited` for a lease of `lease` milliseconds.
    ///
    /// Both times are the gateway's, because its clock may differ from this machine's. Implausible times are ignored.
    func noteWait(lease: Int64) {
        guard dueAt > 0, dueAt <= leasedUntil, leasedUntil < 1 << 53 else { return }
        waited = UInt64(min(max(0, leasedUntil - lease - dueAt), 7 * 86_400_000))
    }
}

/// A job of the channel `apns`.
final class AppleJob: HandoffJob {
    let notification: Notification
    let facts: BodyFacts

    /// The current environment; the other one may be tried after the registered one.
    var environment: Environment
    /// The number of requests that Apple refused unprocessed.
    var refusals = 0
    var hasTriedOther = false
    var hasRenewedToken = false

    init(_ lease: Lease, notification: Notification, facts: BodyFacts) {
        (self.notification, self.facts, environment) = (notification, facts, notification.environment)
        super.init(lease, channel: Channel.apns.name)
    }
}

/// A job of one of the other channels.
final class VendorJob: HandoffJob {
    let vendor: Vendor
    /// The message; `secondsToLive` is set when a request is made.
    var message: VendorMessage
    /// Unix seconds; 0 if the vendor must not store the message.
    let expiration: Int64
    var hasRenewedToken = false

    init(_ lease: Lease, _ vendor: Vendor, _ message: VendorMessage, expiration: Int64) {
        (self.vendor, self.message, self.expiration) = (vendor, message, expiration)
        super.init(lease, channel: vendor.rawValue)
    }
}

/// The remaining and the total time of a lease.
struct JobLease: Equatable {
    /// The remaining time in milliseconds; negative if the lease has expired.
    var left: Int64
    /// The total time in milliseconds.
    var length: Int64

    init(left: Int64, length: Int64? = nil) { (self.left, self.length) = (left, length ?? left) }
}

/// A job with an unreadable field; its ids are known, so that its result can name the field.
struct UnreadableJob: Equatable {
    var id: String
    var leaseID: String
    var field: String
    var channel = Channel.apns.name
}
