/// The product's version, as `--version`, `/metrics` and the log give it.
package enum Version {
    package static let text = "0.1.0"
}
