import Cryptography
import Glibc

final class TemporaryFolder {
    let path: String

    init() {
        var template = Array("/tmp/longwire-test-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { preconditionFailure("no temporary folder: \(errno)") }
        path = template.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }
    }

    deinit {
        for name in names { unlink("\(path)/\(name)") }
        for name in names { rmdir("\(path)/\(name)") }
        rmdir(path)
    }

    var names: [String] {
        guard let folder = opendir(path) else { return [] }
        defer { closedir(folder) }
        var names: [String] = []
        while let entry = readdir(folder) {
            // Read in place: the entry is only as long as its name, so a copy of the whole field would read past it.
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            if name != ".", name != ".." { names.append(name) }
        }
        return names.sorted()
    }

    @discardableResult
    func write(_ name: String, _ text: String, mode: mode_t = 0o600) -> String {
        let file = "\(path)/\(name)"
        let descriptor = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
        precondition(descriptor >= 0, "cannot write \(file)")
        _ = text.utf8CString.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count - 1) }
        close(descriptor)
        chmod(file, mode)
        return file
    }

    /// Writes a self-signed certificate and its key.
    func writeCertificate(_ name: String, key: String) throws {
        try SelfSignedCertificate.write(
            names: "DNS:localhost", days: 2, certificatePath: "\(path)/\(name)", keyPath: "\(path)/\(key)")
    }
}
