/// The product's version in `--version`, `/metrics` and the log.
package enum Version {
    package static let text = "0.1.0"
}
