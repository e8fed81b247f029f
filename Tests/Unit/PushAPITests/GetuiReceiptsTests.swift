import Delivery
import Foundation
import Testing
import Wire

@testable import PushAPI

@Suite("Receipts in Getui's format")
struct GetuiReceiptsTests {
    private static let cid = DeviceID(high: 0xC1, low: 1)
    private static let task = TaskID(kind: .single, month: 11, day: 29, home: Bucket(7), request: (5, 6))
    private static let message = MessageID(bucket: Bucket(7), acceptedAt: 1_795_000_000_000, digest: 9)

    private static func item(
        _ kind: FeedItem.Kind, _ detail: FeedItem.Detail = .none, _ payload: String = "", callback: String = ""
    ) -> FeedItem {
        var item = FeedItem(kind, at: 1_795_000_000_123, cid: cid)
        (item.message, item.task, item.detail) = (message, task, detail)
        (item.payload, item.customCallback) = (Array(payload.utf8), Array(callback.utf8))
        return item
    }

    private static func lines(_ items: [FeedItem]) -> [[String: Any]] {
        var page = FeedPage(first: 4, state: FeedState())
        page.items = items
        let body = GetuiReceipts.body(page, appID: "demoApp", masterSecret: "demoSecret")
        return String(decoding: body, as: UTF8.self).split(separator: "\n", omittingEmptySubsequences: false)
            .compactMap { (try? JSONSerialization.jsonObject(with: Data($0.utf8))) as? [String: Any] }
    }

    @Test("the signature is Getui's")
    func sign() {
        #expect(
            GetuiReceipts.sign(appID: "demoApp", cid: "C1", task: "T1", message: "M1", masterSecret: "demoSecret")
                == "3d7444fa7a9626a60dbbd29708daf3a6")
    }

    @Test("a page is one line an event, with the fields of Getui's documentation and no line end after the last")
    func form() throws {
        var page = FeedPage(first: 1, state: FeedState())
        page.items = [
            Self.item(.delivered, callback: "a\nb\"回执"), Self.item(.expired), Self.item(.action, .action(90_001)),
        ]
        let body = GetuiReceipts.body(page, appID: "demoApp", masterSecret: "demoSecret")
        #expect(body.filter { $0 == UInt8(ascii: "\n") }.count == 1 && body.last == UInt8(ascii: "}"))
        let lines = Self.lines(page.items)
        let first = try #require(lines.first)
        #expect(lines.count == 2 && first["appid"] as? String == "demoApp")
        #expect(first["cid"] as? String == Self.cid.description && first["taskid"] as? String == Self.task.text)
        #expect(first["msgid"] as? String == Self.message.description && first["code"] as? String == "200")
        #expect(first["desc"] as? String == "ok" && first["actionId"] as? String == "0")
        #expect(first["recvtime"] as? Int == 1_795_000_000_123)
        #expect(first["custom_callback"] as? String == "a\nb\"回执")
        #expect(
            first["sign"] as? String
                == GetuiReceipts.sign(
                    appID: "demoApp", cid: Self.cid.description, task: Self.task.text,
                    message: Self.message.description, masterSecret: "demoSecret"))
        #expect(lines[1]["actionId"] as? String == "90001" && lines[1]["custom_callback"] == nil)
    }

    @Test("a failure has its reason, else its kind")
    func failures() {
        let lines = Self.lines([
            Self.item(.failed, .none, "badToken"), Self.item(.tokenQuarantined, .channel(.hms)),
        ])
        #expect(lines.map { $0["code"] as? String } == ["400", "400"])
        #expect(lines.map { $0["desc"] as? String } == ["badToken", "tokenQuarantined"])
        #expect(lines.allSatisfy { $0["actionId"] == nil })
    }

    @Test("events without a message, and a page without receipts, have no line")
    func none() {
        var presence = FeedItem(.online, at: 1, cid: Self.cid)
        #expect(Self.lines([presence]).isEmpty)
        presence.kind = .delivered
        #expect(Self.lines([presence]).isEmpty && Self.lines([]).isEmpty)
    }

    @Test("the documentation has the table of the code", arguments: ["", ".zh-CN"])
    func table(language: String) throws {
        let page = try String(
            contentsOf: URL(fileURLWithPath: #filePath).deletingLastPathComponent()
                .appendingPathComponent("../../../docs/use/GetuiCompatibility\(language).md"), encoding: .utf8)
        let rows = page.split(separator: "\n").filter { $0.hasPrefix("| `") }.map { row in
            row.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
        }
        func cells(_ kind: FeedItem.Kind) throws -> [String] {
            let found = rows.filter {
                $0.count == 3 && $0[0].contains("`\(kind)`") && ($0[1].count == 3 || $0[2] == "–")
            }
            return try #require(found.count == 1 ? found.first : nil, "\(kind)")
        }
        for kind in FeedItem.Kind.allCases where kind != .upstream {
            let row = try cells(kind)
            let item = Self.item(kind, kind == .action ? .action(90_001) : .none)
            guard let receipt = GetuiReceipts.receipt(of: item) else {
                #expect(Int(row[1]) == nil, "\(kind)")
                continue
            }
            #expect(Int(row[1]) == receipt.code.rawValue, "\(kind)")
            guard kind == .shown || kind == .clicked else { continue }
            #expect(row[2].hasPrefix("\(try #require(receipt.action))"), "\(kind)")
            for channel in VendorChannel.allCases {
                let alert = GetuiReceipts.receipt(of: Self.item(kind, .ofAlert(true, by: channel)))?.action
                let isOwn = alert != receipt.action
                #expect(row[2].contains("`\(channel.name)` \(alert ?? 0)") == isOwn, "\(kind) \(channel)")
            }
            // The live message's own number does not depend on the channel.
            #expect(GetuiReceipts.receipt(of: Self.item(kind, .ofAlert(false))) == receipt)
        }
    }
}
