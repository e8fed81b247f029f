internal import Foundation

#if canImport(FoundationNetworking)
internal import FoundationNetworking
#endif

/// One blocking HTTP call after another.
struct HTTPClient {
    struct Answer {
        let status: Int
        let body: Data

        var text: String { String(decoding: body, as: UTF8.self) }
        /// The body as a JSON object; empty for anything else.
        var object: [String: Any] { (try? JSONSerialization.jsonObject(with: body)) as? [String: Any] ?? [:] }
    }

    let base: URL
    var headers: [String: String] = [:]
    var timeoutSeconds: Double = 30

    /// - Throws: `unreachable` when there is no HTTP answer; whatever the answer says is the caller's.
    func send(_ method: String, _ path: String, body: String? = nil) throws(CommandFailure) -> Answer {
        guard let url = URL(string: path, relativeTo: base) else { throw .usage("\(path) cannot be asked for") }
        var request = URLRequest(url: url, timeoutInterval: timeoutSeconds)
        request.httpMethod = method
        for (name, value) in headers { request.setValue(value, forHTTPHeaderField: name) }
        if let body {
            request.httpBody = Data(body.utf8)
            request.setValue("application/json;charset=utf-8", forHTTPHeaderField: "Content-Type")
        }

        let result = ResultBox()
        let session = URLSession(configuration: Self.configuration)
        let task = session.dataTask(with: request) { data, response, error in
            result.fill(data, response as? HTTPURLResponse, error)
        }
        task.resume()
        result.wait()
        session.finishTasksAndInvalidate()
        guard let status = result.status else {
            throw .unreachable("no answer from \(base.absoluteString): \(result.failure)")
        }
        return Answer(status: status, body: result.body)
    }

    private static var configuration: URLSessionConfiguration {
        // A proxy of the environment would be asked for loopback addresses, too.
        let known = ProcessInfo.processInfo.environment["no_proxy"].map { $0 + "," } ?? ""
        setenv("no_proxy", known + "127.0.0.1,localhost,::1", 1)
        let configuration = URLSessionConfiguration.ephemeral
        configuration.httpCookieStorage = nil
        configuration.urlCache = nil
        return configuration
    }
}

/// What the session's queue hands back.
///
/// Sound although unchecked: the fields are written once before `signal` and read only after `wait`.
private final class ResultBox: @unchecked Sendable {
    private let semaphore = DispatchSemaphore(value: 0)
    private(set) var status: Int?
    private(set) var body = Data()
    private(set) var failure = ""

    func fill(_ data: Data?, _ response: HTTPURLResponse?, _ error: (any Error)?) {
        if error == nil { status = response?.statusCode }
        body = data ?? Data()
        failure = error.map { $0.localizedDescription } ?? "not an HTTP answer"
        semaphore.signal()
    }

    func wait() { semaphore.wait() }
}
