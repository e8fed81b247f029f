internal import Wire

// Inlined, because a call would copy the command.
extension PublishCommand {
    @inline(__always) var textByteCount: Int {
        unsafe payload.count + collapseKey.count + alertTitle.count + alertBody.count
    }

    @inline(__always) var hasCustomCallback: Bool { unsafe customCallback.count > 0 }
    var customCallbackBytes: [UInt8] { unsafe [UInt8](customCallback) }

    @inline(__always) var hasCollapseKey: Bool { unsafe collapseKey.count > 0 }
    /// The digest of the collapse key; 0 without one.
    @inline(__always) var collapseHash: UInt64 { unsafe collapseKey.isEmpty ? 0 : Fingerprint.of(collapseKey) }
}

extension VendorContent {
    var collapseText: String { unsafe String(decoding: collapseID, as: UTF8.self) }
    var bodyBytes: [UInt8] { unsafe [UInt8](body) }
    @inline(__always) var textByteCount: Int { unsafe body.count + collapseID.count }

    /// Points `body` and `collapseID` at consecutive bytes from `start` on; returns the end of the bytes.
    @unsafe mutating func point(at start: UnsafeRawPointer) -> UnsafeRawPointer {
        unsafe body = UnsafeRawBufferPointer(start: start, count: body.count)
        unsafe collapseID = UnsafeRawBufferPointer(start: start + body.count, count: collapseID.count)
        return unsafe start + body.count + collapseID.count
    }
}

/// A waiting publish with a copy of its bytes in one allocation.
///
/// `@safe`: the command's pointers refer to that allocation, which is freed with the object.
@safe final class KeptPublish {
    let command: PublishCommand
    private let bytes: KeptBytes

    init(_ original: PublishCommand) {
        var kept = original
        let size = unsafe original.textByteCount + original.customCallback.count + original.contents.byteCount
        bytes = unsafe KeptBytes(byteCount: size) { room in
            var offset = 0
            func keep(_ part: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
                let place = unsafe UnsafeMutableRawBufferPointer(rebasing: room[offset..<offset + part.count])
                unsafe place.copyMemory(from: part)
                offset += part.count
                return UnsafeRawBufferPointer(place)
            }
            unsafe kept.payload = keep(original.payload)
            unsafe kept.collapseKey = keep(original.collapseKey)
            unsafe kept.alertTitle = keep(original.alertTitle)
            unsafe kept.alertBody = keep(original.alertBody)
            unsafe kept.customCallback = keep(original.customCallback)
            kept.contents.change { content in
                unsafe content.body = keep(content.body)
                unsafe content.collapseID = keep(content.collapseID)
            }
        }
        command = kept
    }
}
