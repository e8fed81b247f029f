package import Delivery
package import Wire

/// What an alias names: up to ten devices, in no particular order; none when nobody has it.
package struct ResolvedAlias: Sendable, Equatable {
    package var alias: String
    package var devices: [DeviceID]
    package init(alias: String, devices: [DeviceID]) { (self.alias, self.devices) = (alias, devices) }
}

/// Where a push to an alias learns whom it is for: the seam to the directory.
///
/// One a loop, confined to it; its implementation asks the loops that own the aliases.
package protocol AliasResolver: AnyObject {
    /// Looks up every alias of an app, in the order given.
    ///
    /// `aliases` are distinct, at most a list call's bound, each a valid alias. `completion` is called once on the same
    /// loop, within this call or later; with `nil` when something could not be read, so that the caller is told to come
    /// back.
    func resolve(_ aliases: [AliasName], of app: AppKey, completion: @escaping ([ResolvedAlias]?) -> Void)
}
