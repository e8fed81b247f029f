// The device's alias and tags for apps in Objective-C. This file only converts types, as LWClient.swift does.
#if canImport(ObjectiveC)
internal import Foundation

// Completions run on the main thread. Their error is `nil` after success. `LongwireClient.bindAlias` documents the rules.
extension LWClient {
    /// Binds an alias to this device; `type` is the kind of the alias, or empty.
    @objc(bindAlias:type:completion:) public func bindAlias(
        _ alias: String, type: String, completion: @escaping @MainActor @Sendable ((any Error)?) -> Void
    ) {
        change(completion) { client async throws(LongwireClientError) in try await client.bindAlias(alias, type: type) }
    }

    /// Binds the alias in the `sub` of a token of the app's server.
    @objc(bindAliasWithToken:completion:) public func bindAlias(
        token: String, completion: @escaping @MainActor @Sendable ((any Error)?) -> Void
    ) {
        change(completion) { client async throws(LongwireClientError) in try await client.bindAlias(token: token) }
    }

    /// Unbinds an alias from this device; other devices keep it.
    @objc(unbindAlias:type:completion:) public func unbindAlias(
        _ alias: String, type: String, completion: @escaping @MainActor @Sendable ((any Error)?) -> Void
    ) {
        change(completion) { client async throws(LongwireClientError) in
            try await client.unbindAlias(alias, type: type)
        }
    }

    /// Replaces all tags of this device.
    @objc(setTags:completion:) public func setTags(
        _ tags: [String], completion: @escaping @MainActor @Sendable ((any Error)?) -> Void
    ) {
        change(completion) { client async throws(LongwireClientError) in try await client.setTags(tags) }
    }

    /// Adds tags to this device.
    @objc(addTags:completion:) public func addTags(
        _ tags: [String], completion: @escaping @MainActor @Sendable ((any Error)?) -> Void
    ) {
        change(completion) { client async throws(LongwireClientError) in try await client.addTags(tags) }
    }

    /// Removes tags from this device.
    @objc(removeTags:completion:) public func removeTags(
        _ tags: [String], completion: @escaping @MainActor @Sendable ((any Error)?) -> Void
    ) {
        change(completion) { client async throws(LongwireClientError) in try await client.removeTags(tags) }
    }

    /// Returns this device's alias of a type, or `nil`, and its tags.
    @objc(ownNamesOfType:completion:) public func ownNames(
        aliasType: String, completion: @escaping @MainActor @Sendable (String?, [String], (any Error)?) -> Void
    ) {
        Task { [client] in
            do throws(LongwireClientError) {
                let names = try await client.ownNames(aliasType: aliasType)
                completion(names.alias, names.tags, nil)
            } catch {
                completion(nil, [], Self.error(error))
            }
        }
    }

    private func change(
        _ completion: @escaping @MainActor @Sendable ((any Error)?) -> Void,
        _ call: @escaping @Sendable (LongwireClient) async throws(LongwireClientError) -> Void
    ) {
        Task { [client] in
            do throws(LongwireClientError) {
                try await call(client)
                completion(nil)
            } catch {
                completion(Self.error(error))
            }
        }
    }
}
#endif
