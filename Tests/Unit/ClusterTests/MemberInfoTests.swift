import Testing

@testable import Cluster

@Suite("What a gateway says of itself")
struct MemberInfoTests {
    private func info(_ marks: [String]) -> MemberInfo {
        var info = MemberInfo()
        info.secretMarks = marks
        return info
    }

    @Test("its text is read back, and words of later releases are passed over")
    func text() {
        var info = info(["ab", "cd"])
        (info.address, info.release, info.lapseCount) = ("10.0.0.1:7100", "1.2", 3)
        #expect(MemberInfo(text: info.text) == info)
        #expect(MemberInfo(text: info.text + " later=1 other") == info)
        #expect(MemberInfo(text: "") == MemberInfo())
    }

    @Test("each step of a change of the secret can talk to the next, and no step can be left out")
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
