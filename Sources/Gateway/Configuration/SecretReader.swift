/// Reads secrets given inline under a key, such as `token`, or in files under the key with the suffix `File`.
///
/// Several values may be given, so that an old and a new secret overlap during a rotation.
package struct SecretReader {
    let folder: String
    let problems: ConfigurationProblems
    package private(set) var hasInline = false
    package private(set) var warnings: [String] = []

    package init(folder: String, problems: ConfigurationProblems) { (self.folder, self.problems) = (folder, problems) }

    /// Returns the secrets, newest first; `nil` if there is none or one is invalid (both are reported).
    ///
    /// `check` tests additional requirements for this kind of secret.
    package mutating func read(
        _ object: ConfigurationObject, _ key: String, _ byteCount: ClosedRange<Int>,
        where check: (String) -> Bool = { _ in true }
    ) -> [Secret]? {
        let fileKey = key + "File"
        let inline = object.strings(key, limit: ConfigurationLimits.overlappingSecretCount, isSecret: true)
        let files = object.strings(fileKey, limit: ConfigurationLimits.overlappingSecretCount)
        guard !(object.has(key) && object.has(fileKey)) else {
            object.report(fileKey, "not allowed beside \(key); give one of the two")
            return nil
        }
        guard object.has(key) || object.has(fileKey) else {
            object.report(key, "missing; give \(key), or \(fileKey) with the path of a file that holds it")
            return nil
        }
        var secrets: [Secret] = []
        if let inline {
            hasInline = true
            for text in inline {
                guard accept(text, byteCount, check, object, key, what: "the value") else { return nil }
                secrets.append(Secret(text))
            }
            return secrets
        }
        for path in files ?? [] {
            let resolved = path.hasPrefix("/") ? path : folder + path
            let contents: FileText.Contents
            do {
                contents = try FileText.read(resolved, limit: ConfigurationLimits.secretFileByteCount)
            } catch {
                object.report(fileKey, "\(resolved) cannot be read: \(error.reason)")
                return nil
            }
            if contents.isReadableByOthers {
                warnings.append("\(resolved) holds a secret and others can read it; chmod 600")
            }
            // An editor's final line end is not part of the secret.
            let text = String(decoding: Self.trimmed(contents.bytes), as: UTF8.self)
            guard accept(text, byteCount, check, object, fileKey, what: resolved) else { return nil }
            secrets.append(Secret(text))
        }
        return files == nil ? nil : secrets
    }

    private func accept(
        _ text: String, _ byteCount: ClosedRange<Int>, _ check: (String) -> Bool, _ object: ConfigurationObject,
        _ key: String, what: String
    ) -> Bool {
        guard Self.isVisible(text, byteCount) else {
            object.report(
                key,
                "\(what) is not allowed (\(text.utf8.count) bytes, not shown); "
                    + "\(byteCount.lowerBound) to \(byteCount.upperBound) visible ASCII characters")
            return false
        }
        guard check(text) else {
            object.report(
                key, "\(what) is not allowed (not shown); \"whsec_\" and the Base64 of 24 to 64 random bytes")
            return false
        }
        return true
    }

    package static func isVisible(_ text: String, _ byteCount: ClosedRange<Int>) -> Bool {
        byteCount.contains(text.utf8.count) && text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }
    }

    private static func trimmed(_ bytes: [UInt8]) -> ArraySlice<UInt8> {
        var slice = bytes[...]
        while let last = slice.last, last <= 0x20 { slice.removeLast() }
        while let first = slice.first, first <= 0x20 { slice.removeFirst() }
        return slice
    }
}
