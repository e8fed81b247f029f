// The device's attributes on Linux, from `uname`, the environment and the system's time zone.
#if !canImport(Darwin)
#if canImport(Glibc)
internal import Glibc
#elseif canImport(Musl)
internal import Musl
#endif
public import Wire

extension DeviceAttributes {
    /// The attributes that the system knows: the kernel's version, the locale and the time zone.
    public static var current: DeviceAttributes {
        var attributes = DeviceAttributes()
        attributes.platform = .other
        var names = utsname()
        if uname(&names) == 0 {
            let (system, release) = (names.sysname, names.release)
            attributes.systemVersion = "\(text(of: system)) \(text(of: release))"
        }
        attributes.locale = locale(named: variable("LC_ALL") ?? variable("LC_MESSAGES") ?? variable("LANG") ?? "")
        attributes.timeZone = variable("TZ").map { String($0.drop { $0 == ":" }) } ?? systemTimeZone
        _ = attributes.clean()
        return attributes
    }

    /// Returns the language tag of a POSIX locale, such as `zh-CN` of `zh_CN.UTF-8`; empty for `C` and `POSIX`.
    static func locale(named name: String) -> String {
        let plain = name.prefix { $0 != "." && $0 != "@" }
        guard plain != "C", plain != "POSIX" else { return "" }
        return String(plain.map { $0 == "_" ? "-" : $0 })
    }

    private static func variable(_ name: String) -> String? {
        guard let value = getenv(name) else { return nil }
        let text = String(cString: value)
        return text.isEmpty ? nil : text
    }

    /// The name of the time zone, from the target of the link `/etc/localtime`.
    private static var systemTimeZone: String {
        var bytes = [CChar](repeating: 0, count: 1_024)
        let count = readlink(System.timeZoneLink, &bytes, bytes.count)
        guard count > 0 else { return "" }
        let path = String(decoding: bytes[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
        let parts = path.split(separator: "/")
        guard let place = parts.firstIndex(of: "zoneinfo") else { return "" }
        return parts[(place + 1)...].joined(separator: "/")
    }

    private static func text<Characters>(of characters: Characters) -> String {
        withUnsafeBytes(of: characters) { bytes in String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self) }
    }
}
#endif
