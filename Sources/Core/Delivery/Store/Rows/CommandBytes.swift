// The bytes that a publish brings: texts and contents, as pointers into the caller's memory.

internal import Wire

// Inlined: a call would copy the command.
extension PublishCommand {
    /// The bytes of its texts, without those of its contents.
    @inline(__always) var textByteCount: Int {
        unsafe payload.count + collapseKey.count + alertTitle.count + alertBody.count
    }

    @inline(__always) var hasCollapseKey: Bool { unsafe collapseKey.count > 0 }
    /// The digest of its collapse key; 0 when it has none.
    @inline(__always) var collapseHash: UInt64 { unsafe collapseKey.isEmpty ? 0 : Fingerprint.of(collapseKey) }
}

extension VendorContent {
    /// Its collapse id as text; empty: none of its own.
    var collapseText: String { unsafe String(decoding: collapseID, as: UTF8.self) }
    var bodyBytes: [UInt8] { unsafe [UInt8](body) }
    /// The bytes of body and collapse id.
    @inline(__always) var textByteCount: Int { unsafe body.count + collapseID.count }

    /// Points both at bytes that lie one behind the other there; returns where they end.
    @unsafe mutating func point(at start: UnsafeRawPointer) -> UnsafeRawPointer {
        unsafe body = UnsafeRawBufferPointer(start: start, count: body.count)
        unsafe collapseID = UnsafeRawBufferPointer(start: start + body.count, count: collapseID.count)
        return unsafe start + body.count + collapseID.count
    }
}

/// A publish that waits: its bytes in one allocation of its own.
///
/// `@safe`: the command's pointers lead into that allocation, which is freed with the object.
@safe final class KeptPublish {
    let command: PublishCommand
    private let bytes: KeptBytes

    init(_ original: PublishCommand) {
        var kept = original
        let size = original.textByteCount + original.contents.byteCount
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
            kept.contents.change { content in
                unsafe content.body = keep(content.body)
                unsafe content.collapseID = keep(content.collapseID)
            }
        }
        command = kept
    }
}
