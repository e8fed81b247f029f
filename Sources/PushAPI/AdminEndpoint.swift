/// What the admin listener serves; as `PublicEndpoint`.
package enum AdminEndpoint: Sendable, Hashable, CaseIterable {
    case lease, results, extend, message, device, metrics, healthz, readyz
    case cluster, clusterDrain, clusterMove

    package static let table = RouteTable<AdminEndpoint>([
        .init("/v1/handoff/lease", [.post(.lease)]),
        .init("/v1/handoff/results", [.post(.results)]),
        .init("/v1/handoff/extend", [.post(.extend)]),
        .init("/v1/messages/{msgId}", [.get(.message)]),
        .init("/v1/apps/{appId}/devices/{cid}", [.get(.device)]),
        .init("/v1/cluster", [.get(.cluster)]),
        .init("/v1/cluster/drain", [.post(.clusterDrain)]),
        .init("/v1/cluster/move", [.post(.clusterMove)]),
        .init("/metrics", [.get(.metrics)]),
        .init("/healthz", [.get(.healthz), .head(.healthz)]),
        .init("/readyz", [.get(.readyz), .head(.readyz)]),
    ])
}
