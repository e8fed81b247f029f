internal import Cryptography
internal import Delivery
internal import PushAPI
internal import Wire

final class HelloVerifier: ProofVerifier {
    func isProof(_ proof: [UInt8], of transcript: [UInt8], secret: [UInt8]) -> Bool {
        HMACSHA256.isCode(proof, of: transcript, key: secret)
    }

    func messageDigest(of task: TaskID, for cid: DeviceID) -> UInt64 { PushAPI.messageDigest(of: task, for: cid) }

    func tokenName(app: AppKey, channel: VendorChannel, kind: TokenKind, token: String) -> AliasName {
        AliasName(app: app, channel: channel, kind: kind, token: token)
    }
}
