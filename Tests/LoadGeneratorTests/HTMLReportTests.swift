import Foundation
import FoundationXML
import Testing

@testable import LoadGenerator

@Suite("HTML report")
struct HTMLReportTests {
    /// Collects elements and their attributes; fails on anything that is not well-formed.
    private final class Reader: NSObject, XMLParserDelegate {
        var elements: [(name: String, attributes: [String: String])] = []
        var text = ""

        func parser(
            _ parser: XMLParser, didStartElement name: String, namespaceURI: String?, qualifiedName: String?,
            attributes: [String: String]
        ) {
            elements.append((name, attributes))
        }

        func parser(_ parser: XMLParser, foundCharacters string: String) { text += string }
    }

    private func full() throws -> (report: Report, conditions: [Requirement]) {
        var report = Report(title: "live: <script>alert(\"x\")</script> & more")
        report.add("rate", 50_000, "messages delivered a second")
        report.failures = ["Close 401 <bad>\u{1} & \"worse\"": 3]
        report.notes = ["a < b"]
        report.gatewayProcess = 5
        let start: Int64 = 7_000_000_000
        for step in 0..<50 {
            var sample = Sampler.Sample(time: start + Int64(step) * 200_000_000)
            (sample.accepted, sample.delivered) = (step * 1_000, step * 990)
            sample.serverCPU = step % 9 == 3 ? nil : Int64(step) * 100_000_000
            sample.serverMemory = 50_000_000 + step * 10_000
            sample.generatorCPU = Int64(step) * 50_000_000
            report.samples.append(sample)
        }
        report.series.begin(at: start, length: 10_000_000_000)
        var histogram = Histogram()
        for index in 0..<10_000 {
            let value = Int64(200_000 + index * index)
            report.series.record(value, at: start + Int64(index) * 900_000)
            histogram.record(value)
        }
        report.curves = [("publish to deliver", histogram), ("nothing", Histogram())]
        return (report, [try Requirement(parsing: "rate>=60k/s", mode: .live)])
    }

    private func read(_ page: String) throws -> Reader {
        let parser = XMLParser(data: Data(page.utf8))
        let reader = Reader()
        parser.delegate = reader
        #expect(parser.parse(), "\(String(describing: parser.parserError)) in line \(parser.lineNumber)")
        return reader
    }

    @Test("the page is well-formed, has all plots, and shows what a gateway said as text")
    func wellFormed() throws {
        let (report, conditions) = try full()
        let reader = try read(HTMLReport(report, mode: .live, conditions).text)
        let count = { (name: String) in reader.elements.count { $0.name == name } }
        #expect(count("svg") == 5 && count("figure") == 5 && count("script") == 0)
        #expect(reader.text.contains("<script>alert(\"x\")</script>"))
        #expect(reader.text.contains("FAILED  rate>=60k/s"))
        for title in [
            "Throughput over time", "Latency by percentile", "Latency over time", "CPU over time", "memory over time",
        ] {
            #expect(reader.text.contains(title), "\(title)")
        }
        // Two lines of throughput, one curve, three of latency, two of CPU, one of memory.
        #expect(reader.elements.count { $0.attributes["class"]?.hasPrefix("line ") == true } == 9)
    }

    @Test("the page asks nobody for anything, and is readable in light and dark")
    func selfContained() throws {
        let (report, conditions) = try full()
        let page = HTMLReport(report, mode: .live, conditions).text
        let reader = try read(page)
        for element in reader.elements {
            for name in ["src", "href", "srcset", "data", "action", "background", "poster", "xlink:href", "style"] {
                #expect(element.attributes[name] == nil, "<\(element.name) \(name)>")
            }
            #expect(!["link", "script", "iframe", "object", "embed", "img", "base"].contains(element.name))
        }
        for part in ["url(", "@import", "@font-face"] { #expect(!page.contains(part)) }
        // The namespace is a name, not an address that anybody fetches.
        #expect(page.components(separatedBy: "http").count == 2)
        #expect(page.contains("prefers-color-scheme:dark"))
    }

    @Test("coordinates stay inside the drawing")
    func inside() throws {
        let (report, conditions) = try full()
        for element in try read(HTMLReport(report, mode: .live, conditions).text).elements {
            guard let path = element.attributes["d"] else { continue }
            let numbers = path.split { "MLHV ".contains($0) }.compactMap { Double($0) }
            #expect(!numbers.isEmpty)
            #expect(numbers.allSatisfy { (0...720).contains($0) }, "\(path)")
        }
    }

    @Test("a run without samples has a page without plots, not a broken one", arguments: Mode.allCases)
    func empty(mode: Mode) throws {
        var report = Report(title: "nothing")
        report.samples = [Sampler.Sample(time: 5)]
        let reader = try read(HTMLReport(report, mode: mode, []).text)
        #expect(!reader.elements.contains { $0.name == "svg" })
    }

    @Test("the logarithm is good enough for a diagram")
    func logarithm() {
        for (value, expected) in [(1.0, 0.0), (10, 1), (1e9, 9), (0.001, -3), (2.0, 0.30103), (1.999, 0.300813)] {
            #expect(abs(Plot.logarithm(value) - expected) < 0.001)
        }
    }
}
