// Declarations of Apple's CryptoKit that the client uses. Only to check types against.
public import Foundation

public protocol HashFunction {}
public struct SHA256Digest: Sequence, Sendable {
    public func makeIterator() -> AnyIterator<UInt8> { AnyIterator { nil } }
}
public struct SHA256: HashFunction {
    public static func hash(data: some DataProtocol) -> SHA256Digest { SHA256Digest() }
}
public struct SymmetricKey: Sendable {
    public init(data: some ContiguousBytes) {}
}
public struct HashedAuthenticationCode: Sequence, Sendable {
    public func makeIterator() -> AnyIterator<UInt8> { AnyIterator { nil } }
}
public struct HMAC<Function: HashFunction> {
    public static func authenticationCode(
        for data: some DataProtocol, using key: SymmetricKey
    ) -> HashedAuthenticationCode { HashedAuthenticationCode() }
}
