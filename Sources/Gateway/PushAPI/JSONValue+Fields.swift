internal import JSON

// Rules for optional fields, which SDKs send in different forms.
extension JSONValue {
    /// Whether the value is null, `""`, `[]` or `{}`, which SDKs send for omitted fields.
    var isEmpty: Bool { !hasContent || stringBytes?.isEmpty == true }

    /// Whether the value is neither null nor `[]` nor `{}`.
    var hasContent: Bool { !isNull && !isEmptyContainer }

    /// Whether the value is null, an empty text, `[]` or `{}`.
    ///
    /// All optional fields use this rule, or `isAbsentOrZero` if zero is not a valid value.
    var isAbsent: Bool { !hasContent || equals("") }

    /// Whether the value is absent, or is zero or `false`.
    var isAbsentOrZero: Bool { isAbsent || lenientBool == false || double == 0 }

    /// Whether all parts of the value are absent; with `zero`, numbers and flags may also be zero or `false`.
    func isHollow(zero: Bool) -> Bool {
        if kind == .object { return members.allSatisfy { $0.value.isHollow(zero: zero) } }
        // The text "0" is a value.
        return isAbsent || zero && kind != .string && isAbsentOrZero
    }

    /// The value of an optional field; `nil` if absent.
    var given: JSONValue? { isAbsent ? nil : self }

    /// The value of an optional field for which zero is not valid; `nil` if absent.
    var givenNonzero: JSONValue? { isAbsentOrZero ? nil : self }
}
