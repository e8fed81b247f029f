internal import Cryptography
internal import Wire

/// A Hello with its proof (Proto/README.md, "Handshake").
enum Greeting {
    /// Returns the Hello of a registered device, or of a new one if its cid is none.
    static func device(
        _ identity: DeviceIdentity, _ credentials: Credentials, timestamp: UInt64, heartbeatSeconds: UInt32,
        hasToken: Bool = false
    ) -> [UInt8] {
        var hello = Hello()
        hello.appID = credentials.appID
        hello.timestamp = timestamp
        hello.heartbeatSeconds = heartbeatSeconds
        hello.client = "longwire bench"
        // A dummy vendor token: handoff jobs require one. A token belongs to one device, so each device has its own.
        if hasToken { hello.tokens = [VendorToken(topic: "com.example.bench", token: token(of: identity.cid))] }
        guard !identity.cid.isNone else {
            hello.registration = true
            hello.nonce = SecureRandom.bytes(16)
            return frame(hello, key: Array(credentials.appSecret.utf8))
        }
        hello.cid = identity.cid
        return frame(hello, key: identity.secret)
    }

    private static func token(of cid: DeviceID) -> String {
        cid.description + cid.description
    }

    static func sender(_ credentials: Credentials, timestamp: UInt64) -> [UInt8] {
        var hello = Hello()
        hello.appID = credentials.appID
        hello.role = .sender
        hello.nonce = SecureRandom.bytes(16)
        hello.timestamp = timestamp
        hello.client = "longwire bench"
        return frame(hello, key: Array(credentials.masterSecret.utf8))
    }

    private static func frame(_ unproven: Hello, key: [UInt8]) -> [UInt8] {
        var hello = unproven
        var message = Array(HelloTranscript.label.withUTF8Buffer { Array($0) })
        hello.appendBody(to: &message)
        hello.proof = HMACSHA256.code(key: key, message: message)
        var bytes: [UInt8] = []
        hello.appendFrame(to: &bytes)
        return bytes
    }
}
