// The Objective-C interface. This file only converts types; the logic is in `CallbackClient` and `LongwireClient`, which are
// tested on Linux. The file was never compiled with Objective-C. Tests/Checks/check-client.sh checks its types without `@objc`.
#if canImport(ObjectiveC)
public import Foundation
@preconcurrency public import UserNotifications

/// The settings of a client.
@objc(LWConfiguration) public final class LWConfiguration: NSObject {
    /// The gateway's host name.
    @objc public var host: String
    /// The gateway's device port.
    @objc public var port: UInt16
    /// The id of the app at the gateway.
    @objc public var appID: String
    /// The appSecret of the app; empty with a `registrationToken`.
    @objc public var appSecret: String
    /// The token of the app's server that registers the device instead of the appSecret, or empty.
    @objc public var registrationToken = ""
    /// The file of the device's state, in the app group's folder.
    @objc public var statePath: String
    /// Whether the connection uses TLS.
    @objc public var usesTLS = true
    /// SHA-256 digests of pinned certificates, 32 bytes each.
    @objc public var pinnedCertificates: [Data] = []
    /// Whether messages opened from their notification also arrive over the connection, as with Getui.
    @objc public var replaysOpened = false

    @objc public init(host: String, port: UInt16, appID: String, appSecret: String, statePath: String) {
        (self.host, self.port, self.appID, self.appSecret) = (host, port, appID, appSecret)
        self.statePath = statePath
        super.init()
    }

    var value: ClientConfiguration {
        var value = ClientConfiguration(host: host, port: port, appID: appID, appSecret: appSecret)
        (value.usesTLS, value.replaysOpened) = (usesTLS, replaysOpened)
        value.registrationToken = registrationToken
        value.pinnedCertificates = pinnedCertificates.map { Array($0) }
        // A silent push may start the app in the background.
        value.applicationState = .background
        return value
    }
}

/// The callbacks of a client, on the main thread.
@objc(LWClientDelegate) public protocol LWClientDelegate: NSObjectProtocol {
    /// A message arrived over the connection. The client acks it when the method has returned.
    @MainActor @objc(longwireClient:didReceiveMessage:)
    func longwireClient(_ client: LWClient, didReceive message: LWMessage)
    /// The gateway accepted a session. Send the client id (cid) to the app's server.
    @MainActor @objc(longwireClient:didConnectWithClientID:)
    optional func longwireClient(_ client: LWClient, didConnectWithClientID clientID: String)
    /// The connection ended. The client reconnects, unless `longwireClient:didStopWithError:` follows.
    @MainActor @objc(longwireClient:didDisconnectWithReason:)
    optional func longwireClient(_ client: LWClient, didDisconnectWithReason reason: String)
    /// The publisher revoked a task. The client removes the task's notifications; the app removes its own data.
    @MainActor @objc(longwireClient:didRevokeTask:)
    optional func longwireClient(_ client: LWClient, didRevokeTask taskID: String)
    /// The gateway has stored a message to the app's server, or refused it.
    @MainActor @objc(longwireClient:didSendPayload:refusal:)
    optional func longwireClient(_ client: LWClient, didSend payload: Data, refusal: String?)
    /// The client stopped. The error is `nil` after a call of `stop`.
    @MainActor @objc(longwireClient:didStopWithError:)
    optional func longwireClient(_ client: LWClient, didStopWithError error: (any Error)?)
}

/// A device of a Longwire gateway, for apps in Objective-C.
///
/// Create one client in each app, and use it on the main thread.
@objc(LWClient) @MainActor public final class LWClient: NSObject {
    private let callbacks: CallbackClient
    private let relay: Relay

    /// The receiver of the callbacks.
    @objc public weak var delegate: (any LWClientDelegate)?

    /// A weak reference to the client, so that pending callbacks do not retain it.
    @MainActor private final class Relay {
        weak var owner: LWClient?
        nonisolated init() {}
    }

    @objc public init(configuration: LWConfiguration) {
        let relay = Relay()
        self.relay = relay
        callbacks = CallbackClient(
            configuration: configuration.value, store: FileStateStore(path: configuration.statePath)
        ) { callback in relay.owner?.deliver(callback) }
        super.init()
        relay.owner = self
    }

    var client: LongwireClient { callbacks.client }

    private func deliver(_ callback: CallbackClient.Callback) {
        switch callback {
        case .connected(let cid): delegate?.longwireClient?(self, didConnectWithClientID: cid)
        case .disconnected(let reason): delegate?.longwireClient?(self, didDisconnectWithReason: reason)
        case .received(let message): delegate?.longwireClient(self, didReceive: LWMessage(message))
        case .revoked(let task):
            if let id = TaskID(text: task) { Task { await RevokedNotifications.remove(of: id) } }
            delegate?.longwireClient?(self, didRevokeTask: task)
        case .sent(let payload, let refusal):
            delegate?.longwireClient?(self, didSend: Data(payload), refusal: refusal)
        case .stopped(let error): delegate?.longwireClient?(self, didStopWithError: error.map { Self.error($0) })
        }
    }

