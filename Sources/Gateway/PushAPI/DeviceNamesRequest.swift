package import Delivery
package import Directory
package import Wire

/// A device's request about its own aliases and tags, with valid names.
package enum DeviceNamesRequest: Sendable, Equatable {
    /// A query of the device's tags and of its alias of one type, given as the type's digest.
    case query(aliasType: UInt64)
    case bind(AliasName)
    case unbind(AliasName)
    case setTags([TagName])
    case addTags([TagName])
    case removeTags([TagName])

    /// Validates the names of a request.
    ///
    /// - Throws: The reason of the refusal.
    package init(_ names: DeviceNames, app: AppKey, limits: UserLimits) throws(RefusedNames) {
        let reader = NameReader(app: app, limits: limits)
        do throws(GetuiFault) {
            let type = try NameReader.aliasType(names.aliasType, limits)
            self =
                switch names.operation {
                case .query: .query(aliasType: AliasName(app: app, text: "", type: type).type)
                case .bindAlias: .bind(try reader.alias(names.alias, type: type))
                case .unbindAlias: .unbind(try reader.alias(names.alias, type: type))
                case .setTags: .setTags(try Self.tags(names.tags, reader))
                case .addTags: .addTags(try Self.tags(names.tags, reader))
                case .removeTags: .removeTags(try Self.tags(names.tags, reader))
                }
        } catch {
            throw RefusedNames(reason: error.message)
        }
    }

    private static func tags(_ texts: [String], _ reader: NameReader) throws(GetuiFault) -> [TagName] {
        var tags = TagSet(reader.limits)
        for (index, text) in texts.enumerated() {
            do throws(GetuiFault) {
                try tags.add(reader.tag(text))
            } catch {
                var fault = error
                fault.message += ": tags[\(index)] \(text.prefix(32))"
                throw fault
            }
        }
        return tags.tags
    }

    /// The permission in the app's setting `deviceMay` that the request needs; `nil` if any permission suffices.
    package var permission: DevicePermission? {
        switch self {
        case .query: nil
        case .bind, .unbind: .alias
        case .setTags, .addTags, .removeTags: .tags
        }
    }

    /// Returns the necessary change for a device, or `nil` if the device already has the requested names.
    package func work(of device: DevicePlace, as it: DeviceDetail) -> DirectoryOperation.Work? {
        switch self {
        case .query: return nil
        case .bind(let alias):
            return it.aliases.contains(alias) ? nil : .bind([AliasItem(device: device, name: alias)])
        case .unbind(let alias):
            return it.aliases.contains(alias) ? .unbind([AliasItem(device: device, name: alias)]) : nil
        case .setTags(let tags): return Set(tags) == Set(it.tags) ? nil : .each([device], .replaceTags(tags))
        case .addTags(let tags):
            return tags.allSatisfy(it.tags.contains) ? nil : .each([device], .addTags(tags))
        case .removeTags(let tags):
            return tags.contains(where: it.tags.contains) ? .each([device], .removeTags(tags)) : nil
        }
    }
}

/// A refusal of a device's names, with its reason.
package struct RefusedNames: Error, Sendable { package var reason: String }

/// A permission of devices to change their own names.
package enum DevicePermission: String, Sendable, CaseIterable { case alias, tags }
