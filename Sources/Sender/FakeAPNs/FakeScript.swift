// A scripted Apple for tests and trials: real HTTP/2 over TLS, Apple's checks, and faults on demand.

package import APNs
package import Cryptography

/// What the fake does with requests, beyond Apple's own checks.
package struct FakeScript: Sendable, Equatable {
    /// What becomes of a request that a rule fits.
    package enum Deed: String, Sendable, CaseIterable {
        /// Answers, with the rule's status and reason.
        case answer
        /// Takes the notification and resets the stream: the sender cannot know.
        case resetTaken
        /// Resets the stream and takes nothing.
        case resetUntaken
        /// Takes the notification and never answers.
        case silence
        /// Takes the notification and closes the connection.
        case cutTaken
        /// Says goodbye with a last stream below this one: nothing of it was looked at.
        case goodbyeBelow
        /// Answers, and says goodbye behind it.
        case goodbyeAfter
    }

    /// One rule; the first that fits a request counts.
    package struct Rule: Sendable, Equatable {
        /// Fits tokens that begin with this; empty: all.
        package var prefix = ""
        package var deed = Deed.answer
        package var status = 200
        package var reason = ""
        /// With 410: since when the token is invalid, in milliseconds; 0: now.
        package var timestamp: Int64 = 0
        package var retryAfterSeconds: Int64?
        package var delayMilliseconds: UInt64 = 0
        /// How many requests of the whole fake it fits; `nil`: all.
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
    /// Requests at once on a connection.
    package var streams: UInt32 = 1_000
    /// Requests after which a connection gets a goodbye; `nil`: never.
    package var requestsPerConnection: Int?
    /// How many first connections get a goodbye in place of the settings, with the reason below.
    package var refusedConnections = 0
    package var refusalReason = "Shutdown"

    /// Added to the machine's clock, for tests of wrong clocks.
    package var clockSeconds: Int64 = 0
    /// How many first connections are read no further than their first bytes after TLS.
    package var deafConnections = 0
    /// How many first connections get nothing after TLS.
    package var silentConnections = 0

    package init() {}

    /// The tokens that stand for faults, unless a script says otherwise.
    package static var conventional: FakeScript {
        var script = FakeScript()
        script.rules = [
            // What `longwire-apns doctor` asks with, when it is given no token.
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

/// A key that the fake knows, and what it may do.
package struct FakeKey: Sendable {
    package var keyID: String
    package var teamID: String
    package var key: SigningKey
    package var environments: Set<Environment>
    /// Topics without their suffixes; empty: all.
    package var topics: Set<String>

    package init(
        keyID: String, teamID: String, key: SigningKey, environments: Set<Environment> = Set(Environment.allCases),
        topics: Set<String> = []
    ) {
        (self.keyID, self.teamID, self.key) = (keyID, teamID, key)
        (self.environments, self.topics) = (environments, topics)
    }
}
