import Testing

@testable import Cluster

@Suite("The member information of a gateway")
struct MemberInfoTests {
    private func info(_ marks: [String]) -> MemberInfo {
        var info = MemberInfo()
        info.secretMarks = marks
        return info
    }

    @Test("the text survives parsing, and words of later releases are skipped")
    func text() {
        var info = info(["ab", "cd"])
        (info.address, info.release, info.lapseCount) = ("10.0.0.1:7100", "1.2", 3)
        #expect(MemberInfo(text: info.text) == info)
        #expect(MemberInfo(text: info.text + " later=1 other") == info)
        #expect(MemberInfo(text: "") == MemberInfo())
    }

    @Test("adjacent steps of a secret's change can connect, and no step can be skipped")
    func secrets() {
        let steps = [["old"], ["old", "new"], ["new", "old"], ["new"]].map { info($0) }
        for (place, step) in steps.enumerated() {
            for (other, next) in steps.enumerated() {
                #expect(step.sharesSecret(with: next) == (abs(place - other) <= 1), "\(place) and \(other)")
                #expect(step.sharesSecret(with: next) == next.sharesSecret(with: step))
            }
        }
        #expect(info([]).sharesSecret(with: info([])) && !info([]).sharesSecret(with: info(["old"])))
    }
}
