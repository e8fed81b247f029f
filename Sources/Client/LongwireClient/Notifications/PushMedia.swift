/// A file that a service extension attaches to a notification, from the member `longwire_media` (`multimedia` of the push).
public struct PushMedia: Equatable, Sendable {
    /// The kind of a file; the raw values are Getui's.
    public enum Kind: Int64, Sendable { case image = 1, audio, video }

    /// The file's kind.
    public var kind: Kind
    /// The file's address, which begins with `https://`.
    public var url: String
    /// Whether the file must not be downloaded over a mobile network.
    public var needsWiFi: Bool

    /// The maximum size of a file of this kind on Apple's systems.
    ///
    /// A larger file is not attached.
    public var byteLimit: Int {
        switch kind {
        case .image: 10 << 20
        case .audio: 5 << 20
        case .video: 50 << 20
        }
    }

    /// The extension for the downloaded file's name, from which the system detects the type.
    ///
    /// The URL's extension if the system supports files of that type, otherwise `jpg`, `mp3` or `mp4`.
    public var fileExtension: String {
        let path = url.dropFirst("https://".count).prefix { $0 != "?" && $0 != "#" }
        // The host is skipped, because the end of a domain name is not a file extension.
        let name = path.split(separator: "/").dropFirst().last ?? ""
        let parts = name.split(separator: ".")
        let given = parts.count > 1 ? parts[parts.count - 1].lowercased() : ""
        return extensions.contains(given) ? given : extensions[0]
    }

    /// The supported file extensions of the kind, with the default first.
    private var extensions: [String] {
        switch kind {
        case .image: ["jpg", "jpeg", "png", "gif"]
        case .audio: ["mp3", "m4a", "wav", "aif", "aiff"]
        case .video: ["mp4", "mpg", "mpeg", "mp2", "m4v", "avi", "mov"]
        }
    }

    /// Reads one element of `longwire_media`; returns `nil` for an unknown kind, or a URL that is not HTTPS.
    init?(_ value: PushValue) {
        guard let url = value["url"]?.text, url.utf8.count <= Limits.mediaAddressByteCount,
            url.prefix(8).lowercased() == "https://", let kind = value["type"].flatMap(Self.integer).flatMap(Kind.init)
        else { return nil }
        (self.kind, self.url) = (kind, url)
        needsWiFi =
            value["only_wifi"] == .boolean(true) || value["only_wifi"].flatMap(Self.integer) == 1
            || value["only_wifi"]?.text == "true"
    }

    /// Returns an integer, which publishers also write as a string.
    private static func integer(_ value: PushValue) -> Int64? { value.integer ?? value.text.flatMap { Int64($0) } }
}

extension PushNotification {
    /// The files to attach, at most three; elements that cannot be attached are left out.
    public var media: [PushMedia] {
        Array((values[Key.media]?.list ?? []).lazy.compactMap(PushMedia.init).prefix(Limits.mediaCount))
    }
}
