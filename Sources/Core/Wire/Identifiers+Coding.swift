// Codable conformances for messages between gateways. A coder that knows these types may encode them more compactly.

extension WideIdentifier {
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(description)
    }

    /// Reads the text form and throws for any other text.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        guard let identifier = Self(try container.decode(String.self)) else {
            throw DecodingError.dataCorruptedError(in: container, debugDescription: "no identifier")
        }
        self = identifier
    }
}

extension DeviceID: Codable {}
extension MessageID: Codable {}
extension TaskID: Codable {}

extension Bucket: Codable {
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(index)
    }

    /// Reads the bucket's number and throws if it is out of range.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        guard let bucket = Bucket(exactly: UInt64(try container.decode(UInt16.self))) else {
            throw DecodingError.dataCorruptedError(in: container, debugDescription: "no such bucket")
        }
        self = bucket
    }
}

extension AppKey: Codable {
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(word)
    }

    public init(from decoder: any Decoder) throws {
        self.init(try decoder.singleValueContainer().decode(UInt64.self))
    }
}
