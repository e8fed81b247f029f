internal import MessageStore
internal import TextForms

/// The commands `longwire store …`, for stores without a running gateway.
enum StoreCommands {
    static let all: [CommandSyntax] = [copy, stats, check, backup, restore, export, importing, redisCheck]

    static let copy = CommandSyntax(
        name: "store copy", summary: "Copies the store of stopped gateways into an empty one, and compares them.",
        operands: [
            (
                "FROM",
                "The store to copy; it is not changed. \(place)"
            ),
            ("TO", "The target, in the same form: an empty or missing folder, or a cluster without data."),
        ],
        options: [
            .flag("replace", "Removes the contents of TO, for example an unfinished copy."),
            .value("parts", "N", "Parts of a new cluster, as in cluster.parts: a power of two up to 256. Default: 16."),
        ] + RedisOptions.all,
        notes: [
            "Prints rows, bytes and a digest for each table, then reads both stores again and compares them. Exit code 1 when a "
                + "gateway works on a store, TO is not empty, or the copy is not the same.",
            "No gateway starts on TO before the copy has ended; after an interruption --replace begins again.",
        ]
    ) { arguments, context in
        guard arguments.operands[0] != arguments.operands[1] else {
            throw CommandFailure.usage("FROM and TO are the same store")
        }
        let source = try CopyPlaces.place(arguments.operands[0], arguments)
        defer { source.close() }
        let target = try CopyPlaces.place(arguments.operands[1], arguments)
        defer { target.close() }
        let sums = try StoreCopy.run(
            from: source, to: target, isReplacing: arguments.has("replace"), report: context.write)
        context.write("copied \(total(sums)); the stores are the same")
        return .done
    }
}

enum CopyPlaces {
    static func place(_ text: String, _ arguments: ParsedArguments) throws -> any CopyPlace {
        guard text.hasPrefix("redis://") else { return EmbeddedPlace(text) }
        let rest = text.dropFirst("redis://".count).split(
            separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        var configuration = RedisEngine.Configuration()
        if rest.count > 1, !rest[1].isEmpty { configuration.name = String(rest[1]) }
        configuration.minReplicas = try RedisOptions.minReplicas(arguments)
        let count = try arguments.number("parts", in: 1...256).map(Int.init)
        if let count, count & (count - 1) != 0 {
            throw CommandFailure.usage("--parts is \(count); it must be a power of two up to 256")
        }
        return RedisPlace(
            name: text, try RedisOptions.cluster(rest.first ?? "", arguments), configuration, partCount: count)
    }
}
