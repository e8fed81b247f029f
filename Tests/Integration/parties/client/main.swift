// An app without a screen: runs the orders of test_client.py from its standard input, and prints each event as a line.
import Foundation
import FoundationNetworking
import LongwireClient

let words = CommandLine.arguments
guard words.count == 6, let port = UInt16(words[2]) else { fatalError("usage: driver HOST PORT APP SECRET STATEFILE") }
var configuration = ClientConfiguration(host: words[1], port: port, appID: words[3], appSecret: words[4])
configuration.applicationState = .background
configuration.tokens = [VendorToken(topic: "com.example.app", token: String(repeating: "ab", count: 32))]
let client = LongwireClient(configuration: configuration, store: FileStateStore(path: words[5]))

let ended = Task {
    for await event in client.events {
        switch event {
        case .welcomed(let welcome): print("welcomed", welcome.cid)
        case .stopped: return print("stopped")
        default: break
        }
    }
}
Task {
    for await message in client.messages {
        print("message", message.messageID, String(decoding: message.payload, as: UTF8.self))
    }
}

/// The notification of a message, as APNs passes it to an app.
func userInfo(_ ids: String) -> [AnyHashable: Any] {
    ["_gmid_": ids, "aps": ["content-available": 1] as [String: Any]]
}

func post(_ call: ReceiptCall) async throws -> ReceiptReply {
    guard let url = URL(string: call.url) else { throw URLError(.badURL) }
    var request = URLRequest(url: url)
    request.httpMethod = "POST"
    request.httpBody = Data(call.body)
    for (name, value) in call.headers { request.setValue(value, forHTTPHeaderField: name) }
    let (data, response) = try await URLSession.shared.data(for: request)
    return ReceiptReply(status: (response as? HTTPURLResponse)?.statusCode ?? 0, body: [UInt8](data))
}

func perform(_ words: [String]) async throws {
    switch words[0] {
    case "start": try client.start()
    case "state": client.setApplicationState(words[1] == "foreground" ? .foreground : .background)
    case "tap": print("tapped", client.handleTap(userInfo: userInfo(words[1]))?.messageID.description ?? "nothing")
    case "fetch":
        guard PushNotification(userInfo: userInfo(words[1]))?.isSilent == true else { return print("no silent push") }
        let result = await client.fetch(within: .seconds(20))
        print("fetched", result.messageCount, result.isComplete ? "complete" : "incomplete")
    case "receipt":
        guard let message = MessageID(words[2]) else { return print("no message id") }
        let receipts = DisplayReceipts(gateway: words[1], statePath: CommandLine.arguments[5])
        do {
            let results = try await receipts.report([.shown(message)]) { try await post($0) }
            print("receipt", results.map(\.rawValue).joined(separator: " "))
        } catch {
            print("receipt", error)
        }
    case "stop":
        client.stop()
        await ended.value
    default: print("unknown", words[0])
    }
}

// On a separate thread, because the loops above share the main actor with the code below.
let (lines, continuation) = AsyncStream.makeStream(of: String.self)
Thread.detachNewThread {
    while let line = readLine() { continuation.yield(line) }
    continuation.finish()
}
for await line in lines { try await perform(line.split(separator: " ").map(String.init)) }
