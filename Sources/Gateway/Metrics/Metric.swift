/// Every metric of `/metrics`.
///
/// The raw value is its name after `longwire_`; docs/Operations.md lists them.
package enum Metric: String, Sendable, CaseIterable {
    // The process.
    /// Always 1; its labels tell the version.
    case buildInformation = "build_info"
    case uptimeSeconds = "uptime_seconds"
    /// The configuration in force; grows by one with each reload.
    case configurationVersion = "configuration_version"
    case reloads = "reloads_total"
    case logLinesLost = "log_lines_lost_total"
    case clockOffsetSeconds = "clock_offset_seconds"
    case clockStepRefused = "clock_step_refused"

    // Connections.
    case connections = "connections"
    case httpConnections = "http_connections"
    case connectionLimit = "connection_limit"
    case connectionsDisplaced = "connections_displaced_total"
    case connectionsTurnedAway = "connections_turned_away_total"
    case connectionsAccepted = "connections_accepted_total"
    case connectionsClosed = "connections_closed_total"
    case sessions = "sessions"
    case bytesReceived = "received_bytes_total"
    case bytesSent = "sent_bytes_total"

    // Messages.
    case messagesAccepted = "messages_accepted_total"
    case publishesRefused = "publishes_refused_total"
    case messagesEnded = "messages_ended_total"
    case deliversSent = "delivers_sent_total"
    case broadcastsLive = "broadcasts_live"
    case broadcastMessages = "broadcast_messages_total"
    case acksReceived = "acks_received_total"
    case acksIgnored = "acks_ignored_total"
    case feedbackIgnored = "feedback_ignored_total"
    case alertedTwice = "alerted_twice_total"

    // Handoff.
    case jobsLeased = "handoff_jobs_leased_total"
    case jobResults = "handoff_results_total"
    case jobsDue = "handoff_jobs_due"
    case longPolls = "handoff_long_polls"

    // The hook.
    case hookHealthy = "hook_healthy"
    case hookFailingSince = "hook_failing_since_seconds"
    case hookLastStatus = "hook_last_status"
    case hookAttempts = "hook_attempts_total"
    case hookDeliveries = "hook_deliveries_total"
    case hookHeld = "hook_deliveries_held"

    // HTTP.
    case httpRequests = "http_requests_total"
    case httpBodyBytes = "http_body_bytes"
    case httpRequestSeconds = "http_request_seconds"

    // Loops and store.
    case loopTurns = "loop_turns_total"
    case mailboxItems = "mailbox_items"
    case mailboxRefusals = "mailbox_refusals_total"
    case commits = "store_commits_total"
    case commitTimeSeconds = "store_commit_seconds_total"
    case longestCommitSeconds = "store_longest_commit_seconds"
    case uncommittedBytes = "store_uncommitted_bytes"
    case rowFileBytes = "store_row_file_bytes"
    case commitBytes = "store_commit_bytes_total"
    case journalBytes = "store_journal_bytes"
    case youngRows = "store_young_rows"
    case coldReads = "store_cold_reads_total"
    case storeBreaches = "store_bound_breaches_total"
    case spilledRows = "store_spilled_rows_total"
    case storeAcceptsWrites = "store_accepts_writes"
    case retainedBytes = "store_retained_bytes"
    case retainedBytesLimit = "store_retained_bytes_limit"
    case retainedSeconds = "store_retained_seconds"
    case retentionCuts = "store_retention_cuts_total"

    package enum Kind: String, Sendable { case counter, gauge, histogram }

    package var name: String { "longwire_" + rawValue }

    package var kind: Kind {
        if rawValue.hasSuffix("_total") { return .counter }
        switch self {
        case .httpRequestSeconds: return .histogram
        default: return .gauge
        }
    }

    /// The HELP line: one sentence, no line end.
    package var help: String {
        switch self {
        case .buildInformation: "Always 1; the labels tell the version."
        case .uptimeSeconds: "Seconds since the start."
        case .configurationVersion: "Number of the configuration in force; one more with each reload."
        case .reloads: "Reloads by result."
        case .logLinesLost: "Log lines lost because stderr was too slow."
        case .clockOffsetSeconds: "Wall clock minus gateway time."
        case .clockStepRefused: "1 while the wall clock stands more than an hour ahead and is not followed."
        case .connections: "Open connections of devices and senders."
        case .httpConnections: "Open HTTP connections, by listener."
        case .connectionLimit:
            "The limit of connections in force, by listener: as configured, as far as there are descriptors."
        case .connectionsDisplaced: "Connections that waited without a word and made room for a newcomer, by listener."
        case .connectionsTurnedAway: "Connections refused because no other could make room, by listener."
        case .connectionsAccepted: "Accepted connections by listener."
        case .connectionsClosed: "Connections closed, by reason."
        case .sessions: "Authenticated sessions by role."
        case .bytesReceived: "Bytes received from devices and senders."
        case .bytesSent: "Bytes sent to devices and senders."
        case .messagesAccepted: "Messages accepted: durable and answered."
        case .publishesRefused: "Publishes refused, by reason; nothing of them is kept."
        case .messagesEnded: "Messages that reached their final state, by state."
        case .deliversSent: "Deliver frames sent; more than the messages when sessions end before their acks."
        case .broadcastsLive: "Broadcasts that are still to be delivered or closed."
        case .broadcastMessages: "Messages that broadcasts became, as devices met them."
        case .acksReceived: "Messages settled by acks."
        case .acksIgnored: "Sequences in acks that named nothing sent in the session."
        case .feedbackIgnored: "Feedback that was not recorded: an unknown message or action, too many, or no room."
        case .alertedTwice: "Messages acked and alerted by the vendor as well."
        case .jobsLeased: "Handoff jobs leased."
        case .jobResults: "Results of handoff jobs, by outcome."
        case .jobsDue: "Handoff jobs due and not leased, as far as they are in memory."
        case .longPolls: "Sender services waiting for jobs."
        case .hookHealthy: "1 while the hook's receiver answers, 0 while it fails; absent without a hook."
        case .hookFailingSince: "Unix time of the first failure since the last success; 0 while healthy."
        case .hookLastStatus: "The hook's last HTTP status; 0 when no answer came."
        case .hookAttempts: "Requests to the hook, by result."
        case .hookDeliveries: "Batches for the hook that ended, by how."
        case .hookHeld: "Batches for the hook under way or waiting for their next attempt."
        case .httpRequests: "HTTP requests, by listener and status."
        case .httpBodyBytes: "Bytes reserved for the bodies of HTTP requests under way."
        case .httpRequestSeconds: "From a whole HTTP request to its answer, without long polls."
        case .loopTurns: "Turns of the event loops."
        case .mailboxItems: "Items waiting in the loops' mailboxes."
        case .mailboxRefusals: "Items refused because a mailbox was full."
        case .commits: "Group commits."
        case .commitTimeSeconds: "Time spent in writes and syncs of the journal."
        case .longestCommitSeconds: "The slowest write and sync since the start."
        case .uncommittedBytes: "Bytes handed to the committer and not durable yet."
        case .rowFileBytes: "Size of the ordered store's files."
        case .commitBytes: "Bytes written to the journal."
        case .journalBytes: "Bytes the journal occupies."
        case .youngRows: "Rows in the journal and in memory, not yet in the ordered store."
        case .coldReads: "Requests to the reader threads."
        case .storeBreaches: "Writes beyond the store's bounds, which no input should lead to."
        case .spilledRows: "Rows moved from the journal to the ordered store."
        case .retainedBytes: "Size of request ids and of traces on disk, by type."
        case .retainedBytesLimit: "What that may come to before the oldest go early, by type."
        case .retainedSeconds: "The age of the oldest request id and of the oldest trace kept, by type."
        case .retentionCuts: "Times that request ids or traces went before their day was over, by type."
        case .storeAcceptsWrites: "1 while publishes are taken, 0 while a bound of the store refuses them."
        }
    }
}

/// The names of labels.
package enum MetricLabel: String, Sendable, CaseIterable {
    case listener, code, role, type, reason, state, outcome, result, status, loop, version
}
