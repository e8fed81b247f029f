package import TextForms

/// Calls of the admin API, for commands of other modules.
package struct AdminCalls {
    private let client: AdminClient

    /// Who calls, and where.
    package static let options = AdminClient.options

    package init(_ arguments: ParsedArguments, _ context: CommandContext) throws {
        client = try AdminClient(Credentials(arguments, context))
    }

    /// The answer's object.
    package func get(_ path: String) throws -> [String: Any] { try client.send(.get, path).object }

    package func post(_ path: String, _ body: [(String, JSONText)]) throws -> [String: Any] {
        try client.send(.post, path, body: JSONText.object(body).text).object
    }
}
