import Testing

@testable import TextForms

@Suite("Base 64")
struct Base64Tests {
    @Test("base 64 survives a round trip at every length, and invalid text is refused")
    func base64() {
        for count in 0..<20 {
            let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 * 37 + 251) }
            for alphabet in [Base64.Alphabet.standard, .url] {
                #expect(Base64.decode(Array(Base64.encode(bytes, alphabet).utf8), alphabet) == bytes)
            }
        }
        #expect(Base64.encode(Array("hello".utf8), .standard) == "aGVsbG8=")
        for text in ["a", "aGVsbG8", "aGVsbG9=", "aGVs*G8=", "====", "aGVsbG8-"] {
            #expect(Base64.decode(Array(text.utf8), .standard) == nil, "\(text)")
        }
    }
}
