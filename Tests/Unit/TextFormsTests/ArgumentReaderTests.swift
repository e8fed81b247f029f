import Testing

@testable import TextForms

@Suite("Arguments")
struct ArgumentReaderTests {
    private func reader(_ words: String...) -> ArgumentReader<ArgumentFault> { ArgumentReader(words) { $0 } }

    @Test("options and operands are distinguished by their dashes")
    func words() throws {
        var reader = reader("live", "-", "", "--", "-h", "-a=b", "--all", "--név", "---")
        var words: [ArgumentWord] = []
        while let word = try reader.next() { words.append(word) }
        #expect(
            words == [
                .operand("live"), .operand("-"), .operand(""), .option("--"), .option("-h"), .option("-a=b"),
                .option("--all"), .option("--név"), .option("---"),
            ])
        #expect(try reader.next() == nil)
    }

    @Test("a value follows the equals sign or is the next word, whatever its form")
    func values() throws {
        var reader = reader("--a=b=c", "--b", "--c", "--d=", "-e", "-", "--=f", "--last")
        var (names, values): ([ArgumentWord], [String]) = ([], [])
        while let word = try reader.next(), word != .option("--last") {
            names.append(word)
            values.append(try reader.value())
        }
        #expect(names == ["--a", "--b", "--d", "-e", "--"].map { .option($0) })
        #expect(values == ["b=c", "--c", "", "-", "f"])
        let fault = #expect(throws: ArgumentFault.needsValue(option: "--last")) { try reader.value() }
        #expect(fault?.description == "--last needs a value")
    }

    @Test("a value is consumed when read, so a second one is the next word")
    func secondValue() throws {
        var reader = reader("--pair=a", "b")
        #expect(try reader.next() == .option("--pair"))
        #expect(try reader.value() == "a")
        #expect(try reader.value() == "b")
        #expect(try reader.next() == nil)
    }

    @Test("a value of another form is refused with its option's name")
    func forms() throws {
        var reader = reader("--count=12", "--seconds", "1.5", "--count", "many")
        #expect(try reader.next() == .option("--count"))
        #expect(try reader.value(as: Int.self) == 12)
        #expect(try reader.next() == .option("--seconds"))
        #expect(try reader.value(as: Double.self) == 1.5)
        #expect(try reader.next() == .option("--count"))
        let fault = #expect(throws: ArgumentFault.self) { try reader.value(as: Int.self) }
        #expect(fault == .badValue(option: "--count", value: "many"))
        #expect(fault?.description == "--count cannot be \"many\"")
    }

    @Test(
        "an unused value is refused, also that of the last word",
        arguments: [["--quiet=1"], ["--quiet=", "x"]])
    func switches(words: [String]) throws {
        var reader = ArgumentReader(["--quiet", "live"] + words) { $0 }
        #expect(try reader.next() == .option("--quiet"))
        #expect(try reader.next() == .operand("live"))
        #expect(try reader.next() == .option("--quiet"))
        let fault = #expect(throws: ArgumentFault.takesNoValue(option: "--quiet")) { try reader.next() }
        #expect(fault?.description == "--quiet takes no value")
    }
}
