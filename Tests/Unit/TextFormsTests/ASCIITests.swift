import Testing
import TextForms

@Suite("Classes of ASCII characters")
struct ASCIITests {
    @Test("the neighbors of digits and letters are neither")
    func neighbours() {
        let digits = (0...UInt8.max).filter(\.isDigit), letters = (0...UInt8.max).filter(\.isLetter)
        #expect(String(decoding: digits, as: UTF8.self) == "0123456789")
        #expect(String(decoding: letters, as: UTF8.self) == "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
        let hexDigits = (0...UInt8.max).filter(\.isHexDigit)
        #expect(String(decoding: hexDigits, as: UTF8.self) == "0123456789ABCDEFabcdef")
        #expect("a-Z_9".isPlain(with: "-_") && !"a-Z".isPlain() && !"ä".isPlain(with: "-"))
    }

    @Test(
        "a UUID has its dashes and otherwise only digits",
        arguments: [
            ("123E4567-e89b-12d3-a456-426614174000", true), ("123E4567-e89b-12d3-a456-42661417400", false),
            ("123E4567e-89b-12d3-a456-426614174000", false), ("123G4567-e89b-12d3-a456-426614174000", false),
            ("", false),
        ])
    func uuid(text: String, isOne: Bool) { #expect(text.isUUID == isOne) }

    private static let percents: [(String, String?)] = [
        ("a%2Fb%c3%A4", "a/bä"), ("%", nil), ("%4", nil), ("%+f", nil), ("%G0", nil), ("", ""),
    ]

    @Test("a percent sign precedes two digits", arguments: percents)
    func percent(text: String, decoded: String?) {
        #expect(text.utf8.percentDecoded().map { String(decoding: $0, as: UTF8.self) } == decoded)
    }
}
