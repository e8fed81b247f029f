// A scripted Apple for tests: HTTP/2 over TLS, Apple's checks, and injected faults.

package import APNs
package import Cryptography
package import FakeVendors

/// The scripted behavior of the fake, beyond Apple's own checks.
package struct FakeScript: Sendable, Equatable {
    /// The action for a request that matches a rule.
    package enum Deed: String, Sendable, CaseIterable {
        /// Answers with the rule's status and reason.
        case answer
        /// Accepts the notification and resets the stream, so that the sender cannot know the result.
        case resetTaken
        /// Resets the stream without accepting the notification.
        case resetUntaken
        /// Accepts the notification and never answers.
        case silence
        /// Accepts the notification and closes the connection.
        case cutTaken
        /// Sends a GOAWAY whose last stream is below the request's stream, so that the request is unprocessed.
        case goodbyeBelow
        /// Answers, then sends a GOAWAY.
        case goodbyeAfter
    }

    /// A rule; the first one that matches a request applies.
    package struct Rule: Sendable, Equatable {
        /// The prefix of the matching tokens; empty for all.
        package var prefix = ""
        package var deed = Deed.answer
        package var status = 200
        package var reason = ""
        /// With status 410, the time since which the token is invalid, in milliseconds; 0 stands for now.
        package var timestamp: Int64 = 0
        package var retryAfterSeconds: Int64?
        package var delayMilliseconds: UInt64 = 0
        /// The number of requests that the rule applies to, or `nil` for all.
        package var times: Int?

        package init() {}

        package init(
            prefix: String, deed: Deed = .answer, status: Int = 200, reason: String = "", timestamp: Int64 = 0,
            retryAfterSeconds: Int64? = nil, delayMilliseconds: UInt64 = 0, times: Int? = nil
        ) {
            (self.prefix, self.deed, self.status, self.reason) = (prefix, deed, status, reason)
            (self.timestamp, self.retryAfterSeconds) = (timestamp, retryAfterSeconds)
            (self.delayMilliseconds, self.times) = (delayMilliseconds, times)
        }
    }

    package var rules: [Rule] = []
    /// The maximum of concurrent requests per connection.
    package var streams: UInt32 = 1_000
    /// The number of requests after which a connection gets a GOAWAY, or `nil`.
    package var requestsPerConnection: Int?
    /// The number of first connections that get a GOAWAY instead of SETTINGS, with the reason below.
    package var refusedConnections = 0
    package var refusalReason = "Shutdown"

    /// The difference of the fake's clock from the machine's, in seconds.
    package var clockSeconds: Int64 = 0
    /// The number of connections, counted from the first, that the fake stops reading after the first bytes of HTTP/2.
    package var deafConnections = 0
    /// The number of first connections that get no bytes after the TLS handshake.
    package var silentConnections = 0
    /// The scripts of the other vendors.
    package var vendors: [FakeVendor: VendorScript] = [:]

    package init() {}

    /// The default rules: token prefixes that stand for faults.
    package static var conventional: FakeScript {
        var script = FakeScript()
        script.rules = [
            // The token of `longwire-sender doctor` without `--token`.
            Rule(prefix: String(repeating: "0", count: 32), status: 400, reason: "BadDeviceToken"),
            Rule(prefix: "dead", status: 410, reason: "Unregistered"),
            Rule(prefix: "bad0", status: 400, reason: "BadDeviceToken"),
            Rule(prefix: "bad1", status: 400, reason: "DeviceTokenNotForTopic"),
            Rule(prefix: "4290", status: 429, reason: "TooManyRequests", retryAfterSeconds: 1),
            Rule(prefix: "5000", status: 500, reason: "InternalServerError"),
            Rule(prefix: "5030", status: 503, reason: "ServiceUnavailable", retryAfterSeconds: 1),
        ]
        return script
    }
}

/// A key that the fake accepts, with its permissions.
package struct FakeKey: Sendable {
    package var keyID: String
    package var teamID: String
    package var key: SigningKey
    package var environments: Set<Environment>
    /// The permitted topics without suffixes; empty for all.
    package var topics: Set<String>

    package init(
        keyID: String, teamID: String, key: SigningKey, environments: Set<Environment> = Set(Environment.allCases),
        topics: Set<String> = []
    ) {
        (self.keyID, self.teamID, self.key) = (keyID, teamID, key)
        (self.environments, self.topics) = (environments, topics)
    }
}