    static func error(_ error: LongwireClientError) -> NSError {
        NSError(
            domain: LongwireClientError.domain, code: error.number,
            userInfo: [NSLocalizedDescriptionKey: error.description])
    }

    // MARK: Starting and the app's state

    /// Starts to connect.
    ///
    /// Set the delegate first.
    @objc(startAndReturnError:) public func start() throws {
        do throws(LongwireClientError) { try callbacks.start() } catch { throw Self.error(error) }
    }

    /// Disconnects and stops the client.
    @objc public func stop() { client.stop() }

    /// Reports that the app is in the foreground.
    @objc public func applicationDidBecomeActive() { client.setApplicationState(.foreground) }

    /// Reports that the app is in the background.
    @objc public func applicationDidEnterBackground() { client.setApplicationState(.background) }

    /// Reports that the system terminates the app, and stops the client.
    ///
    /// Waits at most two seconds for the stop.
    @objc public func applicationWillTerminate() { client.applicationWillTerminate() }

    // MARK: Tokens and settings

    /// Sets the device token of APNs; the environment comes from the app's provisioning profile.
    @objc(setDeviceToken:topic:error:) public func setDeviceToken(_ token: Data, topic: String) throws {
        do throws(LongwireClientError) {
            let token = try VendorToken(deviceToken: token, environment: .ofApp(), topic: topic).checked()
            client.setToken(token)
        } catch {
            throw Self.error(error)
        }
    }

    /// Sets the token of the app's server for the next start; an empty token removes it.
    @objc public func setRegistrationToken(_ token: String) { client.setRegistrationToken(token) }

    /// Sets the icon's badge and reports it to the gateway.
    ///
    /// - Parameters:
    ///   - badge: the new number.
    ///   - keepsNotifications: whether delivered notifications stay when the badge becomes 0.
    @objc(setBadge:keepsNotifications:) public func setBadge(_ badge: Int32, keepsNotifications: Bool) {
        // If this fails, the icon keeps its old badge, although the gateway has the new number.
        Task { [client] in try? await client.setIconBadge(badge, keepsNotifications: keepsNotifications) }
    }

    /// Turns all pushes to this device off or on.
    @objc public func setPushModeOff(_ isOff: Bool) { client.setPushModeOff(isOff) }

    // MARK: Notifications

    /// Handles a tap; returns `nil` for a repeated tap, and for a notification of another service.
    @objc(handleTap:) public func handleTap(_ response: UNNotificationResponse) -> LWNotification? {
        client.handleTap(response).map { LWNotification($0) }
    }

    /// Handles a tap, and keeps it until the app calls `takeTaps`.
    @objc(keepTap:) public func keepTap(_ response: UNNotificationResponse) { client.keepTap(response) }

    /// Returns and removes the kept taps, oldest first.
    @objc public func takeTaps() -> [LWNotification] { client.takeTaps().map { LWNotification($0) } }

    /// Returns the options for `willPresent`.
    @objc(presentationOptionsForNotification:)
    public func presentationOptions(for notification: UNNotification) -> UNNotificationPresentationOptions {
        client.presentationOptions(for: notification)
    }

    /// Receives the queued messages after a silent push.
    ///
    /// The result is a value of `UIBackgroundFetchResult`, or −1 for a push of another service.
    @objc(handleRemoteNotification:completion:)
    public func handleRemoteNotification(
        _ userInfo: [AnyHashable: Any], completion: @escaping @MainActor @Sendable (Int) -> Void
    ) {
        let notification = PushNotification(userInfo: userInfo)
        Task { [client] in
            completion(await client.handleRemoteNotification(notification, within: .seconds(20)).backgroundFetchResult)
        }
    }

    // MARK: Reports and messages to the server

    /// Reports the messages that a service extension has recorded as shown.
    @objc(reportShownInFile:) public func reportShown(inFile path: String) {
        client.report(NotificationReports(path: path))
    }

    /// Reports that the app has shown a message.
    @objc(reportShown:) public func reportShown(_ message: LWMessage) { client.report(.shown(message.value.messageID)) }

    /// Reports a custom action, 90001 to 90999; returns false for other numbers.
    @objc(reportAction:ofMessageID:) public func reportAction(_ number: UInt32, ofMessageID id: String) -> Bool {
        guard let message = MessageID(id) else { return false }
        return client.report(.action(number, message))
    }

    /// Sends a message of 1 byte to 16 KiB to the app's server; returns false if the message cannot be queued.
    @objc(sendPayload:) public func send(_ payload: Data) -> Bool { client.send(Array(payload)) }
}
#endif
