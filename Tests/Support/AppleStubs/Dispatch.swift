// Declarations of Apple's Dispatch that the client uses. Only to check types against.
public final class DispatchQueue: Sendable {
    public init(label: String) {}
}
