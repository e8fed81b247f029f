/// A reason that Apple documents; an answer with another reason is handled by its status.
package enum Reason: String, Sendable, CaseIterable {
    case badCollapseID = "BadCollapseId"
    case badDeviceToken = "BadDeviceToken"
    case badExpirationDate = "BadExpirationDate"
    case badMessageID = "BadMessageId"
    case badPriority = "BadPriority"
    case badTopic = "BadTopic"
    case deviceTokenNotForTopic = "DeviceTokenNotForTopic"
    case duplicateHeaders = "DuplicateHeaders"
    case idleTimeout = "IdleTimeout"
    case invalidPushType = "InvalidPushType"
    case missingDeviceToken = "MissingDeviceToken"
    case missingTopic = "MissingTopic"
    case payloadEmpty = "PayloadEmpty"
    case topicDisallowed = "TopicDisallowed"
    case badCertificate = "BadCertificate"
    case badCertificateEnvironment = "BadCertificateEnvironment"
    case badEnvironmentKey = "BadEnvironmentKeyInToken"
    case badEnvironmentKeyID = "BadEnvironmentKeyIdInToken"
    case expiredProviderToken = "ExpiredProviderToken"
    case forbidden = "Forbidden"
    case invalidProviderToken = "InvalidProviderToken"
    case missingProviderToken = "MissingProviderToken"
    case unrelatedKeyID = "UnrelatedKeyIdInToken"
    case badPath = "BadPath"
    case methodNotAllowed = "MethodNotAllowed"
    case expiredToken = "ExpiredToken"
    case unregistered = "Unregistered"
    case payloadTooLarge = "PayloadTooLarge"
    case tooManyProviderTokenUpdates = "TooManyProviderTokenUpdates"
    case tooManyRequests = "TooManyRequests"
    case internalServerError = "InternalServerError"
    case serviceUnavailable = "ServiceUnavailable"
    case shutdown = "Shutdown"
    // Reasons for channels and broadcasts.
    case featureNotEnabled = "FeatureNotEnabled"
    case missingChannelID = "MissingChannelId"
    case badChannelID = "BadChannelId"
    case channelNotRegistered = "ChannelNotRegistered"
    case badRequestParams = "BadRequestParams"
    case badRequestPayload = "BadRequestPayload"
    case missingPushType = "MissingPushType"
    case cannotCreateChannel = "CannotCreateChannelConfig"
    case topicMismatch = "TopicMismatch"
}

package enum Action: Sendable, Equatable {
    /// Apple accepted the notification.
    case accept
    /// Drop the notification: Apple would reject it again.
    case reject
    /// Invalidate the token.
    case voidToken
    /// Retry once in the other environment, because the token may belong there.
    case tryOtherEnvironment
    /// Retry after the server's delay or the sender's backoff.
    case retry
    /// Retry later and send nothing else to this token until then: its device receives too many pushes.
    case slowDownToken
    /// Retry with a new provider token: the current one is too old.
    case renewProviderToken
    /// Keep the provider token and pause requests: Apple counted too many token updates.
    case keepProviderToken
    /// Pause the requests of the rejected key or certificate until it is accepted again or replaced.
    case restCredential
    /// Retry on another connection: this one ends.
    case reconnect
}

extension Action {
    /// Whether the answer implies that Apple accepted the credential.
    package var provesCredential: Bool {
        switch self {
        case .accept, .reject, .voidToken, .tryOtherEnvironment, .retry, .slowDownToken: true
        case .renewProviderToken, .keepProviderToken, .restCredential, .reconnect: false
        }
    }
}

extension Reason {
    package var status: Int {
        switch self {
        case .badCollapseID, .badDeviceToken, .badExpirationDate, .badMessageID, .badPriority, .badTopic,
            .deviceTokenNotForTopic, .duplicateHeaders, .idleTimeout, .invalidPushType, .missingDeviceToken,
            .missingTopic, .payloadEmpty, .topicDisallowed, .featureNotEnabled, .missingChannelID, .badChannelID,
            .channelNotRegistered, .badRequestParams, .badRequestPayload, .missingPushType, .cannotCreateChannel:
            400
        case .badCertificate, .badCertificateEnvironment, .badEnvironmentKey, .badEnvironmentKeyID,
            .expiredProviderToken, .forbidden, .invalidProviderToken, .missingProviderToken, .unrelatedKeyID,
            .topicMismatch:
            403
        case .badPath: 404
        case .methodNotAllowed: 405
        case .expiredToken, .unregistered: 410
        case .payloadTooLarge: 413
        case .tooManyProviderTokenUpdates, .tooManyRequests: 429
        case .internalServerError: 500
        case .serviceUnavailable, .shutdown: 503
        }
    }

