/// A request and its response, on either side.
///
/// A session holds its streams until they end. The overridable functions are called on the session's thread during its callbacks.
/// They may submit, respond and reset, but must neither feed nor drain the session.
open class HTTP2Stream {
    /// The stream's number on its connection, or 0 before it is assigned.
    package fileprivate(set) var id: Int32 = 0
    package var body: [UInt8] = []
    /// The number of body bytes passed to nghttp2.
    var sentByteCount = 0
    /// Whether a part of the body was not passed to nghttp2 yet.
    package var hasUnsentBody: Bool { sentByteCount < body.count }
    /// The size of the received header fields in bytes.
    var headerByteCount = 0

    public init() {}

    /// Handles a header field; the bytes are valid during the call.
    open func received(header name: UnsafeBufferPointer<UInt8>, value: UnsafeBufferPointer<UInt8>) {}

    /// Handles a part of the peer's body; the bytes are valid during the call.
    open func received(body bytes: UnsafeBufferPointer<UInt8>) {}

    open func receivedEnd() {}

    /// Handles the end of the stream, exactly once.
    ///
    /// - Parameter code: RFC 9113, section 7; `HTTP2Code.none` after a complete exchange.
    open func closed(_ code: UInt32) {}

    func begin(_ id: Int32) { self.id = id }
}

/// Error codes in use (RFC 9113, section 7).
package enum HTTP2Code {
    package static let none: UInt32 = 0
    package static let protocolError: UInt32 = 1
    package static let internalError: UInt32 = 2
    /// The peer has not processed the stream.
    package static let refusedStream: UInt32 = 7
    package static let cancel: UInt32 = 8
    package static let enhanceYourCalm: UInt32 = 11
}
