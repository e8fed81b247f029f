#if canImport(Darwin)
internal import Darwin
#elseif canImport(Glibc)
internal import Glibc
#elseif canImport(Musl)
internal import Musl
#endif

/// The client's thread: waits for the transport, the clock and the app, feeds the core, and performs its actions.
final class ClientRunner {
    private var core: ClientCore
    private let mailbox: ClientMailbox
    private let store: any StateStore
    private let handler: @Sendable (ReceivedMessage) -> MessageVerdict?
    private let withdraw: @Sendable (TaskID?) -> [ReceivedMessage]
    private let events: @Sendable (ClientEvent) -> Void
    private let makeTransport: TransportMaker
    private var connection: (any ClientTransport)?

    /// A function that starts a connection; the closure wakes the client's thread.
    typealias TransportMaker =
        (Endpoint, TransportSecurity?, @escaping @Sendable () -> Void) throws(TransportFailure) -> any ClientTransport

    // A handler that returns `nil` sends its verdict later, as a command. `withdraw` takes back the messages that no loop over
    // `messages` has received: those of a task, or all.
    init(
        core: ClientCore, mailbox: ClientMailbox, store: any StateStore,
        makeTransport: @escaping TransportMaker = { (endpoint, security, wake) throws(TransportFailure) in
            try SystemTransport(to: endpoint, security: security, wake: wake)
        },
        handler: @escaping @Sendable (ReceivedMessage) -> MessageVerdict?,
        withdraw: @escaping @Sendable (TaskID?) -> [ReceivedMessage] = { _ in [] },
        events: @escaping @Sendable (ClientEvent) -> Void
    ) {
        (self.core, self.mailbox, self.store, self.makeTransport) = (core, mailbox, store, makeTransport)
        (self.handler, self.withdraw, self.events) = (handler, withdraw, events)
    }

    func run() {
        let watch = NetworkWatch { [mailbox] in _ = mailbox.post(.networkChanged(name: $0)) }
        defer { withExtendedLifetime(watch) {} }
        core.start(at: System.now())
        finishTurn()
        while !core.isStopped {
            waitForSomething()
            for command in mailbox.take() { core.perform(command, at: System.now()) }
            serveConnection()
            core.wake(at: System.now())
            finishTurn()
        }
        connection = nil
        // Taps and reports that arrived after the stop are kept for the next session.
        for command in mailbox.shut() { core.perform(command, at: System.now()) }
        finishTurn()
    }

    private func waitForSomething() {
        var descriptors = [pollfd(fd: mailbox.readDescriptor, events: Int16(POLLIN), revents: 0)]
        if let interest = connection?.interest {
            descriptors.append(pollfd(fd: interest.descriptor, events: interest.events, revents: 0))
        }
        var timeout: CInt = -1
        if connection?.hasMoreToRead == true {
            timeout = 0
        } else if let deadline = [core.deadline, connection?.deadline].compactMap({ $0 }).min() {
            // One extra millisecond: both clocks round down, so the thread could wake too early and would poll again.
            timeout = CInt(clamping: max(0, deadline - System.now().monotonic + 1))
        }
        _ = poll(&descriptors, nfds_t(descriptors.count), timeout)
    }

    /// All calls are non-blocking, so the result of `poll` is not needed.
    private func serveConnection() {
        guard let connection else { return }
        do throws(TransportFailure) {
            if !connection.isOpen {
                try connection.serve()
                guard connection.isOpen else { return }
                core.connected(at: System.now())
            }
            // Reads first: if the gateway has closed, its Close frame is more useful than a write error.
            let bytes = try connection.read()
            if !bytes.isEmpty { core.receive(bytes, at: System.now()) }
            try connection.serve()
        } catch {
            self.connection = nil
            core.disconnected(reason: error.reason, at: System.now())
        }
    }

    private func finishTurn() {
        repeat {
            perform(core.takeActions())
            core.endTurn(at: System.now())
        } while !core.actions.isEmpty
    }

    private func perform(_ actions: [ClientAction]) {
        for (index, action) in actions.enumerated() {
            switch action {
            case .connect(let endpoint): connect(to: endpoint)
            case .send(let bytes): send(bytes)
            case .disconnect:
                connection?.closeGracefully()
                connection = nil
            case .report(let event): events(event)
            case .handle(let message): if let verdict = handler(message) { core.finish(message, verdict) }
            case .withdraw: for message in withdraw(nil) { core.finish(message, .deferred) }
            case .revoke(let task, let sequence):
                // The app must not receive a message after its revoke.
                for message in withdraw(task) { core.finish(message, .processed) }
                events(.revoked(task))
                core.finishRevoke(sequence)
            case .persist(let state):
                do {
                    try store.save(state)
                } catch {
                    // The actions after a failed store, such as an ack, must not run.
                    return core.persistFailed(
                        Self.describe(error), skipping: actions[(index + 1)...], at: System.now())
                }
            }
        }
    }

    private static func describe(_ error: any Error) -> LongwireClientError {
        error as? LongwireClientError ?? LongwireClientError(code: .stateUnwritable, message: "\(error)")
    }

    private func connect(to endpoint: Endpoint) {
        let configuration = core.configuration
        let security =
            configuration.usesTLS
            ? TransportSecurity(
                trustedCertificatesPath: configuration.trustedCertificatesPath,
                pins: configuration.pinnedCertificates, certificatePath: configuration.clientCertificatePath,
                keyPath: configuration.clientKeyPath) : nil
        do {
            connection = try makeTransport(endpoint, security) { [mailbox] in mailbox.wake() }
        } catch {
            core.disconnected(reason: error.reason, at: System.now())
        }
    }

    private func send(_ bytes: [UInt8]) {
        do {
            try connection?.write(bytes)
        } catch {
            connection = nil
            core.disconnected(reason: error.reason, at: System.now())
        }
    }
}
