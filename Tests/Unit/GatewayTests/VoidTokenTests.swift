import Delivery
import Platform
import PushAPI
import Wire
import Testing

@testable import Gateway

@Suite("Rows of revoked tokens")
struct VoidTokenTests {
    @Test("a revoked token's row is removed when the token expires, and not before")
    func rows() throws {
        let (old, young) = (TokenID(expiresAt: 3_600_000, random: 1), TokenID(expiresAt: .max, random: 2))
        try SmallGateway.run(lives: 3) { gateway, life in
            let isDone = Flag()
            let loaded = gateway.context.revokedTokens.all
            switch life {
            case 0:
                gateway.context.submit(to: 0) { loop in
                    MetaRows.write(old, on: loop, done: {}, failed: {})
                    MetaRows.write(young, on: loop, done: { isDone.set() }, failed: {})
                }
            case 1:
                #expect(Set(loaded) == [old, young])
                for _ in 0..<6_000 where !isDone.isSet {
                    gateway.context.submit(to: 0) { loop in
                        guard loop.host.publicHandler.api.tokens.revokedTokens.count == 1 else { return }
                        loop.afterMeta({ isDone.set() }, failed: {})
                    }
                    _ = SmallGateway.isSet(isDone, atMost: 1)
                }
            default:
                #expect(loaded == [young])
                isDone.set()
            }
            #expect(SmallGateway.isSet(isDone))
        }
    }

    @Test("a token whose revocation fails does not count, and a full gateway reports it")
    func refused() throws {
        let (app, lasting) = (AppKey(1), GatewayTime.max)
        try SmallGateway.run(loops: 2) { gateway in
            let (isFull, isAnswered, refusals) = (Flag(), Flag(), Lock<[APIResponse?]>([]))
            gateway.context.hosts[0].submit { loop in
                // Only the loop that writes the rows knows of these tokens.
                let all = (0..<UInt64(Limits.revokedTokens)).map { TokenID(expiresAt: lasting, random: $0) }
                loop.publicHandler.api.tokens = TokenAuthority(key: loop.context.tokenKey, revoked: RevokedTokens(all))
                loop.publicHandler.void(TokenID(expiresAt: lasting, random: .max), of: app) { refusal in
                    refusals.withLock { $0.append(refusal) }
                    isFull.set()
                }
            }
            #expect(SmallGateway.isSet(isFull))
            gateway.context.hosts[1].submit { loop in
                loop.publicHandler.void(TokenID(expiresAt: lasting, random: .max), of: app) { refusal in
                    refusals.withLock { $0.append(refusal) }
                    isAnswered.set()
                }
            }
            #expect(SmallGateway.isSet(isAnswered))
            #expect(refusals.withLock { $0 } == [.tooManyRevokedInAll, .busy])
            var free = 0
            while gateway.context.usage.revocations.withLock({
                $0.take(TokenID(expiresAt: lasting, random: 0), of: app, now: 0)
            }) { free += 1 }
            #expect(free == Limits.revokedTokensOfApp)
        }
    }
}
