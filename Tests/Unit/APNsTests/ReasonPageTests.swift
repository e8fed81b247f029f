import APNs
import Foundation
import Testing

@Suite("The page on APNs") struct ReasonPageTests {
    @Test("docs/use/APNs.md has a row for every reason, with the sender's action")
    func documented() throws {
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
        let page = try String(contentsOf: root.appendingPathComponent("docs/use/APNs.md"), encoding: .utf8)
        let rows = page.split(separator: "\n").filter { $0.hasPrefix("| `") && $0.contains("`") }
        for reason in Reason.allCases {
            let row = rows.first { row in
                row.split(separator: "|").first.map { $0.contains("`\(reason.rawValue)`") } ?? false
            }
            let text = try #require(row, "\(reason.rawValue) has no row")
            let word: String
            switch reason.action {
            case .accept: word = "`accepted`"
            case .reject: word = "`rejected`"
            case .voidToken: word = "`badToken`"
            case .tryOtherEnvironment: word = "other environment"
            case .retry: word = "`retry`"
            case .slowDownToken: word = "the token is paused"
            case .renewProviderToken: word = "new provider token"
            case .keepProviderToken: word = "stays"
            case .restCredential: word = "is paused"
            case .reconnect: word = "another connection"
            }
            #expect(text.contains(word), "\(reason.rawValue)")
        }
    }
}
