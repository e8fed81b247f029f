/// The endpoints of the admin listener, as in `PublicEndpoint`.
package enum AdminEndpoint: Sendable, Hashable, CaseIterable {
    case lease, results, receipts, extend, message, apps, device, push, metrics, metricHistory, health, healthz, readyz
    case cluster, clusterDrain, clusterMove
    case devices, deviceMessages, devicePurge, deviceReplay, deviceDisconnect, deviceUnblacklist
    case alias, task, taskMessage, request, jobs
    case backup, backupState
    case appCreate, app, appChange, appDelete, appRotate, appEnable, appDisable
    case upstream, upstreamAck, events, eventsAck
    case drain, drainState
    case signIn

    /// The accepted query parameters; `nil` if any are ignored.
    package var queryNames: [StaticString]? {
        switch self {
        case .devices: ["after", "limit"]
        case .deviceMessages, .jobs: ["limit"]
        case .alias: ["alias_type"]
        case .upstream, .events: ["after", "max", "waitSeconds"]
        // Load balancers and supervisors may add parameters.
        case .healthz, .readyz: nil
        default: []
        }
    }

    package static let table = RouteTable<AdminEndpoint>([
        .init("/v1/handoff/lease", [.post(.lease)]),
        .init("/v1/handoff/results", [.post(.results)]),
        .init("/v1/handoff/receipts", [.post(.receipts)]),
        .init("/v1/handoff/extend", [.post(.extend)]),
        .init("/v1/messages/{msgId}", [.get(.message)]),
        .init("/v1/apps", [.get(.apps), .post(.appCreate)]),
        .init("/v1/apps/{appId}", [.get(.app), .patch(.appChange), .delete(.appDelete)]),
        .init("/v1/apps/{appId}/rotate", [.post(.appRotate)]),
        .init("/v1/apps/{appId}/enable", [.post(.appEnable)]),
        .init("/v1/apps/{appId}/disable", [.post(.appDisable)]),
        .init("/v1/apps/{appId}/devices/{cid}", [.get(.device)]),
        .init("/v1/apps/{appId}/push", [.post(.push)]),
        .init("/v1/apps/{appId}/devices", [.get(.devices)]),
        .init("/v1/apps/{appId}/devices/{cid}/messages", [.get(.deviceMessages)]),
        .init("/v1/apps/{appId}/devices/{cid}/purge", [.post(.devicePurge)]),
        .init("/v1/apps/{appId}/devices/{cid}/replay", [.post(.deviceReplay)]),
        .init("/v1/apps/{appId}/devices/{cid}/disconnect", [.post(.deviceDisconnect)]),
        .init("/v1/apps/{appId}/devices/{cid}/unblacklist", [.post(.deviceUnblacklist)]),
        .init("/v1/apps/{appId}/aliases/{alias}", [.get(.alias)]),
        .init("/v1/apps/{appId}/tasks/{taskId}", [.get(.task)]),
        .init("/v1/apps/{appId}/tasks/{taskId}/devices/{cid}", [.get(.taskMessage)]),
        .init("/v1/apps/{appId}/requests/{requestId}", [.get(.request)]),
        .init("/v1/apps/{appId}/upstream", [.get(.upstream)]),
        .init("/v1/apps/{appId}/upstream/ack", [.post(.upstreamAck)]),
        .init("/v1/apps/{appId}/events", [.get(.events)]),
        .init("/v1/apps/{appId}/events/ack", [.post(.eventsAck)]),
        .init("/v1/handoff/jobs", [.get(.jobs)]),
        .init("/v1/cluster", [.get(.cluster)]),
        .init("/v1/cluster/drain", [.post(.clusterDrain)]),
        .init("/v1/cluster/move", [.post(.clusterMove)]),
        .init("/v1/backup", [.get(.backupState), .post(.backup)]),
        .init("/v1/sign-in", [.post(.signIn)]),
        .init("/v1/drain", [.get(.drainState), .post(.drain)]),
        .init("/metrics", [.get(.metrics)]),
        .init("/v1/metrics/history", [.get(.metricHistory)]),
        .init("/v1/health", [.get(.health)]),
        .init("/healthz", [.get(.healthz)]),
        .init("/readyz", [.get(.readyz)]),
    ])
}
