internal import TextForms

enum QueueCommand {
    private static let deviceOptions =
        [CommandOption.value("cid", "CID", "The device.")] + Display.options + [Credentials.appOption]
        + AdminClient.options

    static let peek = CommandSyntax(
        name: "queue peek", summary: "Shows the due handoff jobs, or a device's queue, without changes.",
        options: [.value("limit", "N", "How many, 1 to 500. Default: 20.")] + deviceOptions,
        notes: [
            "Without --cid: the jobs that sender services could lease now, the longest due first. With --cid: the device's "
                + "newest messages."
        ]
    ) { arguments, context in
        let limit = try arguments.number("limit", in: 1...500) ?? 20
        let client = try AdminClient(Credentials(arguments, context))
        let display = Display(arguments, context)
        if let text = arguments.text("cid") {
            let cid = try TraceCommand.hexDigits(text, "--cid")
            let path = "\(try DeviceCommand.appPath(arguments, context))/devices/\(cid)/messages?limit=\(limit)"
            let answer = try client.send(.get, path)
            return display.show(answer, on: context) { found in
                let pending = found.list("messages").filter { $0.text("state") == "pending" }
                let rows = pending.map { TraceWords($0, device: nil, display).summary }
                return display.table([["accepted", "message", "state", "why"]] + rows)
            }
        }
        let answer = try client.send(.get, "/v1/handoff/jobs?limit=\(limit)")
        return display.show(answer, on: context) { found in
            let queues = found.list("queues").map { queue in
                "\(queue.text("appId") ?? "") \(queue.text("channel") ?? ""): \(queue.number("due") ?? 0) due, "
                    + "\(queue.number("held") ?? 0) held for devices that are reachable or want no alerts"
            }
            let rows = found.list("jobs").map { job in
                [
                    Display.time(job.number("dueAt") ?? 0), job.text("jobId") ?? "", job.text("appId") ?? "",
                    "\(job.number("attempts") ?? 0)", job.text("reason") ?? "",
                ]
            }
            guard !rows.isEmpty else { return queues + ["No job is due."] }
            return queues + display.table([["due since", "job", "app", "attempts", "last reason"]] + rows)
        }
    }

    static let purge = CommandSyntax(
        name: "queue purge", summary: "Ends the queued messages of a device without delivery.",
        options: [.flag("yes", "Confirms the purge. Without it the command only prints the effect.")] + deviceOptions,
        notes: [
            "Each message ends as revoked, with the reason purged. Messages in flight to the device stay, and those that a "
                + "sender service has leased. So no message is both delivered and purged. Broadcasts are not in the queue."
        ]
    ) { arguments, context in
        let cid = try TraceCommand.hexDigits(try arguments.required("cid", "the device"), "--cid")
        guard arguments.has("yes") else {
            let path = "\(try DeviceCommand.appPath(arguments, context))/devices/\(cid)"
            let view = Fields(try AdminClient(Credentials(arguments, context)).send(.get, path).object)
            let count = view.fields("queue").number("messages") ?? 0
            throw CommandFailure.usage("this would end up to \(count) messages permanently; to do it, add --yes")
        }
        let answer = try DeviceCommand.change(arguments, context, cid: cid, "purge")
        return Display(arguments, context).show(answer, on: context) { result in
            let left = result.number("left") ?? 0
            let rest = left > 0 ? "; \(left) stay: in flight, or leased by a sender service" : ""
            return ["Ended \(result.number("purged") ?? 0) messages as revoked (purged)\(rest)."]
        }
    }

    static let replay = CommandSyntax(
        name: "queue replay", summary: "Makes a device's waiting jobs due now.",
        options: deviceOptions,
        notes: ["A job that the vendor rejected, or whose attempts are used up, is over and stays so."]
    ) { arguments, context in
        let answer = try DeviceCommand.change(
            arguments, context, cid: try arguments.required("cid", "the device"), "replay")
        return Display(arguments, context).show(answer, on: context) { result in
            ["\(result.number("due") ?? 0) jobs are due now that waited for later."]
        }
    }
}
