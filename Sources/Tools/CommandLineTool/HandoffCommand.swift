internal import Foundation
internal import TextForms

enum HandoffCommand {
    static let lease = CommandSyntax(
        name: "handoff lease", summary: "Leases due handoff jobs, as a sender service does.",
        options: [
            .value("max", "N", "At most N jobs, 1 to 500. Default: 10."),
            .value("lease-seconds", "S", "Duration of the leases, 5 to 300. Default: 60."),
            .value("wait-seconds", "S", "How long to wait for the first one, 0 to 30. Default: 0."),
            .value("channel", "NAME", "The vendor. Default: apns."),
        ] + AdminClient.options,
        notes: [
            "Prints the gateway's JSON. Each job has a jobId and a leaseId; settle both before the lease expires, or "
                + "the job is due again."
        ]
    ) { arguments, context in
        let wait = try arguments.number("wait-seconds", in: 0...30) ?? 0
        let body: JSONText = [
            "channel": arguments.text("channel") ?? "apns", "max": try arguments.number("max", in: 1...500) ?? 10,
            "leaseSeconds": try arguments.number("lease-seconds", in: 5...300) ?? 60, "waitSeconds": wait,
        ]
        let client = try AdminClient(Credentials(arguments, context), timeoutSeconds: Double(wait) + 30)
        context.write(try client.send(.post, "/v1/handoff/lease", body: body).text)
        return .done
    }

    static let settle = CommandSyntax(
        name: "handoff settle", summary: "Reports the vendor's result of a leased job.",
        options: [
            .value("job", "JOBID", "The job's jobId."),
            .value("lease", "LEASEID", "The leaseId it was leased with."),
            .value("outcome", "WORD", "accepted, retry, rejected, badToken or unsent."),
            .value("reason", "TEXT", "The vendor's reason."),
            .value("vendor-id", "ID", "The vendor's own id for the notification."),
            .value("timestamp", "MS", "The vendor's time in ms; for badToken, when the token became bad."),
            .value("retry-after", "S", "For retry: not before S seconds have passed."),
        ] + AdminClient.options,
        notes: [
            "A repeated report is harmless. Prints the gateway's JSON: recorded, stale, cancelled or unknownJob."
        ]
    ) { arguments, context in
        let outcomes = ["accepted", "retry", "rejected", "badToken", "unsent"]
        guard let outcome = try arguments.choice("outcome", outcomes.map { ($0, $0) }) else {
            throw CommandFailure.usage("--outcome is missing: one of \(outcomes.joined(separator: ", "))")
        }
        let result: JSONText = [
            "jobId": try arguments.required("job", "the jobId that lease named"),
            "leaseId": try arguments.required("lease", "the leaseId that lease named"), "outcome": outcome,
            "reason": arguments.text("reason"), "vendorId": arguments.text("vendor-id"),
            "timestamp": try arguments.number("timestamp", in: 0...(1 << 52)),
            "retryAfterSeconds": try arguments.number("retry-after", in: 0...86_400),
        ]
        let client = try AdminClient(Credentials(arguments, context))
        let answer = try client.send(.post, "/v1/handoff/results", body: .array([result]))
        context.write(answer.text)
        return .done
    }
}
