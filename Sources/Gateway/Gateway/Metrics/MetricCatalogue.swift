internal import Quotas
internal import Delivery
internal import EventLoops
internal import MessageStore
internal import Platform
internal import Wire

/// The metrics of `/metrics`, in the order of the page and of docs/use/Operations.md.
///
/// A new metric needs an entry here and a row in that page. `MetricCatalogueTests` fails if a value of the shard or the store has
/// no entry.
package enum MetricCatalogue {
    package static let all =
        process + kernel + connections + messages + broadcasts + handoff + hook + feeds + http + loops + store
        + retention
        + cluster + apps

    private static let process: [Metric] = [
        Metric(
            "longwire_build_info", .gauge, "Always 1; the labels have the version.",
            .process([.version: Version.text]) { _ in 1 }),
        Metric(
            "longwire_uptime_seconds", .gauge, unit: .milliseconds, "Seconds since the start.",
            .process { $0.uptimeMilliseconds }),
        Metric(
            "longwire_configuration_version", .gauge,
            "Number of the configuration in force; one more with each reload.",
            .process { $0.status.configurationVersion }),
        Metric(
            "longwire_reloads_total", .counter, "Reloads by result.",
            .process([.result: "applied"]) { $0.status.reloadsApplied },
            .process([.result: "refused"]) { $0.status.reloadsRefused }),
        Metric(
            "longwire_log_lines_lost_total", .counter, "Log lines lost because stderr was too slow.",
            .process { $0.lostLogLines }),
        Metric(
            "longwire_clock_offset_seconds", .gauge, unit: .milliseconds, "Wall clock minus gateway time.",
            .process { $0.status.clockOffset }),
        Metric(
            "longwire_clock_step_refused", .gauge,
            "1 while the wall clock stands more than an hour ahead and is not followed.",
            .process { $0.status.isClockStepRefused ? 1 : 0 }),
    ]

    /// The kernel's values for the process under their usual Prometheus names; read every ten seconds, except CPU time.
    private static let kernel: [Metric] = [
        Metric(
            "process_cpu_seconds_total", .counter, unit: .nanoseconds, "CPU time of all threads.",
            .process { $0.cpuNanoseconds }),
        Metric(
            "process_resident_memory_bytes", .gauge, unit: .bytes, "Memory in use.",
            .process { $0.status.process.residentByteCount }),
        Metric(
            "process_virtual_memory_bytes", .gauge, unit: .bytes, "Address space in use.",
            .process { $0.status.process.virtualByteCount }),
        Metric(
            "process_open_fds", .gauge,
            "Open descriptors of the process, or of its first table where loops have their own.",
            .process { $0.status.process.descriptorCount }),
        Metric("process_max_fds", .gauge, "The limit of open files.", .process { _ in DescriptorTable.capacity }),
        Metric("process_threads", .gauge, "Threads.", .process { $0.status.process.threadCount }),
        Metric(
            "process_start_time_seconds", .gauge, unit: .milliseconds, "Unix time of the start.",
            .process { $0.status.startedAt }),
        Metric(
            "longwire_disk_free_bytes", .gauge, unit: .bytes,
            "Room for the gateway on the file system of store.path.", .process { $0.status.disk?.free }),
        Metric(
            "longwire_disk_bytes", .gauge, unit: .bytes, "Size of the file system of store.path.",
            .process { $0.status.disk?.all }),
        Metric(
            "longwire_certificate_end_seconds", .gauge, unit: .seconds,
            "Unix time at which a listener's certificate ends, or the last of its clientAuthorities.",
            GatewayConfiguration.listeners.flatMap { listener in
                ListenerExpiry.Part.allCases.map { part in
                    let name = ListenerExpiry.name(listener.name, part)
                    return .process([.listener: name]) { figures in
                        figures.status.certificates.first { $0.name == name }?.end
                    }
                }
            }),
        Metric(
            "longwire_limit", .gauge, "Each number of limits in force, under its name in the configuration.",
            LimitKey.all.map { key in .process([.name: key.name]) { key.read($0.limits) } }),
    ]

    private static let connections: [Metric] = [
        Metric(
            "longwire_connections", .gauge, "Open connections of devices and of senders, by listener.",
            .process([.listener: "device"]) { $0.deviceConnections },
            .process([.listener: "senders"]) { $0.senderConnections }),
        Metric(
            "longwire_http_connections", .gauge, "Open HTTP connections, by listener.",
            .sum([.listener: "http"]) { $0.httpConnections }, .sum([.listener: "admin"]) { $0.adminConnections }),
        Metric(
            "longwire_connection_limit", .gauge,
            "The limit of connections in force, by listener: as configured, as far as there are descriptors.",
            .process([.listener: "device"]) { $0.status.connections.devices },
            .process([.listener: "senders"]) { $0.status.connections.senders },
            .process([.listener: "http"]) { $0.status.connections.http },
            .process([.listener: "admin"]) { $0.status.connections.admin }),
        Metric(
            "longwire_connections_displaced_total", .counter,
            "Idle connections closed to make room for a new one, by listener.",
            .counter(.deviceDisplaced, [.listener: "device"]), .counter(.senderDisplaced, [.listener: "senders"]),
            .sum([.listener: "http"]) { $0.httpDisplaced }, .sum([.listener: "admin"]) { $0.adminDisplaced }),
        Metric(
            "longwire_connections_turned_away_total", .counter,
            "Connections refused because no other could be replaced, by listener.",
            .counter(.deviceTurnedAway, [.listener: "device"]), .counter(.senderTurnedAway, [.listener: "senders"]),
            .sum([.listener: "http"]) { $0.httpTurnedAway }, .sum([.listener: "admin"]) { $0.adminTurnedAway }),
        Metric(
            "longwire_draining", .gauge, "1 while the gateway disconnects its devices.",
            .process { $0.isEmptying ? 1 : 0 }),
        Metric(
            "longwire_newcomers_waiting", .gauge, "Devices that have connected and wait to be accepted or read.",
            .sum { $0.waitingNewcomers }),
        Metric(
            "longwire_newcomers_waited_total", .counter,
            "Devices that waited because more connected than a loop accepts in a turn.", .counter(.newcomersWaited)),
        Metric(
            "longwire_newcomers_sent_away_total", .counter,
            "Devices closed because they would have waited longer than limits.welcomeWaitMilliseconds.",
            .counter(.newcomersSentAway)),
        Metric(
            "longwire_newcomer_cost_seconds", .gauge, unit: .nanoseconds,
            "Loop time to accept one device, TLS included; the largest of the loops.",
            .largest { $0.newcomerCost }),
        Metric(
            "longwire_tls_handshakes_total", .counter,
            "Finished TLS handshakes of clients, by result, without those of other gateways of a cluster.",
            .counter(.handshakeDone, [.result: "done"]), .counter(.handshakeRefused, [.result: "refused"]),
            .counter(.handshakeDisplaced, [.result: "displaced"]), .counter(.handshakeTimedOut, [.result: "timeout"]),
            .counter(.handshakeForCertificate, [.result: "clientCertificate"]),
            .counter(.handshakeForPeer, [.result: "refusedByClient"]), .counter(.handshakeForEnd, [.result: "left"]),
            .counter(.handshakeForForm, [.result: "form"])),
        Metric(
            "longwire_tls_handshakes_waited_total", .counter,
            "TLS handshakes of senders and HTTP clients that had to wait for their turn.", .counter(.handshakeWaited)),
        Metric(
            "longwire_tls_handshakes_waiting", .gauge, "Connections that wait for the turn of their TLS handshake.",
            .sum { $0.waitingHandshakes }),
        Metric(
            "longwire_tls_handshakes_under_way", .gauge, "TLS handshakes of senders and HTTP clients under way.",
            .sum { $0.gatedHandshakes }),
        Metric(
            "longwire_devices_relayed_total", .counter,
            "Connections of devices passed on to the gateway that serves them.", .counter(.devicesRelayed)),
        Metric(
            "longwire_proxy_headers_refused_total", .counter,
            "Connections of balancers that ended without a good PROXY header.", .counter(.proxyHeadersRefused)),
        Metric(
            "longwire_balancer_probes_total", .counter,
            "Connections of balancers that ended without a byte, as health checks do.", .counter(.balancerProbes)),
        Metric(
            "longwire_address_refusals_total", .counter,
            "Connections and requests refused by a limit per address, by kind.",
            AddressRefusal.Kind.allCases.map { kind in
                .process([.kind: kind.label]) { $0.addressRefusals[kind] ?? 0 }
            }),
        Metric(
            "longwire_flapping_welcomes_total", .counter,
            "Welcomes of devices that reconnect too often; the next Hello of each is refused for a time.",
            .counter(.flappingNoted)),
        Metric(
            "longwire_flapping_refusals_total", .counter,
            "Hellos refused because their device reconnects too often.", .counter(.flappingRefused)),
        Metric(
            "longwire_quota_refusals_total", .counter,
            "Devices and calls refused because their app has used up a quota, by quota; the log names the app.",
            Quota.allCases.map { .counter(.over($0), [.kind: $0.key]) }),
        Metric(
            "longwire_connections_accepted_total", .counter, "Accepted connections by listener.",
            .counter(.deviceAccepted, [.listener: "device"]), .counter(.senderAccepted, [.listener: "senders"])),
        Metric(
            "longwire_connections_closed_total", .counter, "Connections closed, by reason.",
            .counter(.closedByPeer, [.reason: "peer"]), .counter(.closedForHeartbeat, [.reason: "heartbeat"]),
            .counter(.closedForHello, [.reason: "helloTimeout"]),
            .counter(.closedForSlowReader, [.reason: "slowReader"]),
            .counter(.closedForStop, [.reason: "shuttingDown"]),
            .counter(.closedForOverload, [.reason: "overloaded"]), .counter(.closedForClock, [.reason: "clockSkew"]),
            .counter(.closedForProof, [.reason: "authentication"]),
            .counter(.closedForReplacement, [.reason: "replaced"]),
            .counter(.closedForProtocol, [.reason: "protocol"]), .counter(.closedForStore, [.reason: "store"]),
            .counter(.closedOtherwise, [.reason: "other"])),
        Metric(
            "longwire_sessions", .gauge, "Authenticated sessions by role.",
            .sum([.role: "device"]) { $0.deviceSessions }, .sum([.role: "sender"]) { $0.senderSessions }),
        Metric(
            "longwire_session_timeouts_total", .counter,
            "Device sessions closed after silence: for 1.5 heartbeats, or after a missed ack (suspect).",
            .sum([.reason: "heartbeat"]) { $0.shard.heartbeatTimeouts },
            .sum([.reason: "suspect"]) { $0.shard.suspectTimeouts }),
        Metric(
            "longwire_hellos_refused_total", .counter,
            "Hellos that the device's loop refused: unknown cid, wrong proof or time, or an unreadable record.",
            .sum { $0.shard.helloRefused }),
        Metric(
            "longwire_devices_registered_total", .counter, "Devices registered.", .sum { $0.shard.registrations }),
        Metric(
            "longwire_devices_reachable", .gauge,
            "Devices that get messages live: connected, app running, neither silenced nor suspect.",
            .sum { $0.shard.reachable }),
        Metric(
            "longwire_devices_loaded", .gauge, "Device records in memory; limits.cachedDevices bounds them by loop.",
            .sum { $0.shard.loadedDevices }),
        Metric(
            "longwire_devices_in_memory", .gauge,
            "Devices with a record, a message, a job or a queued command in memory.",
            .sum { $0.shard.deviceSlots }),
        Metric(
            "longwire_device_queues", .gauge, "Devices with messages queued, in flight or being read.",
            .sum { $0.shard.deviceQueues }),
        Metric(
            "longwire_received_bytes_total", .counter, unit: .bytes, "Bytes received from devices and senders.",
            .counter(.bytesReceived)),
        Metric(
            "longwire_sent_bytes_total", .counter, unit: .bytes, "Bytes sent to devices and senders.",
            .counter(.bytesSent)),
    ]

    private static let messages: [Metric] = [
        Metric(
            "longwire_messages_accepted_total", .counter, "Messages accepted: durable and answered.",
            .sum { $0.shard.accepted }),
        Metric(
            "longwire_messages_pending", .gauge, "Messages accepted and not ended, on disk or in memory.",
            .sum { $0.shard.pending }),
        Metric(
            "longwire_messages_in_memory", .gauge, "Messages in memory: young ones, and those sent in a session.",
            .sum { $0.shard.messagesInMemory }),
        Metric(
            "longwire_publishes_refused_total", .counter, "Publishes refused, by reason; nothing of them is kept.",
            .counter(.refusedUnknownDevice, [.reason: "unknownDevice"]),
            .counter(.refusedQueueFull, [.reason: "queueFull"]), .counter(.refusedNoToken, [.reason: "noToken"]),
            .counter(.refusedConflict, [.reason: "requestConflict"]),
            .counter(.refusedPending, [.reason: "requestPending"]), .counter(.refusedBusy, [.reason: "busy"]),
            .counter(.refusedStore, [.reason: "storeFailed"]), .counter(.refusedIgnored, [.reason: "ignored"]),
            .counter(.refusedStopped, [.reason: "stopped"]), .counter(.refusedInvalid, [.reason: "invalid"])),
        Metric(
            "longwire_publishes_over_share_total", .counter,
            "Publishes refused as busy because room was short and their app had taken more than its share.",
            .sum { $0.shard.refusedOverShare }),
        Metric(
            "longwire_requests_repeated_total", .counter,
            "Requests with a request id that was answered before; they got the same answer again.",
            .sum { $0.shard.repeatedRequests }),
        Metric(
            "longwire_commands_waiting", .gauge,
            "Commands that wait for a device's record; limits.waitingCommands bounds them by loop.",
            .sum { $0.shard.waitingCommands }),
        Metric(
            "longwire_effects_waiting", .gauge, "Answers and deliveries that wait for the journal's sync.",
            .sum { $0.shard.pendingEffects }),
        Metric(
            "longwire_messages_ended_total", .counter, "Messages that reached their final state, by state.",
            FinalState.allCases.map { state in .sum([.state: "\(state)"]) { $0.shard.ended(state) } }),
        Metric(
            "longwire_delivers_sent_total", .counter,
            "Deliver frames sent; more than the messages when sessions end before their acks.",
            .counter(.deliversSent)),
        Metric(
            "longwire_delivers_repeated_total", .counter,
            "Deliveries of messages that had been sent before and were not acked.",
            .sum { $0.shard.deliversResent }),
        Metric(
            "longwire_ack_deadlines_missed_total", .counter,
            "Messages sent to a device that did not ack them in time.",
            .sum { $0.shard.missedAckDeadlines }),
        Metric(
            "longwire_acks_received_total", .counter, "Messages settled by acks.",
            .sum { $0.shard.ended(.delivered) + $0.shard.ended(.deliveredOffline) }),
        Metric(
            "longwire_acks_ignored_total", .counter, "Sequences in acks that match no message sent in the session.",
            .sum { $0.shard.acksIgnored }),
        Metric(
            "longwire_acks_above_highest_total", .counter,
            "Acks above the highest sequence ever given; each closed its session.",
            .sum { $0.shard.acksAboveHighest }),
        Metric(
            "longwire_feedback_ignored_total", .counter,
            "Feedback that was not recorded: an unknown message or action, or too many.",
            .sum { $0.shard.feedbackIgnored }),
        Metric(
            "longwire_receipt_events_total", .counter, "Events that devices reported over HTTPS, by result.",
            .counter(.receiptRecorded, [.result: "recorded"]), .counter(.receiptRepeated, [.result: "repeated"]),
            .counter(.receiptIgnored, [.result: "ignored"]), .counter(.receiptRetry, [.result: "retry"])),
        Metric(
            "longwire_receipts_refused_total", .counter, "Receipts of which no event was looked at, by reason.",
            .counter(.receiptRefused, [.reason: "proof"]), .counter(.receiptSkewed, [.reason: "clockSkew"]),
            .counter(.receiptBusy, [.reason: "busy"])),
        Metric(
            "longwire_alerted_twice_total", .counter, "Messages acked and alerted by the vendor as well.",
            MetricSample.vendors { $0.alertedTwice }),
    ]

    private static let broadcasts: [Metric] = [
        // Every loop has all live broadcasts, so a sum would count them several times.
        Metric(
            "longwire_broadcasts_live", .gauge, "Broadcasts that are still to be delivered or closed.",
            .largest { $0.shard.liveBroadcasts }),
        Metric(
            "longwire_broadcast_messages_total", .counter,
            "Messages made from broadcasts, one for each device.",
            .sum { $0.shard.broadcastMessages }),
        Metric(
            "longwire_broadcast_delivers_total", .counter, "Deliveries of broadcasts, repeated ones included.",
            .sum { $0.shard.broadcastDelivers }),
        Metric(
            "longwire_broadcast_enumerated_total", .counter,
            "Unreachable devices to which a broadcast's scan gave a job for the vendor.",
            .sum { $0.shard.broadcastEnumerated }),
        Metric(
            "longwire_broadcast_passed_total", .counter,
            "Devices that a broadcast passed over: by their tags, the blacklist or a long absence.",
            .sum { $0.shard.broadcastPassed }),
    ]

    private static let handoff: [Metric] = [
        Metric(
            "longwire_handoff_jobs_created_total", .counter, "Handoff jobs created.",
            MetricSample.vendors { $0.jobsCreated }),
        Metric(
            "longwire_handoff_jobs_leased_total", .counter, "Handoff jobs leased.",
            MetricSample.vendors { $0.leasesGiven }),
        Metric(
            "longwire_handoff_results_total", .counter, "Results of handoff jobs, by outcome.",
            MetricSample.vendors([.outcome: "accepted"]) { $0.resultsAccepted }
                + MetricSample.vendors([.outcome: "retry"]) { $0.resultsRetry }
                + MetricSample.vendors([.outcome: "unsent"]) { $0.resultsUnsent }
                + MetricSample.vendors([.outcome: "rejected"]) { $0.resultsRejected }
                + MetricSample.vendors([.outcome: "badToken"]) { $0.resultsBadToken }
                + MetricSample.vendors([.outcome: "stale"]) { $0.resultsStale }),
        Metric(
            "longwire_handoff_leases_lapsed_total", .counter, "Leases that ran out without a result.",
            MetricSample.vendors { $0.leasesLapsed }),
        Metric(
            "longwire_handoff_jobs_exhausted_total", .counter,
            "Jobs given up after apps[].maxAttempts leases without success.",
            MetricSample.vendors { $0.jobsExhausted }),
        Metric(
            "longwire_handoff_jobs_due", .gauge, "Handoff jobs due and not leased, as far as they are in memory.",
            MetricSample.vendors { $0.dueJobs }),
        Metric(
            "longwire_handoff_jobs_held", .gauge,
            "Due jobs that wait because their device is reachable or silenced, as far as they are in memory.",
            MetricSample.vendors { $0.heldJobs }),
        Metric(
            "longwire_handoff_jobs_under_lease", .gauge, "Jobs leased now, without a result yet.",
            MetricSample.vendors { $0.leasedJobs }),
        Metric(
            "longwire_handoff_jobs_in_memory", .gauge, "Handoff jobs in memory, in any state.",
            .sum { $0.shard.jobsInMemory }),
        Metric(
            "longwire_handoff_long_polls", .gauge, "Sender services waiting for jobs.",
            .sum { $0.waitingLongPolls }),
    ]

    private static let hook: [Metric] = [
        Metric(
            "longwire_hook_healthy", .gauge,
            "1 while the hook's receiver answers, 0 while it fails; absent without a hook.",
            .process { $0.hook.map { $0.isHealthy ? 1 : 0 } }),
        Metric(
            "longwire_hook_failing_since_seconds", .gauge, unit: .seconds,
            "Unix time of the first failure since the last success; 0 while healthy.",
            .process { $0.hook.map { $0.failingSince ?? 0 } }),
        Metric(
            "longwire_hook_last_status", .gauge, "The hook's last HTTP status; 0 without an answer.",
            .process { $0.hook?.lastStatus }),
        Metric(
            "longwire_hook_attempts_total", .counter, "Requests to the hook, by result.",
            .process([.result: "answered"]) { $0.hook?.attemptsAnswered },
            .process([.result: "failed"]) { $0.hook?.attemptsFailed }),
        Metric(
            "longwire_hook_deliveries_total", .counter, "Finished batches for the hook, by result.",
            .process([.result: "answered"]) { $0.hook?.deliveriesAnswered },
            .process([.result: "givenUp"]) { $0.hook?.deliveriesGivenUp }),
        Metric(
            "longwire_hook_deliveries_held", .gauge,
            "Batches for the hook under way or waiting for their next attempt.",
            .process { $0.hook?.heldCount }),
    ]

    private static let feeds: [Metric] = [
        Metric(
            "longwire_upstream_messages_total", .counter, "Messages from devices, by result.",
            .sum([.result: "taken"]) { $0.shard.upstreamTaken },
            .sum([.result: "refused"]) { $0.shard.upstreamRefused }),
        Metric(
            "longwire_events_total", .counter, "Events written to their feed.", .sum { $0.shard.eventsTaken }),
        Metric(
            "longwire_events_lost_total", .counter,
            "Events not written: the feed's owner was unreachable for too long, or the app was unknown.",
            .sum { $0.shard.eventsLost }),
        Metric(
            "longwire_feed_items", .gauge,
            "Messages from devices and events that wait for an ack.", .sum { $0.shard.feedItems }),
        Metric(
            "longwire_feed_oldest_seconds", .gauge, unit: .milliseconds,
            "How long the oldest item that waits for an ack has waited.", .largest { Int($0.shard.longestFeedWait) }),
        Metric(
            "longwire_feed_items_missed_total", .counter,
            "Items dropped unread because they were too old or too many.", .sum { $0.shard.feedItemsMissed }),
        Metric(
            "longwire_webhooks_failing", .gauge, "Webhooks of feeds whose receiver fails now.",
            .process { $0.webhooks.values.count { !$0.isHealthy } }),
        Metric(
            "longwire_webhook_attempts_total", .counter, "Requests to webhooks of feeds, by result.",
            .process([.result: "answered"]) { $0.webhooks.values.reduce(0) { $0 &+ $1.attemptsAnswered } },
            .process([.result: "failed"]) { $0.webhooks.values.reduce(0) { $0 &+ $1.attemptsFailed } }),
    ]

    private static let http: [Metric] = [
        Metric(
            "longwire_http_requests_total", .counter, "HTTP requests, by listener and status.",
            .counter(.http2xx, [.listener: "http", .status: "2xx"]),
            .counter(.http4xx, [.listener: "http", .status: "4xx"]),
            .counter(.http5xx, [.listener: "http", .status: "5xx"]),
            .counter(.admin2xx, [.listener: "admin", .status: "2xx"]),
            .counter(.admin4xx, [.listener: "admin", .status: "4xx"]),
            .counter(.admin5xx, [.listener: "admin", .status: "5xx"])),
        Metric(
            "longwire_http_body_bytes", .gauge, unit: .bytes,
            "Bytes reserved for the bodies of HTTP requests under way.",
            .process { $0.bodyBytes }),
        Metric(
            "longwire_peer_bytes", .gauge, unit: .bytes,
            "Bytes held for peers besides requests: upstream messages and stream buffers.",
            .process([.kind: "upstream"]) { $0.upstreamBytes }, .process([.kind: "streams"]) { $0.streamBytes }),
        Metric(
            "longwire_peer_refusals_total", .counter,
            "Requests and upstream messages refused because the budget of peers' bytes was used up.",
            .process { UInt64(max(0, $0.budgetRefusals)) }),
        Metric(
            "longwire_peer_streams_closed_total", .counter,
            "Connections closed to free memory because their address held most bytes.",
            .process { UInt64(max(0, $0.budgetClosings)) }),
        Metric(
            "longwire_http_request_seconds", .histogram, unit: .microseconds,
            "From a whole HTTP request to its answer, without long polls.", .timer(.request)),
    ]

    private static let loops: [Metric] = [
        Metric("longwire_loop_turns_total", .counter, "Turns of the event loops.", .counter(.turns)),
        Metric(
            "longwire_publish_pauses_total", .counter,
            "Pauses of apps beyond their slices, while several apps publish and a loop has used its share of a core.",
            .counter(.publishPauses)),
        Metric(
            "longwire_mailbox_items", .gauge, "Items waiting in the loops' mailboxes.", .sum { $0.mailboxItems }),
        Metric(
            "longwire_mailbox_refusals_total", .counter, "Items refused because a mailbox was full.",
            .counter(.mailboxRefusals)),
    ]

    private static let store: [Metric] = [
        Metric("longwire_store_commits_total", .counter, "Group commits.", .process { $0.store.groupCount }),
        Metric(
            "longwire_store_commit_seconds_total", .counter, unit: .microseconds,
            "Time spent in writes and syncs of the journal.", .process { $0.store.totalCommitTime }),
        Metric(
            "longwire_store_longest_commit_seconds", .gauge, unit: .microseconds,
            "The slowest write and sync since the start.", .process { $0.store.longestCommit }),
        Metric(
            "longwire_store_group_commit_seconds", .histogram, unit: .microseconds,
            "Write and sync of one group in the journal.",
            .histogram { MetricHistogram(powersOfTwo: $0.store.commitTimes, sum: $0.store.totalCommitTime) }),
        Metric(
            "longwire_store_batches_total", .counter, "Batches in the group commits.",
            .process { $0.store.batchCount }),
        Metric(
            "longwire_store_largest_group_batches", .gauge, "Batches in the largest group commit since the start.",
            .process { $0.store.largestGroup }),
        Metric(
            "longwire_store_uncommitted_bytes", .gauge, unit: .bytes,
            "Bytes handed to the committer and not durable yet.",
            .process { $0.store.uncommittedByteCount }),
        Metric(
            "longwire_store_row_file_bytes", .gauge, unit: .bytes, "Size of the ordered store's files.",
            .process { $0.store.rowFileByteCount + $0.store.ephemeralFileByteCount }),
        Metric(
            "longwire_store_redis_bytes", .gauge, unit: .bytes, "Memory that the primaries of Redis use.",
            .process { $0.store.redisByteCount }),
        Metric(
            "longwire_store_redis_limit_bytes", .gauge, unit: .bytes,
            "Memory limit of the primaries; 0 if one of them has none.",
            .process { $0.store.redisByteLimit }),
        Metric(
            "longwire_store_commit_bytes_total", .counter, unit: .bytes, "Bytes written to the journal.",
            .process { $0.store.journalWrittenByteCount }),
        Metric(
            "longwire_store_journal_bytes", .gauge, unit: .bytes, "Bytes the journal occupies.",
            .process { $0.store.journalByteCount }),
        Metric(
            "longwire_store_journal_segments", .gauge, "Segments of the journal that a start would replay.",
            .process { $0.store.segmentCount }),
        Metric(
            "longwire_store_young_rows", .gauge, "Rows in the journal and in memory, not yet in the ordered store.",
            .sum { $0.youngRows }),
        Metric(
            "longwire_store_cold_reads_total", .counter, "Requests to the reader threads.", .counter(.coldReads)),
        Metric(
            "longwire_store_read_failures_total", .counter,
            "Reads of the store that failed; the caller is to retry.",
            .sum { $0.shard.storeReadFailures }),
        Metric(
            "longwire_store_damaged_rows_total", .counter, "Rows found with invalid content.",
            .sum { $0.shard.damagedRows }),
        Metric(
            "longwire_store_bound_breaches_total", .counter,
            "Writes beyond the store's bounds, which no input should lead to.", .counter(.storeBreaches)),
        Metric(
            "longwire_store_spilled_rows_total", .counter, "Rows moved from the journal to the ordered store.",
            .process { $0.store.spilledRowCount }),
        Metric(
            "longwire_store_spilled_deletions_total", .counter,
            "Deletions moved from the journal to the ordered store.",
            .process { $0.store.spilledDeletionCount }),
        Metric(
            "longwire_store_spill_failures_total", .counter,
            "Attempts to move rows to the ordered store that failed and are repeated.",
            .process { $0.store.spillFailureCount }),
        Metric(
            "longwire_store_accepts_writes", .gauge,
            "1 while publishes are taken, 0 while a bound of the store refuses them.",
            .process { $0.acceptsWrites ? 1 : 0 }),
    ]

    /// The metrics of request ids and traces, which are kept for a day.
    private static let retention: [Metric] = [
        Metric(
            "longwire_store_retained_bytes", .gauge, unit: .bytes,
            "Size of request ids and of traces on disk, by type.",
            .process([.type: "requests"]) { $0.store.requests.byteCount },
            .process([.type: "traces"]) { $0.store.traces.byteCount }),
        Metric(
            "longwire_store_retained_bytes_limit", .gauge, unit: .bytes,
            "Size limit of request ids and of traces; above it the oldest are dropped early, by type.",
            .process([.type: "requests"]) { $0.store.requests.byteLimit },
            .process([.type: "traces"]) { $0.store.traces.byteLimit }),
        Metric(
            "longwire_store_retained_seconds", .gauge, unit: .milliseconds,
            "The age of the oldest request id and of the oldest trace kept, by type.",
            .process([.type: "requests"]) { $0.store.requests.milliseconds },
            .process([.type: "traces"]) { $0.store.traces.milliseconds }),
        Metric(
            "longwire_store_retention_cuts_total", .counter,
            "Times that request ids or traces were dropped within their day, by type.",
            .process([.type: "requests"]) { $0.store.requests.cutCount },
            .process([.type: "traces"]) { $0.store.traces.cutCount }),
        Metric(
            "longwire_store_retention_cut_seconds", .gauge, unit: .milliseconds,
            "Age of the youngest row dropped by the last such cut, by type; 0 without a cut.",
            .process([.type: "requests"]) { $0.store.requests.cutMilliseconds },
            .process([.type: "traces"]) { $0.store.traces.cutMilliseconds }),
    ]

    private static let apps: [Metric] = [
        Metric(
            "longwire_app_connected_devices", .gauge, "Devices of the app that are connected.",
            .apps { $0.connectedDevices }),
        Metric(
            "longwire_app_queued_messages", .gauge, "Messages of the app that are accepted and have not ended.",
            .apps { $0.queuedMessages }),
        Metric(
            "longwire_app_queued_bytes", .gauge, unit: .bytes,
            "Bytes of these messages as the app's quota queuedBytes counts them.",
            .apps { $0.queuedBytes }),
        Metric(
            "longwire_app_stored_bytes", .gauge, unit: .bytes,
            "The app's disk use in this gateway's parts; its quota storedBytes limits the sum.",
            .apps { $0.queuedBytes + $0.retainedBytes }),
        Metric(
            "longwire_app_messages_accepted_total", .counter, "Messages accepted for the app's devices.",
            .apps { $0.accepted }),
        Metric(
            "longwire_app_messages_undelivered_total", .counter,
            "Messages of the app that ended without having arrived, by state.",
            .apps([.state: "expired"]) { $0.expired }, .apps([.state: "overflowed"]) { $0.overflowed },
            .apps([.state: "failed"]) { $0.failed }),
        Metric(
            "longwire_app_publishes_over_share_total", .counter,
            "The app's publishes refused as busy because room was short and it had taken more than its share.",
            .apps { $0.refusedOverShare }),
        Metric(
            "longwire_app_handoff_jobs_due", .gauge,
            "The app's handoff jobs due and not leased, as far as they are in memory.",
            VendorChannel.allCases.map { channel in
                .apps([.channel: "\(channel.name)"]) { $0.dueJobs[channel] }
            }),
        Metric(
            "longwire_app_feed_items", .gauge,
            "Items that wait for an ack in the app's feeds, by type.",
            .apps([.type: "upstream"]) { $0.upstreamItems }, .apps([.type: "events"]) { $0.eventItems }),
        Metric(
            "longwire_app_feed_oldest_seconds", .gauge, unit: .milliseconds,
            "How long the oldest item that waits for an ack in the app's feeds has waited, by type.",
            .apps([.type: "upstream"]) { $0.upstreamWait }, .apps([.type: "events"]) { $0.eventWait }),
    ]
}
