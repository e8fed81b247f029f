import Cryptography
import JSON
import Testing
import TextForms

@testable import Vendors

/// Credentials, messages and replies that the suites share.
enum Samples {
    static let now: Int64 = 1_732_900_000
    static let messageID = "0123456789abcdef0123456789abcdef"
    static let taskID = "RASS_1129_x"
    static let rsaPEM = (try? RSASigningKey.makePEM()) ?? []
    static let vapidPEM = (try? SigningKey.makePEM()) ?? []
    static let browserKey = AgreementKey()
    static let browserSecret = [UInt8](repeating: 7, count: 16)

    static func serviceAccount(_ vendor: Vendor) -> [UInt8] {
        let pem = String(decoding: rsaPEM, as: UTF8.self)
        let account: JSONTree =
            vendor == .fcm
            ? [
                "project_id": "demo-1", "client_email": "s@demo-1.iam.gserviceaccount.com", "private_key_id": "k1",
                "private_key": .string(pem), "token_uri": "https://oauth2.googleapis.com/token",
            ]
            : ["project_id": "388421841", "key_id": "k2", "sub_account": "108000", "private_key": .string(pem)]
        return account.bytes
    }

    static func values(_ vendor: Vendor) -> [String: [UInt8]] {
        switch vendor {
        case .fcm, .harmony: ["serviceAccount": serviceAccount(vendor)]
        case .hms: texts(["appId": "100", "appSecret": "s3cret"])
        case .honor: texts(["appId": "200", "clientId": "c", "clientSecret": "s3cret"])
        case .xiaomi:
            texts(["appSecret": "s3cret", "packageName": "com.example.app", "callbackURL": "https://cb.example/x"])
        case .oppo: texts(["appKey": "key", "masterSecret": "s3cret", "callbackURL": "https://cb.example/o"])
        case .vivo:
            texts(["appId": "300", "appKey": "key", "appSecret": "s3cret", "callbackURL": "https://cb.example/v"])
        case .meizu: texts(["appId": "400", "appSecret": "s3cret"])
        case .webPush: ["privateKey": vapidPEM, "subject": Array("mailto:ops@example.com".utf8)]
        }
    }

    static func texts(_ texts: [String: String]) -> [String: [UInt8]] { texts.mapValues { Array($0.utf8) } }

    static func api(_ vendor: Vendor) throws -> any VendorAPI {
        try VendorCredential.makeAPI(vendor, values: values(vendor))
    }

    static func token(_ vendor: Vendor) -> String {
        guard vendor == .webPush else { return "token-1" }
        let point = Base64.encode(browserKey?.publicPoint ?? [], .url)
        return "https://updates.push.services.mozilla.com/wpush/v2/abc#\(point)." + Base64.encode(browserSecret, .url)
    }

    static func notice(_ click: PushContent.Click = .startApp) -> PushContent.Notice {
        PushContent.Notice(title: "Title", body: "Body", click: click)
    }

    static func message(
        _ vendor: Vendor, _ kind: PushContent.Kind = .notification(notice()),
        options: [PushContent.Option] = [], collapseID: String = "", seconds: Int64 = 3_600
    ) -> VendorMessage {
        VendorMessage(
            token: token(vendor), packageName: "com.example.app", messageID: messageID, taskID: taskID,
            collapseID: collapseID, content: PushContent(kind, options: options), secondsToLive: seconds)
    }

    static func request(_ message: VendorMessage, _ vendor: Vendor) throws -> VendorRequest {
        let bearer = vendor.facts.tokenKind == .none ? nil : "bearer-1"
        return try api(vendor).request(for: message, bearer: bearer, now: now)
    }

    static func tree(_ bytes: [UInt8]) throws -> JSONTree {
        try #require(JSONTree.parsing(bytes, byteLimit: 1 << 20) { JSONTree($0) })
    }

    static func tree(_ text: String) throws -> JSONTree { try tree(Array(text.utf8)) }

    static func reply(_ body: String, _ status: Int = 200, retryAfter: String = "") -> VendorReply {
        VendorReply(status: status, retryAfter: retryAfter, body: Array(body.utf8))
    }

    static func option(_ pointer: String, _ value: JSONTree) throws -> PushContent.Option {
        PushContent.Option(pointer: try #require(JSONPointer(pointer)), value: value)
    }

    /// Reads a content from JSON text.
    static func content(_ text: String, _ vendor: Vendor) throws -> PushContent {
        let parser = JSONParser()
        return try Array(text.utf8).withUnsafeBytes { bytes in
            let value = try parser.parse(bytes)
            return try withExtendedLifetime(parser) { try PushContent(value, vendor: vendor) }
        }
    }
}

extension JSONTree {
    /// The value at a path of member names and array places.
    func at(_ path: String) -> JSONTree? {
        path.split(separator: "/").reduce(self as JSONTree?) { tree, name in
            if case .array(let elements)? = tree, let place = Int(name), elements.indices.contains(place) {
                return elements[place]
            }
            return tree?[String(name)]
        }
    }

    var string: String? { if case .string(let text) = self { text } else { nil } }
}
