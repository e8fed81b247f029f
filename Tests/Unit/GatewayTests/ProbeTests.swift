import Testing

@testable import Gateway

/// Requests that the per-address limit does not count.
@Suite struct ProbeTests {
    private func isProbe(_ target: String) -> Bool {
        var bytes = Array(target.utf8)
        return bytes.withUnsafeMutableBytes { PublicHandler.isProbe(UnsafeRawBufferPointer($0)) }
    }

    @Test func onlyProbesPassTheBoundOfAnAddress() {
        for target in ["/healthz", "/readyz", "/readyz?verbose", "/healthz?"] { #expect(isProbe(target), "\(target)") }
        for target in ["", "/", "/health", "/healthzz", "/healthz/x", "/v2/app/healthz", "healthz"] {
            #expect(!isProbe(target), "\(target)")
        }
    }
}
