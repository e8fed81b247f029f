/// The character rules for aliases and tags, as in Getui; their lengths are configurable.
package enum NameRules {
    /// Returns whether the text has only letters, digits, `_` and Chinese characters.
    package static func isAlias(_ text: String) -> Bool {
        !text.isEmpty && text.unicodeScalars.allSatisfy(isOfAlias)
    }

    /// Returns whether the text is an alias that may also contain hyphens.
    package static func isAliasType(_ text: String) -> Bool {
        !text.isEmpty && text.unicodeScalars.allSatisfy { $0 == "-" || isOfAlias($0) }
    }

    private static func isOfAlias(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x5F: true
        default: isHan(scalar)
        }
    }

    /// Returns whether the text has no white space and no control characters; answers join tags with spaces.
    package static func isTag(_ text: String) -> Bool {
        !text.isEmpty
            && text.unicodeScalars.allSatisfy { scalar in
                // U+FFFD replaces bytes that were not valid text.
                !scalar.properties.isWhitespace && scalar.value >= 0x20 && !(0x7F...0x9F).contains(scalar.value)
                    && scalar.value != 0xFFFD
            }
    }

    private static func isHan(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0x3007, 0x3400...0x4DBF, 0x4E00...0x9FFF, 0xF900...0xFAFF, 0x20000...0x3FFFF: true
        default: false
        }
    }
}
