import Platform
import PushAPI
import Testing

@testable import Gateway

@Suite("Rows of void tokens")
struct VoidTokenTests {
    @Test("a row goes when its token's day is over, and the row of a token that is in force stays")
    func rows() throws {
        let (old, young) = (TokenID(expiresAt: 3_600_000, random: 1), TokenID(expiresAt: .max, random: 2))
        try SmallGateway.run(lives: 3) { gateway, life in
            let isDone = Flag()
            let loaded = gateway.context.revokedTokens.all
            switch life {
            case 0:
                gateway.context.members[0].submit { loop in
                    MetaRows.write(old, on: loop, done: {}, failed: {})
                    MetaRows.write(young, on: loop, done: { isDone.set() }, failed: {})
                }
            case 1:
                #expect(Set(loaded) == [old, young])
                for _ in 0..<6_000 where !isDone.isSet {
                    gateway.context.members[0].submit { loop in
                        guard loop.publicFront.api.tokens.revokedTokens.count == 1 else { return }
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
}
