import Foundation
import Glibc
import Testing
import Wire

@testable import LongwireClient

/// A gateway for one connection, on a separate thread.
///
/// It welcomes the device, and sends one message once the app runs.
///
/// `@unchecked Sendable` is safe here: after `init` only the thread uses the descriptors, and `states` has a lock.
final class FakeGateway: @unchecked Sendable {
    let port: UInt16
    private let listener: CInt
    private let message: Deliver
    private let states = Guarded<[ApplicationState]>([])

    /// The application states that the device has reported, in order.
    var reported: [ApplicationState] { states.withValue { $0 } }

    init(sending message: Deliver) throws {
        self.message = message
        listener = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let listener = listener
        let isListening = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                bind(listener, address, size) == 0 && listen(listener, 1) == 0
                    && getsockname(listener, address, &size) == 0
            }
        }
        try #require(isListening)
        port = UInt16(bigEndian: address.sin_port)
        Thread.detachNewThread { self.serve() }
    }

    private func serve() {
        defer { close(listener) }
        let connection = accept(listener, nil, nil)
        guard connection >= 0 else { return }
        defer { close(connection) }
        var (received, part) = ([UInt8](), [UInt8](repeating: 0, count: 4_096))
        while true {
            let count = read(connection, &part, part.count)
            guard count > 0 else { return }
            received += part[..<count]
            do {
                while let answer = try answer(&received) {
                    guard write(connection, answer, answer.count) == answer.count else { return }
                }
            } catch {
                return
            }
        }
    }

    /// Removes one frame from `bytes` and returns the answer to it; `nil` without a complete frame.
    private func answer(_ bytes: inout [UInt8]) throws -> [UInt8]? {
        guard let header = try FrameHeader(parsing: bytes.span.bytes),
            bytes.count >= FrameHeader.byteCount + header.bodyByteCount
        else { return nil }
        let frame = Array(bytes[..<(FrameHeader.byteCount + header.bodyByteCount)])
        bytes.removeFirst(frame.count)
        let body = frame.span.bytes.extracting(FrameHeader.byteCount..<frame.count)
        var answer: [UInt8] = []
        switch header.type {
        case .hello:
            let hello = try Hello(decoding: body)
            states.withValue { $0.append(hello.applicationState) }
            var welcome = Welcome()
            (welcome.generation, welcome.queueEpoch, welcome.heartbeatSeconds, welcome.window) = (1, 5, 60, 32)
            welcome.appendFrame(to: &answer)
            if hello.keepsRunning { message.appendFrame(to: &answer) }
        case .deviceUpdate:
            let update = try DeviceUpdate(decoding: body)
            if let state = update.applicationState { states.withValue { $0.append(state) } }
            var result = UpdateResult()
            result.request = update.request
            result.appendFrame(to: &answer)
            if update.keepsRunning == true { message.appendFrame(to: &answer) }
        case .ping: Pong(nonce: try Ping(decoding: body).nonce).appendFrame(to: &answer)
        default: break
        }
        return answer
    }
}
