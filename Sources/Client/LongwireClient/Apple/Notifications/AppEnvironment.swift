// The app's provisioning profile, and type checks of objects that exist only on Apple's systems.
#if canImport(Network)
internal import Foundation
public import Wire

extension VendorToken.Environment {
    /// Returns Apple's environment of this app's tokens, from the provisioning profile in the app's bundle.
    ///
    /// The simulator has no profile; there the environment is `sandbox`.
    ///
    /// - Throws: the errors of `init(provisioningProfile:)`.
    public static func ofApp() throws(LongwireClientError) -> VendorToken.Environment {
        #if targetEnvironment(simulator)
        return .sandbox
        #else
        #if os(macOS)
        let path = Bundle.main.bundlePath + "/Contents/embedded.provisionprofile"
        #else
        let path = Bundle.main.bundlePath + "/embedded.mobileprovision"
        #endif
        return try VendorToken.Environment(
            provisioningProfile: FileManager.default.contents(atPath: path).map { Array($0) })
        #endif
    }
}

#if canImport(ObjectiveC)
/// Returns whether the value is a Boolean object.
///
/// A cast to `Bool` also succeeds for the numbers 0 and 1.
func isBooleanObject(_ value: Any) -> Bool { CFGetTypeID(value as AnyObject) == CFBooleanGetTypeID() }

func isNullObject(_ value: Any) -> Bool { value is NSNull }
#endif
#endif
