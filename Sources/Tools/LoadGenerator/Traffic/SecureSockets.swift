internal import Cryptography
internal import Glibc
internal import TextForms

/// The TLS files of a run: trusted authorities and a client certificate.
struct TLSFiles: Equatable, Sendable {
    var authorities: String?
    var certificate: String?
    var key: String?

    /// Returns the context of all connections of one thread; sessions are not resumed, so each handshake is a full one.
    func context() throws(TLSFailure) -> TLSContext {
        try TLSContext(
            trusting: authorities.map { .certificates(path: $0) } ?? .system, showing: certificate, keyPath: key)
    }

    /// - Throws: a usage failure that names the option of an unreadable or unsuitable file.
    func check() throws(CommandFailure) {
        for (option, file) in [("--ca", authorities), ("--cert", certificate), ("--key", key)] {
            guard let file, access(file, R_OK) != 0 else { continue }
            throw CommandFailure.usage("\(option) names \(file), which cannot be read: \(errorText(errno))")
        }
        do throws(TLSFailure) { _ = try context() } catch { throw CommandFailure.usage(error.description) }
    }
}

// Socket operations through TLS if there is a session.
extension Socket {
    enum Handshake: Equatable {
        case done, waits
        /// `retries`: whether another attempt may succeed.
        case failed(String, retries: Bool)
    }

    static func handshake(_ session: TLSSession) -> Handshake {
        switch session.handshake() {
        case .done: .done
        case .wantsRead, .wantsWrite: .waits
        case .failed(let reason): .failed(reason, retries: session.failure == .ended)
        }
    }

    /// Receives bytes.
    ///
    /// A short read does not mean that the socket is empty; only `wouldBlock` does.
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

    /// Sends until the socket accepts no more; the caller must send the remaining bytes first.
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

    /// Starts or continues a handshake and counts its result; `peer` names the connection's kind for messages.
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

    /// Corrects the counts after a refused client certificate; with TLS 1.3 the refusal arrives after the client's handshake.
    mutating func noteRefusal(_ tls: TLSSession?) -> Bool {
        guard tls?.failure == .refusedByPeer else { return false }
        tally.failedHandshakes += 1
        tally.handshakes -= 1
        return true
    }
}
