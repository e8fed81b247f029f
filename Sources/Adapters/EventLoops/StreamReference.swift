/// A stream without its loop, in twelve bytes; see `ByteStream.reference`.
package struct StreamReference: BitwiseCopyable {
    let place: UnsafeMutableRawPointer?
    let serial: UInt32

    /// Names no stream, and must not be made one.
    package static var none: StreamReference { StreamReference(place: nil, serial: .max) }

    /// Whether it names this stream.
    package func names(_ stream: ByteStream) -> Bool {
        place == UnsafeMutableRawPointer(stream.place) && serial == stream.serial
    }
}
