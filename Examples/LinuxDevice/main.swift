// A device on Linux: prints its cid at each connection, and each message. docs/use/iOS.md has the manifest of such a package.
import LongwireClient

let words = CommandLine.arguments
guard words.count == 6, let port = UInt16(words[2]) else { fatalError("usage: device HOST PORT APP SECRET STATEFILE") }
let configuration = ClientConfiguration(host: words[1], port: port, appID: words[3], appSecret: words[4])
let client = LongwireClient(configuration: configuration, store: FileStateStore(path: words[5]))
try client.start()
Task { for await event in client.events { if case .welcomed(let welcome) = event { print("cid", welcome.cid) } } }
for await message in client.messages {
    print(message.provenance, String(decoding: message.payload, as: UTF8.self))
    client.report(.shown(message.messageID))
}
