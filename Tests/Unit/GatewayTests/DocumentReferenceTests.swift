import Foundation
import Testing

/// Documents and comments reference headings, tests and planted faults.
///
/// These tests check that the targets exist.
///
/// A heading is named as `docs/Page.md, "Heading"`; a paragraph's bold opening words count as one. `docs/Semantics.md` names a
/// Swift test by suite and function, a pytest by file and function, a planted fault behind `planted:`.
@Suite("References between documents, code and tests")
struct DocumentReferenceTests {
    private let repository = Repository()

    @Test("every referenced heading exists")
    func headings() throws {
        var count = 0
        // This file contains examples without targets.
        for file in repository.files where !file.hasSuffix("/DocumentReferenceTests.swift") {
            for reference in Repository.references(in: try repository.joined(file)) {
                count += 1
                let folders = ["", "docs/", "docs/use/", "docs/build/", "docs/results/"]
                let page = folders.map { $0 + reference.page }.first { repository.exists($0) }
                guard let page else {
                    Issue.record("\(file) names \(reference.page), which does not exist")
                    continue
                }
                let isThere = try repository.headings(page).contains(reference.title)
                #expect(isThere, "\(file) names \"\(reference.title)\" of \(page)")
            }
        }
        #expect(count > 30, "\(count) references were found")
    }

    @Test("every link target exists, with the heading that the link names")
    func links() throws {
        var count = 0
        for file in repository.files where file.hasSuffix(".md") {
            let folder = file.split(separator: "/").dropLast()
            for link in try repository.joined(file).components(separatedBy: "](").dropFirst() {
                let target = link.prefix { $0 != ")" }
                guard !target.contains("://") else { continue }
                count += 1
                let parts = target.split(separator: "#", maxSplits: 1, omittingEmptySubsequences: false)
                let page = parts[0].isEmpty ? file : Repository.path(parts[0], from: folder)
                guard repository.exists(page) else {
                    Issue.record("\(file) links to \(target), which does not exist")
                    continue
                }
                guard parts.count == 2 else { continue }
                let anchors = try repository.headings(page).map(Repository.anchor)
                #expect(anchors.contains(String(parts[1])), "\(file) links to \(target)")
            }
        }
        #expect(count > 20, "\(count) links were found")
    }

