package import Wire

/// The attributes of a device, as its app named them in a Hello.
///
/// The texts are not in the device's row, because memory keeps that row and few calls need the texts. The device's row has the
/// platform and a digest of this row (`AttributesMark`), so a Hello with known attributes neither reads nor writes this row.
package enum AttributesRow {
    static let version: UInt8 = 1
    static let byteCountLimit = 3 + 5 * (1 + Wire.Limits.attributeByteCount) + 1 + Wire.Limits.localeByteCount

    static func key(_ cid: DeviceID, in bucket: Bucket) -> StoreKey { StoreKey(bucket, .attributes, cid) }

    private static func texts(_ attributes: DeviceAttributes) -> [String] {
        [
            attributes.brand, attributes.model, attributes.systemVersion, attributes.appVersion, attributes.locale,
            attributes.timeZone,
        ]
    }

    static func byteCount(_ attributes: DeviceAttributes) -> Int {
        texts(attributes).reduce(3) { $0 + RowWriter.byteCount(text: $1) }
    }

    static func write(_ attributes: DeviceAttributes, into bytes: UnsafeMutableRawBufferPointer) {
        var writer = unsafe RowWriter(bytes)
        writer.put(version)
        writer.put(attributes.platform.rawValue)
        writer.put(attributes.notificationPermission.rawValue)
        for text in texts(attributes) { writer.put(text: text) }
    }

    /// Returns the attributes of a row; `nil` unless the bytes are an attributes row of a known version.
    ///
    /// A platform of a later version is read as `other`.
    package static func read(_ bytes: UnsafeRawBufferPointer) -> DeviceAttributes? {
        var reader = unsafe RowReader(bytes)
        guard reader.next(UInt8.self) == version, let platform = reader.next(UInt8.self),
            let permission = reader.next(UInt8.self), let brand = reader.nextText(), let model = reader.nextText(),
            let systemVersion = reader.nextText(), let appVersion = reader.nextText(),
            let locale = reader.nextText(), let timeZone = reader.nextText(), reader.isAtEnd
        else { return nil }
        var attributes = DeviceAttributes()
        attributes.platform = DeviceAttributes.Platform(rawValue: platform) ?? .other
        attributes.notificationPermission =
            DeviceAttributes.NotificationPermission(rawValue: permission) ?? .unknown
        (attributes.brand, attributes.model) = (brand, model)
        (attributes.systemVersion, attributes.appVersion) = (systemVersion, appVersion)
        (attributes.locale, attributes.timeZone) = (locale, timeZone)
        return attributes
    }
}

/// A device's platform and the digest of its attributes, in the device's row.
struct AttributesMark: Equatable {
    /// The first byte of the section; it differs from `VendorFailure.mark` and from the versions of `DeviceNames`.
    static let mark: UInt8 = 0x81
    static let byteCount = 10

    /// The digest for a missing or damaged attributes row; it makes the next Hello write the row again.
    static let unknownDigest: UInt64 = 0

    var platform: DeviceAttributes.Platform
    var digest: UInt64

    init(_ attributes: DeviceAttributes) {
        (platform, digest) = (attributes.platform, AttributesRow.digest(attributes))
    }

    /// The attributes that are known without their row: only the platform.
    var known: DeviceAttributes {
        var attributes = DeviceAttributes()
        attributes.platform = platform
        return attributes
    }

    func write(_ writer: inout RowWriter) {
        writer.put(Self.mark)
        writer.put(platform.rawValue)
        writer.put(digest)
    }

    /// Reads the section after its mark; `nil` if the row is truncated.
    init?(_ reader: inout RowReader) {
        guard let platform = reader.next(UInt8.self), let digest = reader.next(UInt64.self) else { return nil }
        self.platform = DeviceAttributes.Platform(rawValue: platform) ?? .other
        self.digest = digest
    }
}
