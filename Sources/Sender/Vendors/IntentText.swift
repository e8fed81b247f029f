internal import TextForms

/// The target of a tap: an intent URI, an action's name or an activity's class.
struct IntentText {
    let text: String

    init(_ text: String) { self.text = text }

    /// Whether the text is a URI: `intent:…#Intent;…;end` or another scheme.
    var isURI: Bool { text.contains("#Intent;") || text.contains("://") || text.hasPrefix("intent:") }

    /// Whether the text names an activity's class instead of an action.
    var isActivity: Bool { !isURI && (text.hasSuffix("Activity") || text.contains("/")) }

    /// The action of an intent URI, or the text itself if it is an action's name.
    var action: String? {
        if isURI { return parameter("action") }
        return isActivity || !text.isPlain(with: "._") ? nil : text
    }

    /// The activity in `component=package/class` of an intent URI; a class that begins with a dot gets the package's name.
    var activity: String? {
        if isActivity { return text }
        guard let parts = parameter("component")?.split(separator: "/", maxSplits: 1), parts.count == 2 else {
            return nil
        }
        return parts[1].hasPrefix(".") ? String(parts[0] + parts[1]) : String(parts[1])
    }

    private func parameter(_ name: String) -> String? {
        for part in text.split(separator: ";") where part.hasPrefix(name + "=") {
            let value = part.dropFirst(name.utf8.count + 1)
            return value.isPlain(with: "._/$") && !value.isEmpty ? String(value) : nil
        }
        return nil
    }
}
