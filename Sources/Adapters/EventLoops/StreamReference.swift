/// A twelve-byte reference to a stream without its loop, from `ByteStream.reference`.
package struct StreamReference: BitwiseCopyable {
    let place: UnsafeMutableRawPointer?
    let serial: UInt32

    /// A reference to no stream, from which no `ByteStream` may be created.
    package static var none: StreamReference { StreamReference(place: nil, serial: .max) }

    package func names(_ stream: ByteStream) -> Bool {
        place == UnsafeMutableRawPointer(stream.place) && serial == stream.serial
    }
}