    @Test("every test that a document names exists", arguments: ["docs/Semantics.md", "docs/Testing.md"])
    func tests(page: String) throws {
        let known = try repository.tests()
        let named = Repository.namedTests(in: try repository.joined(page))
        for name in named { #expect(known.contains(name), "\(page) names \(name)") }
        if page == "docs/Semantics.md" { #expect(named.count > 200, "\(named.count) tests are named") }
    }

    @Test("docs/Semantics.md names each planted fault and no other")
    func plantedFaults() throws {
        let source = try repository.text("Sources/Core/Delivery/PlantedFault.swift")
        let faults = source.split(separator: "\n").filter { $0.hasPrefix("    case ") }.map { String($0.dropFirst(9)) }
        #expect(faults.count > 30)
        let named = Set(Repository.namedFaults(in: try repository.joined("docs/Semantics.md")))
        for name in named { #expect(faults.contains(name), "\(name) is no planted fault") }
        for fault in faults { #expect(named.contains(fault), "no rule names \(fault)") }
    }

    @Test("a reference is found in each of its forms, and other text is not")
    func forms() {
        let text = """
            See (`docs/A.md`, "One: two"), B.md, "The `x`" and [C](C.md), "Three"; `D.md` alone, ["E.md", "F.md"]. In
            SomeTests.works and (OtherTests.isRight, test_a.py::test_b; planted: oneFault, twoFaults) | SomeTests.swift.
            """
        #expect(Repository.references(in: text).map(\.page) == ["docs/A.md", "B.md", "C.md"])
        #expect(Repository.references(in: text).map(\.title) == ["One: two", "The x", "Three"])
        #expect(
            Repository.namedTests(in: text).sorted()
                == ["OtherTests.isRight", "SomeTests.works", "test_a.py::test_b"])
        #expect(Repository.namedFaults(in: text) == ["oneFault", "twoFaults"])
        #expect(Repository.anchor("What it costs, counted") == "what-it-costs-counted")
    }
}

private struct Repository {
    struct Reference {
        var page: String
        var title: String
    }

    private static let endings = [".md", ".swift", ".py", ".sh", ".proto", ".yaml"]
    private let root: String
    /// Relative to the root, sorted.
    let files: [String]

    init() {
        let root = "/" + #filePath.split(separator: "/").dropLast(4).joined(separator: "/")
        var found = (try? FileManager.default.contentsOfDirectory(atPath: root)) ?? []
        for folder in ["Proto", "Sources", "Tests", "deploy", "docs"] {
            let below = (try? FileManager.default.subpathsOfDirectory(atPath: "\(root)/\(folder)")) ?? []
            found += below.map { "\(folder)/\($0)" }
        }
        found = found.filter { file in Self.endings.contains { file.hasSuffix($0) } }
        files = found.filter { !$0.contains("/.") }.sorted()
        self.root = root
    }

    func exists(_ path: String) -> Bool { FileManager.default.fileExists(atPath: "\(root)/\(path)") }

    func text(_ path: String) throws -> String {
        String(decoding: try Data(contentsOf: URL(filePath: "\(root)/\(path)")), as: UTF8.self)
    }

    /// Returns the text on one line, without comment and quotation markers.
    func joined(_ path: String) throws -> String {
        let text = try text(path)
        // A shortcut, because most files reference no page.
        guard text.contains(".md") || path.hasSuffix(".md") else { return "" }
        let lines = text.split(separator: "\n").map { line in
            line.drop { $0.isWhitespace }.drop { "/#*>".contains($0) }.trimmingCharacters(in: .whitespaces)
        }
        return lines.joined(separator: " ")
    }

    // MARK: Headings

    /// Returns headings and bold openings of paragraphs without backquotes, and the part before a colon.
    func headings(_ page: String) throws -> Set<String> {
        var found: Set<String> = []
        var isCode = false
        for line in try text(page).split(separator: "\n") {
            if line.hasPrefix("```") { isCode.toggle() }
            guard !isCode else { continue }
            var name: Substring
            if line.hasPrefix("#") {
                name = line.drop { $0 == "#" }
            } else if line.hasPrefix("**"), let end = line.dropFirst(2).firstIndex(of: "*") {
                name = line[..<end].dropFirst(2)
                if name.hasSuffix(".") { name.removeLast() }
            } else {
                continue
            }
            let title = Self.plain(name)
            found.insert(title)
            found.insert(String(title.prefix { $0 != ":" }))
        }
        return found
    }

    private static func plain(_ text: Substring) -> String {
        String(text.filter { $0 != "`" }).trimmingCharacters(in: .whitespaces)
    }

    /// Returns the anchor that the renderer creates: letters, digits, hyphens and underscores; spaces become hyphens.
    static func anchor(_ title: String) -> String {
        let kept = title.lowercased().filter { $0.isLetter || $0.isNumber || " -_".contains($0) }
        return String(kept.map { $0 == " " ? "-" : $0 })
    }

    /// Resolves a path relative to a folder, without `..`.
    static func path(_ target: Substring, from folder: ArraySlice<Substring>) -> String {
        var parts = Array(folder)
        for part in target.split(separator: "/") where part != "." {
            if part == ".." { _ = parts.popLast() } else { parts.append(part) }
        }
        return parts.joined(separator: "/")
    }

    // MARK: References

    private static func isOfPath(_ character: Character) -> Bool {
        character.isASCII && (character.isLetter || character.isNumber || "/-_.".contains(character))
    }

    private static func isOfName(_ character: Character) -> Bool {
        character.isASCII && (character.isLetter || character.isNumber || character == "_")
    }

    /// Finds `Page.md, "Heading"`, also with backquotes around the page or as a link's text.
    static func references(in text: String) -> [Reference] {
        var found: [Reference] = []
        let parts = text.components(separatedBy: ".md")
        for (before, after) in zip(parts, parts.dropFirst()) {
            var rest = after[...]
            for mark in ["`", ")"] where rest.hasPrefix(mark) { rest.removeFirst() }
            guard rest.hasPrefix(#", ""#) else { continue }
            let page = String(before.reversed().prefix(while: isOfPath).reversed()) + ".md"
            found.append(Reference(page: page, title: plain(rest.dropFirst(3).prefix { $0 != "\"" })))
        }
        return found
    }

    /// Finds tests by name: `SuiteTests.function` and `file.py::function`.
    static func namedTests(in text: String) -> Set<String> {
        var found: Set<String> = []
        for word in text.split(whereSeparator: { !isOfName($0) && $0 != "." }) {
            let parts = word.split(separator: ".")
            guard parts.count == 2, parts[0].hasSuffix("Tests"), parts[0] != "Tests", parts[1] != "swift" else {
                continue
            }
            found.insert("\(parts[0]).\(parts[1])")
        }
        let parts = text.components(separatedBy: ".py::")
        for (before, after) in zip(parts, parts.dropFirst()) {
            let file = String(before.reversed().prefix(while: isOfName).reversed())
            found.insert("\(file).py::\(after.prefix(while: isOfName))")
        }
        return found
    }

    /// Finds planted faults: the names after `planted:`, up to the end of the parenthesis or cell.
    static func namedFaults(in text: String) -> [String] {
        text.components(separatedBy: "planted:").dropFirst().flatMap { rest in
            rest.prefix { $0 != ")" && $0 != "|" }.split(separator: ",").map { plain($0) }
        }
    }

    // MARK: Tests

    /// Returns all tests with the names that documents use.
    func tests() throws -> Set<String> {
        var found: Set<String> = []
        for file in files where file.hasPrefix("Tests/") {
            if file.hasSuffix(".swift") {
                found.formUnion(Self.swiftTests(try text(file)))
            } else if file.hasSuffix(".py"), let name = file.split(separator: "/").last {
                for line in try text(file).split(separator: "\n") {
                    guard line.hasPrefix("def test_") || line.hasPrefix("async def test_") else { continue }
                    let function = line.components(separatedBy: "def ")[1].prefix(while: Self.isOfName)
                    found.insert("\(name)::\(function)")
                }
            }
        }
        return found
    }

    private static func swiftTests(_ text: String) -> [String] {
        var found: [String] = []
        var suite = ""
        var isTest = false
        for line in text.split(separator: "\n") {
            if line.first?.isWhitespace == false {
                let words = line.split { !isOfName($0) }
                for (kind, name) in zip(words, words.dropFirst()) where name.hasSuffix("Tests") {
                    if ["struct", "class", "enum", "extension"].contains(kind) { suite = String(name) }
                }
            }
            if line.drop(while: \.isWhitespace).hasPrefix("@Test") { isTest = true }
            guard isTest, let name = line.components(separatedBy: "func ").dropFirst().first else { continue }
            found.append("\(suite).\(name.prefix(while: isOfName))")
            isTest = false
        }
        return found
    }
}
