internal import JSON

// How the fields of a request are read, whatever SDK wrote it.
extension JSONValue {
    /// True for null, `""`, `[]` and `{}`, which SDKs send for what their callers did not fill in.
    var isEmpty: Bool { !hasContent || stringBytes?.isEmpty == true }

    /// True when there is something in it: neither null, nor `[]`, nor `{}`.
    var hasContent: Bool { !isNull && !isEmptyContainer }

    /// True for null, an empty text, `[]` and `{}`: SDKs write these for fields that their callers left out.
    ///
    /// Every optional field of a request is read by this rule, and by `isAbsentOrZero` where zero is none of its values.
    var isAbsent: Bool { !hasContent || equals("") }

    /// Absent, or the zero or the `false` of a type without an absent value.
    var isAbsentOrZero: Bool { isAbsent || lenientBool == false || double == 0 }

    /// Absent in all its parts, as an object is whose caller filled in nothing; with `zero` its numbers and flags, too.
    func isHollow(zero: Bool) -> Bool {
        if kind == .object { return members.allSatisfy { $0.value.isHollow(zero: zero) } }
        // The text "0" is a value.
        return isAbsent || zero && kind != .string && isAbsentOrZero
    }

    /// The value of an optional field; `nil` when it is absent.
    var given: JSONValue? { isAbsent ? nil : self }

    /// The same for a field that zero is no value of.
    var givenNonzero: JSONValue? { isAbsentOrZero ? nil : self }
}
