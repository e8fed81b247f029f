internal import Delivery
internal import Directory
internal import PushAPI
internal import Wire

/// Resolves aliases to devices, by a directory operation.
final class DirectoryAliases: AliasResolver {
    private unowned let owner: EventLoopHost

    init(_ owner: EventLoopHost) { self.owner = owner }

    func resolve(_ names: [AliasName], of app: AppKey, completion: @escaping ([ResolvedAlias]?) -> Void) {
        let isTaken = owner.directoryHandler.run(.resolve(names), app: app) { operation in
            guard operation.outcomes.allSatisfy({ $0 == .done }) else { return completion(nil) }
            completion(
                zip(names, operation.members).map { ResolvedAlias(alias: $0.text, devices: $1.map(\.cid)) })
        }
        if !isTaken { completion(nil) }
    }
}
