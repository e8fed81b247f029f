// Declarations of Apple's Network that the client uses. Only to check types against.
public import Dispatch
public import Foundation
public import Security

public enum NWError: Error {
    case posix(Int32)
}

public enum NWEndpoint {
    public struct Host: Sendable { public init(_ text: String) {} }
    public struct Port: Sendable { public init?(rawValue: UInt16) {} }
}

public enum NWProtocolTCP {
    public final class Options {
        public var noDelay = false
        public init() {}
    }
}

public enum NWProtocolTLS {
    public final class Options {
        public let securityProtocolOptions: sec_protocol_options_t
        public init() { fatalError() }
    }
}

public final class NWParameters {
    public init(tls: NWProtocolTLS.Options?, tcp: NWProtocolTCP.Options = NWProtocolTCP.Options()) {}
}

public final class NWConnection: Sendable {
    public enum State { case setup, waiting(NWError), preparing, ready, failed(NWError), cancelled }
    public final class ContentContext: Sendable {
        public static let finalMessage = ContentContext()
        public static let defaultMessage = ContentContext()
    }
    public enum SendCompletion {
        case contentProcessed(@Sendable (NWError?) -> Void)
        case idempotent
    }

    public init(host: NWEndpoint.Host, port: NWEndpoint.Port, using: NWParameters) {}
    public var stateUpdateHandler: (@Sendable (State) -> Void)? {
        get { nil }
        set {}
    }
    public func start(queue: DispatchQueue) {}
    public func cancel() {}
    public func send(
        content: Data?, contentContext: ContentContext = .defaultMessage, isComplete: Bool = true,
        completion: SendCompletion
    ) {}
    public func receive(
        minimumIncompleteLength: Int, maximumLength: Int,
        completion: @escaping @Sendable (Data?, ContentContext?, Bool, NWError?) -> Void
    ) {}
}

public struct NWPath: Sendable {
    public enum Status: Sendable { case satisfied, unsatisfied, requiresConnection }
    public var status: Status
    public func usesInterfaceType(_ type: NWInterface.InterfaceType) -> Bool { false }
}
public struct NWInterface: Sendable {
    public enum InterfaceType: Sendable { case other, wifi, cellular, wiredEthernet, loopback }
}

public final class NWPathMonitor: Sendable {
    public init() {}
    public var pathUpdateHandler: (@Sendable (NWPath) -> Void)? {
        get { nil }
        set {}
    }
    public func start(queue: DispatchQueue) {}
    public func cancel() {}
}
