/// One request with its answer, on either side.
///
/// A session holds its streams until their end. The functions to override are called on the session's thread, in the
/// middle of its work: they may submit, answer and reset, but neither feed the session nor drain it.
open class HTTP2Stream {
    /// Its number on its connection; 0 before it has one.
    package fileprivate(set) var id: Int32 = 0
    /// What is sent as its body.
    package var body: [UInt8] = []
    /// How much of the body is on its way.
    var sentByteCount = 0
    /// Bytes of header fields received.
    var headerByteCount = 0

    public init() {}

    /// A field came; the bytes are valid during the call.
    open func received(header name: UnsafeBufferPointer<UInt8>, value: UnsafeBufferPointer<UInt8>) {}

    /// A piece of the peer's body came; the bytes are valid during the call.
    open func received(body bytes: UnsafeBufferPointer<UInt8>) {}

    /// The peer has sent all of its request or answer.
    open func receivedEnd() {}

    /// The stream is over: exactly one call.
    ///
    /// - Parameter code: RFC 9113, section 7; `HTTP2Code.none` after a complete exchange.
    open func closed(_ code: UInt32) {}

    func begin(_ id: Int32) { self.id = id }
}

/// Error codes that our code names (RFC 9113, section 7).
package enum HTTP2Code {
    package static let none: UInt32 = 0
    package static let protocolError: UInt32 = 1
    package static let internalError: UInt32 = 2
    /// The peer has done nothing of what the stream asked for.
    package static let refusedStream: UInt32 = 7
    package static let cancel: UInt32 = 8
    package static let enhanceYourCalm: UInt32 = 11
}