    package var action: Action {
        switch self {
        case .badDeviceToken: .tryOtherEnvironment
        case .expiredToken, .unregistered: .voidToken
        // The token is valid for another app of the team. A wrong topic in the settings must not invalidate every token.
        case .deviceTokenNotForTopic: .reject
        case .expiredProviderToken: .renewProviderToken
        case .tooManyProviderTokenUpdates: .keepProviderToken
        case .tooManyRequests: .slowDownToken
        case .badCertificate, .badCertificateEnvironment, .badEnvironmentKey, .badEnvironmentKeyID, .forbidden,
            .invalidProviderToken, .missingProviderToken, .unrelatedKeyID, .topicDisallowed, .badTopic,
            .topicMismatch:
            .restCredential
        case .idleTimeout, .shutdown: .reconnect
        case .internalServerError, .serviceUnavailable: .retry
        case .badCollapseID, .badExpirationDate, .badMessageID, .badPriority, .duplicateHeaders, .invalidPushType,
            .missingDeviceToken, .missingTopic, .payloadEmpty, .badPath, .methodNotAllowed, .payloadTooLarge,
            .featureNotEnabled, .missingChannelID, .badChannelID, .channelNotRegistered, .badRequestParams,
            .badRequestPayload, .missingPushType, .cannotCreateChannel:
            .reject
        }
    }

    package var advice: StaticString {
        switch self {
        case .badCollapseID: "the collapse id has more than 64 bytes: shorten it"
        case .badDeviceToken:
            "the token is malformed, or belongs to the other environment: development builds have sandbox tokens"
        case .badExpirationDate: "the expiration is no Unix time in seconds"
        case .badMessageID: "apns-id is no UUID: the job is damaged"
        case .badPriority: "the priority is not 1, 5 or 10"
        case .badTopic: "the topic is malformed: give the app's bundle id as its topic"
        case .deviceTokenNotForTopic:
            "the token belongs to another app of the team: compare the app's topic with the bundle id of the build"
        case .duplicateHeaders: "a header was sent twice: report this as a fault of the sender"
        case .idleTimeout: "the connection was idle; the sender opens another"
        case .invalidPushType: "the push type does not fit the topic or the token"
        case .missingDeviceToken: "the request had no token: the job is damaged"
        case .missingTopic: "the app has no topic: give its bundle id as apns.topic"
        case .payloadEmpty: "the push has no body"
        case .topicDisallowed:
            "the key or the certificate may not push to this topic: check its scope and the bundle id"
        case .badCertificate: "Apple does not accept the certificate: renew it and replace the file"
        case .badCertificateEnvironment: "the certificate is for the other environment"
        case .badEnvironmentKey, .badEnvironmentKeyID:
            "the key is scoped to the other environment: create one for this environment, or for both"
        case .expiredProviderToken:
            "the provider token is older than an hour: if this repeats, the machine's clock is wrong"
        case .forbidden: "Apple refuses this action for the account: look at the developer account's state"
        case .invalidProviderToken:
            "Apple cannot verify the provider token: check the key file, keyId and teamId, and the machine's clock"
        case .missingProviderToken: "no certificate and no provider token was sent: configure a key"
        case .unrelatedKeyID: "this connection was used with a key of another team: the sender opens another"
        case .badPath: "the request's path is wrong: report this as a fault of the sender"
        case .methodNotAllowed: "the request's method is wrong: report this as a fault of the sender"
        case .expiredToken, .unregistered: "the app was removed from the device, or the token was replaced"
        case .payloadTooLarge: "the body is over 4,096 bytes, or over 5,120 for VoIP: send ids and fetch the rest"
        case .tooManyProviderTokenUpdates:
            "provider tokens were renewed too often: run one sender a key, and do not restart it in a loop"
        case .tooManyRequests: "too many pushes went to one device in a short time"
        case .internalServerError: "Apple's service failed; the sender tries again"
        case .serviceUnavailable: "Apple's service is not available; the sender tries again"
        case .shutdown: "Apple's server shuts down; the sender opens another connection"
        case .featureNotEnabled:
            "the app may not broadcast: enable Broadcast Capability of its identifier in the developer account"
        case .missingChannelID: "the request names no channel"
        case .badChannelID: "the channel's id is not the base64 that its creation answered"
        case .channelNotRegistered:
            "the channel does not exist: it was deleted, or belongs to another app or the other environment"
        case .badRequestParams: "the request has an attribute that Apple does not know"
        case .badRequestPayload: "the body cannot be read: give a JSON object with aps"
        case .missingPushType: "the push type is missing: report this as a fault of the sender"
        case .cannotCreateChannel: "the app has as many channels as Apple allows: delete some"
        case .topicMismatch: "the key or the certificate is not for this bundle id"
        }
    }
}
