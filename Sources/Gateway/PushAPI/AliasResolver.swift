package import Delivery
package import Wire

/// The devices of an alias, in no particular order: none, or up to `limits.devicesPerAlias`.
package struct ResolvedAlias: Sendable, Equatable {
    package var alias: String
    package var devices: [DeviceID]
    package init(alias: String, devices: [DeviceID]) { (self.alias, self.devices) = (alias, devices) }
}

/// Resolves aliases to devices through the directory.
///
/// Confined to one event loop. The implementation asks the loops that own the aliases.
package protocol AliasResolver: AnyObject {
    /// Looks up aliases of an app, in the given order.
    ///
    /// `aliases` are distinct and valid, and no more than a list call allows. `completion` is called once on the same loop,
    /// possibly before the return. It receives `nil` if a row cannot be read; the caller must then be answered busy.
    func resolve(_ aliases: [AliasName], of app: AppKey, completion: @escaping ([ResolvedAlias]?) -> Void)
}
