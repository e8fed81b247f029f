internal import Cryptography
internal import Glibc
internal import TextForms

/// Whom a run believes over TLS, and what it shows of itself.
struct TLSFiles: Equatable, Sendable {
    var authorities: String?
    var certificate: String?
    var key: String?

    /// What all connections of one thread share; no session is resumed, so that each handshake is a full one.
    func context() throws(TLSFailure) -> TLSContext {
        try TLSContext(
            trusting: authorities.map { .certificates(path: $0) } ?? .system, showing: certificate, keyPath: key)
    }

    /// - Throws: a usage failure naming the option of a file that cannot be read or is none of the kind.
    func check() throws(CommandFailure) {
        for (option, file) in [("--ca", authorities), ("--cert", certificate), ("--key", key)] {
            guard let file, access(file, R_OK) != 0 else { continue }
            throw CommandFailure.usage("\(option) names \(file), which cannot be read: \(errorText(errno))")
        }
        do throws(TLSFailure) { _ = try context() } catch { throw CommandFailure.usage(error.description) }
    }
}

// The same as over plain sockets, through TLS where there is a session.
extension Socket {
    enum Handshake: Equatable {
        case done, waits
        /// `retries`: another attempt may go better.
        case failed(String, retries: Bool)
    }

    static func handshake(_ session: TLSSession) -> Handshake {
        switch session.handshake() {
        case .done: .done
        case .wantsRead, .wantsWrite: .waits
        case .failed(let reason): .failed(reason, retries: session.failure == .ended)
        }
    }

    /// A short read does not mean that the socket is empty: it is when this answers `wouldBlock`.
    @inline(__always)
    static func receive(
        _ descriptor: CInt, _ tls: TLSSession?, into start: UnsafeMutableRawPointer, _ capacity: Int
    ) -> Outcome {
        guard let tls else { return receive(descriptor, into: start, capacity) }
        switch tls.read(into: UnsafeMutableRawBufferPointer(start: start, count: capacity)) {
        case .bytes(let count): return .bytes(count)
        case .wantsRead, .wantsWrite: return .wouldBlock
        case .ended: return .ended
        case .failed(let reason): return .failed("TLS: \(reason)")
        }
    }

    /// Sends until the socket takes no more; what it did not take is to be sent again, with nothing before it.
    @inline(__always)
    static func send(_ descriptor: CInt, _ tls: TLSSession?, _ start: UnsafeRawPointer, _ count: Int) -> Outcome {
        guard let tls else { return send(descriptor, start, count) }
        var sent = 0
        while sent < count {
            switch tls.write(UnsafeRawBufferPointer(start: start + sent, count: count - sent)) {
            case .bytes(let more): sent += more
            case .wantsRead, .wantsWrite: return sent > 0 ? .bytes(sent) : .wouldBlock
            case .ended: return .ended
            case .failed(let reason): return .failed("TLS: \(reason)")
            }
        }
        return .bytes(sent)
    }

    /// Says goodbye within TLS, and closes.
    static func shut(_ descriptor: inout CInt, _ tls: inout TLSSession?) {
        tls?.sayGoodbye()
        if descriptor >= 0 { _ = close(descriptor) }
        (descriptor, tls) = (-1, nil)
    }
}

extension Worker {
    enum Secured: Equatable {
        case yes
        case notYet
        case no(String, retries: Bool)
    }

    /// Begins or continues a connection's handshake, and counts how it ended; `peer` is who connects, in words.
    mutating func secure(_ tls: inout TLSSession?, _ descriptor: CInt, _ endpoint: Endpoint, _ peer: String) -> Secured
    {
        if tls == nil {
            guard let context else { return .no("\(peer): there is no TLS context", retries: false) }
            do throws(TLSFailure) {
                tls = try TLSSession(connecting: context, descriptor: descriptor, serverName: endpoint.host)
            } catch {
                tally.failedHandshakes += 1
                return .no("TLS handshake of \(peer): \(error)", retries: false)
            }
        }
        guard let session = tls else { return .notYet }
        switch Socket.handshake(session) {
        case .done:
            tally.handshakes += 1
            return .yes
        case .waits: return .notYet
        case .failed(let reason, let retries):
            tally.failedHandshakes += 1
            return .no("TLS handshake of \(peer): \(reason)", retries: retries)
        }
    }

    /// With TLS 1.3 a server refuses our certificate when for us the handshake is over already.
    mutating func noteRefusal(_ tls: TLSSession?) -> Bool {
        guard tls?.failure == .refusedByPeer else { return false }
        tally.failedHandshakes += 1
        tally.handshakes -= 1
        return true
    }
}
