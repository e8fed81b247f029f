internal import Foundation
internal import TextForms

/// Named gateways with addresses and secrets, from a file that the user writes.
struct Contexts {
    static let members: Set<String> = [
        "appId", "appKey", "appSecret", "masterSecret", "adminToken", "httpAddress", "adminAddress", "deviceAddress",
        "ca", "cert", "key",
    ]
    /// Members with the path of a secret's file, relative to the folder of the configuration file.
    private static let fileMembers: Set<String> = ["appSecretFile", "masterSecretFile", "adminTokenFile"]

    let path: String
    let all: [String: [String: String]]
    let current: String?

    private struct File: Decodable { var contexts: [String: [String: String]] }

    /// Reads `~/.config/longwire/config.json5`, or the same path under XDG_CONFIG_HOME.
    init(_ environment: [String: String]) throws(CommandFailure) {
        let home =
            environment["XDG_CONFIG_HOME"].flatMap { $0.isEmpty ? nil : $0 }
            ?? environment["HOME"].map { $0 + "/.config" } ?? "/nonexistent"
        path = home + "/longwire/config.json5"
        guard let data = FileManager.default.contents(atPath: path) else {
            (all, current) = ([:], nil)
            return
        }
        let decoder = JSONDecoder()
        decoder.allowsJSON5 = true
        do {
            all = try decoder.decode(File.self, from: data).contexts
        } catch {
            throw .usage("\(path) is not {contexts: {NAME: {adminAddress: \"…\", …}}}, with texts as values")
        }
        for (name, context) in all {
            for member in context.keys.sorted()
            where !Self.members.contains(member) && !Self.fileMembers.contains(member) {
                let near = Suggestion.hint(for: member, among: Self.members.union(Self.fileMembers))
                throw .usage("\(path): \(name).\(member) is unknown\(near)")
            }
        }
        let noted = FileManager.default.contents(atPath: home + "/longwire/current-context")
        current = noted.map { String(decoding: $0, as: UTF8.self).trimmingCharacters(in: .whitespacesAndNewlines) }
    }

    func context(_ name: String) throws(CommandFailure) -> [String: String] {
        guard var context = all[name] else {
            let near = Suggestion.hint(for: name, among: all.keys)
            throw .usage("\(path) has no context \(name)\(near)")
        }
        let folder = (path as NSString).deletingLastPathComponent
        for member in Self.fileMembers {
            guard let file = context[member] else { continue }
            let whole = file.hasPrefix("/") ? file : folder + "/" + file
            guard let data = FileManager.default.contents(atPath: whole) else {
                throw .usage("context \(name): \(member) names \(whole), which cannot be read")
            }
            let text = String(decoding: data, as: UTF8.self).trimmingCharacters(in: .whitespacesAndNewlines)
            context[String(member.dropLast(4))] = text
        }
        return context
    }

    /// Selects the default context; the choice has its own file, so that the user's file is not changed.
    func use(_ name: String) throws(CommandFailure) {
        _ = try context(name)
        let place = (path as NSString).deletingLastPathComponent + "/current-context"
        guard (try? Data((name + "\n").utf8).write(to: URL(fileURLWithPath: place), options: .atomic)) != nil else {
            throw .refused("\(place) cannot be written")
        }
    }
}

enum ContextCommand {
    static let list = CommandSyntax(
        name: "context list", summary: "Lists the contexts of the configuration file; * marks the one in use.",
        options: Display.options,
        notes: [
            "The file is ~/.config/longwire/config.json5 (XDG_CONFIG_HOME counts), for example: "
                + "{contexts: {prod: {adminAddress: \"https://10.0.0.5:7081\", adminTokenFile: \"prod.token\", ca: \"/etc/ca.pem\", "
                + "appId: \"shop\"}}}. Members: \(Contexts.members.sorted().joined(separator: ", ")); the secrets also with File "
                + "behind the name."
        ]
    ) { arguments, context in
        let contexts = try Contexts(context.environment)
        if Display(arguments, context).isJSON {
            let list = contexts.all.keys.sorted().map { name -> JSONText in
                ["name": name, "current": name == contexts.current]
            }
            context.write((["file": contexts.path, "contexts": list] as JSONText).text)
            return .done
        }
        if contexts.all.isEmpty { context.write("There is no context: \(contexts.path) has none, or is not there.") }
        for name in contexts.all.keys.sorted() {
            let address = contexts.all[name]?["adminAddress"] ?? ""
            context.write("\(name == contexts.current ? "*" : " ") \(name)  \(address)")
        }
        return .done
    }

    static let use = CommandSyntax(
        name: "context use", summary: "Selects the context of the other commands.",
        operands: [("NAME", "A context of the configuration file; see context list.")],
        notes: [
            "A command's own options, and the environment, count before the context; --context NAME counts before the environment."
        ]
    ) { arguments, context in
        try Contexts(context.environment).use(arguments.operands[0])
        context.complain("The context is \(arguments.operands[0]) now.")
        return .done
    }
}
