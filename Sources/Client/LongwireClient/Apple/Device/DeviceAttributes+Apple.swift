// The device's attributes on Apple's systems.
#if canImport(Darwin)
internal import Darwin
internal import Foundation
public import Wire

extension DeviceAttributes {
    /// The attributes that the system knows: the model, the versions of the system and the app, the locale and the time zone.
    ///
    /// The notification permission is unknown, because the system answers that question later. Take it from
    /// `UNUserNotificationCenter.notificationSettings()`.
    public static var current: DeviceAttributes {
        var attributes = DeviceAttributes()
        #if os(macOS)
        attributes.platform = .other
        #else
        attributes.platform = .ios
        #endif
        attributes.brand = "Apple"
        attributes.model = hardwareModel
        let version = ProcessInfo.processInfo.operatingSystemVersion
        attributes.systemVersion = "\(version.majorVersion).\(version.minorVersion).\(version.patchVersion)"
        attributes.appVersion =
            Bundle.main.object(forInfoDictionaryKey: "CFBundleShortVersionString") as? String ?? ""
        attributes.locale = Locale.preferredLanguages.first ?? ""
        attributes.timeZone = TimeZone.current.identifier
        _ = attributes.clean()
        return attributes
    }

    /// The name of the hardware, such as `iPhone16,2`.
    private static var hardwareModel: String {
        #if os(macOS)
        let name = "hw.model"
        #else
        let name = "hw.machine"
        #endif
        var byteCount = 0
        guard sysctlbyname(name, nil, &byteCount, nil, 0) == 0, byteCount > 0 else { return "" }
        var bytes = [UInt8](repeating: 0, count: byteCount)
        guard sysctlbyname(name, &bytes, &byteCount, nil, 0) == 0 else { return "" }
        return String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
    }
}
#endif
