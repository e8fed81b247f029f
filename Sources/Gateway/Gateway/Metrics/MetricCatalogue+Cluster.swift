internal import MessageStore

extension MetricCatalogue {
    /// The metrics of the cluster and its Redis servers; absent without `store.redis`.
    static let cluster: [Metric] = [
        Metric(
            "longwire_cluster_members", .gauge, "Gateways of the cluster, including this one.", .cluster { $0.members }
        ),
        Metric(
            "longwire_cluster_parts", .gauge,
            "Parts of the cluster, by owner: this gateway, another one, or none known to this gateway.",
            .cluster([.state: "owned"]) { $0.ownedParts }, .cluster([.state: "elsewhere"]) { $0.otherParts },
            .cluster([.state: "unowned"]) { $0.partsWithoutOwner }),
        Metric(
            "longwire_cluster_parts_taken_total", .counter,
            "Parts that this gateway took: by handover from another one, or by takeover.",
            .cluster([.reason: "takeover"]) { $0.counts.takenOver },
            .cluster([.reason: "handover"]) { $0.counts.received }),
        Metric(
            "longwire_cluster_parts_given_total", .counter, "Parts that this gateway gave to another one.",
            .cluster { $0.counts.given }),
        Metric(
            "longwire_cluster_parts_lost_total", .counter,
            "Parts that this gateway lost to a successor, which fenced it.", .cluster { $0.counts.lost }),
        Metric(
            "longwire_cluster_part_open_failures_total", .counter, "Attempts to open a part's log that failed.",
            .cluster { $0.counts.openFailures }),
        Metric(
            "longwire_cluster_lease_age_seconds", .gauge, unit: .milliseconds,
            "Time since this gateway renewed its lease in Redis; beyond two seconds it has run out.",
            .cluster { $0.leaseAge }),
        Metric(
            "longwire_cluster_leases_lapsed_total", .counter, "Times that this gateway's lease ran out.",
            .cluster { $0.counts.lapsedLeases }),
        Metric(
            "longwire_cluster_register_seconds", .histogram, unit: .microseconds,
            "Round trip of a lease's renewal in Redis.", .histogram { $0.cluster?.registerTimes }),
        Metric(
            "longwire_cluster_register_failures_total", .counter, "Calls of the register in Redis that failed.",
            .cluster { $0.registerFailures }),
        Metric(
            "longwire_cluster_clock_offset_seconds", .gauge, unit: .milliseconds,
            "This machine's clock minus that of the Redis server with the register; 0 within the round trip.",
            .cluster { $0.clockOffset }),
        Metric(
            "longwire_cluster_link_up", .gauge, "1 while this gateway can ask the other one, by address.",
            .links { $0.isUp ? 1 : 0 }),
        Metric(
            "longwire_cluster_link_sent_bytes_total", .counter, unit: .bytes,
            "Bytes sent to the other gateway, by address.", .links { $0.sentBytes }),
        Metric(
            "longwire_cluster_link_received_bytes_total", .counter, unit: .bytes,
            "Bytes received from the other gateway, by address.", .links { $0.receivedBytes }),
        Metric(
            "longwire_cluster_link_refusals_total", .counter,
            "Batches of messages that did not go to the other gateway because its link was down or full, by address.",
            .links { $0.refusedBatches }),
        Metric(
            "longwire_cluster_busy_answers_total", .counter,
            "Questions to other gateways that a link answered as busy.", .cluster { $0.traffic.busyAnswers }),
        Metric(
            "longwire_cluster_peers_refused_total", .counter,
            "Refused connections to the cluster's port.",
            .cluster { $0.traffic.refusedPeers }),
        Metric(
            "longwire_cluster_news_dropped_total", .counter,
            "Notifications to other gateways dropped because their link was down or full.",
            .cluster { $0.traffic.droppedNews }),
        Metric(
            "longwire_cluster_relays_total", .counter,
            "Connections of devices relayed to another gateway or by another one.", .cluster { $0.traffic.relays }),
        Metric(
            "longwire_redis_read_seconds", .histogram, unit: .microseconds, "Round trip of a cold read in Redis.",
            .histogram { figures in
                figures.cluster.map { _ in
                    MetricHistogram(powersOfTwo: figures.store.readTimes, sum: figures.store.totalReadTime)
                }
            }),
        Metric(
            "longwire_redis_commit_failures_total", .counter,
            "Group commits that Redis refused or did not answer, and that were tried again.",
            .process { figures in figures.cluster.map { _ in figures.store.failedCommitCount } }),
    ]
}
