// Declarations of Apple's Security that the client uses. Only to check types against.
public import Dispatch
public import Foundation

public final class SecCertificate {}
public final class SecPolicy {}
public final class SecTrust {}
public final class CFError {}

public func SecCertificateCopyData(_: SecCertificate) -> CFData { CFData([]) }
public func SecCertificateCreateWithData(_: AnyObject?, _: CFData) -> SecCertificate? { nil }
public func SecPolicyCreateSSL(_: Bool, _: CFString?) -> SecPolicy { SecPolicy() }
public func SecTrustCopyCertificateChain(_: SecTrust) -> CFArray? { nil }
public func SecTrustEvaluateWithError(_: SecTrust, _: UnsafeMutablePointer<CFError?>?) -> Bool { false }
@discardableResult public func SecTrustSetAnchorCertificates(_: SecTrust, _: CFArray?) -> Int32 { 0 }
@discardableResult public func SecTrustSetAnchorCertificatesOnly(_: SecTrust, _: Bool) -> Int32 { 0 }
@discardableResult public func SecTrustSetPolicies(_: SecTrust, _: AnyObject) -> Int32 { 0 }

public protocol OS_sec_object {}
public typealias sec_trust_t = any OS_sec_object
public typealias sec_protocol_metadata_t = any OS_sec_object
public typealias sec_protocol_options_t = any OS_sec_object
public typealias sec_protocol_verify_complete_t = (Bool) -> Void
public typealias sec_protocol_verify_t =
    @Sendable (
        sec_protocol_metadata_t, sec_trust_t, @escaping sec_protocol_verify_complete_t
    ) -> Void
public enum tls_protocol_version_t { case TLSv12, TLSv13 }

public func sec_trust_copy_ref(_: sec_trust_t) -> Unmanaged<SecTrust> { .passRetained(SecTrust()) }
public func sec_protocol_options_set_min_tls_protocol_version(_: sec_protocol_options_t, _: tls_protocol_version_t) {}
public func sec_protocol_options_set_verify_block(
    _: sec_protocol_options_t, _: @escaping sec_protocol_verify_t, _: DispatchQueue
) {}
