// The app's provisioning profile, and kinds of objects that only Apple's systems have.
#if canImport(Network)
internal import Foundation
public import Wire

extension VendorToken.Environment {
    /// Reads Apple's environment for this app's tokens from the profile in its bundle.
    ///
    /// In the simulator, which has no profile, the environment is `sandbox`.
    ///
    /// - Throws: as `init(provisioningProfile:)`.
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
/// Whether the value is a Boolean object: the system also converts the numbers 0 and 1 to `Bool`.
func isBooleanObject(_ value: Any) -> Bool { CFGetTypeID(value as AnyObject) == CFBooleanGetTypeID() }

func isNullObject(_ value: Any) -> Bool { value is NSNull }
#endif
#endif
