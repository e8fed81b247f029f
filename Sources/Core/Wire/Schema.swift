/// The codec's schema, from the enums that encoding and decoding use; a test compares it with the descriptors of `protoc`.
package enum Schema {
    package struct Field: Equatable, Sendable {
        /// The schema's JSON name, such as `appId` for `app_id`.
        package var name: String
        package var number: UInt32
        package var shape: FieldShape
    }

    package struct Message: Sendable {
        package var name: String
        /// `nil` for an embedded message.
        package var frameType: FrameType?
        package var fields: [Field]
    }

    package static var messages: [Message] {
        [
            frame(Hello.self), frame(Welcome.self), frame(Close.self), frame(Ping.self), frame(Pong.self),
            frame(Deliver.self), frame(Ack.self), frame(DeviceUpdate.self), frame(UpdateResult.self),
            frame(Feedback.self), frame(Revoke.self), frame(Upstream.self), frame(UpstreamResult.self),
            frame(Publish.self), frame(PublishResult.self), frame(DeviceNames.self), frame(DeviceNamesResult.self),
            part(VendorToken.self), part(DeviceAttributes.self), part(SequenceRange.self), part(StreamPosition.self),
            part(Dropped.self),
            part(Alert.self), part(Rejected.self),
        ]
    }

    private static func frame<Body: WireMessage>(_ type: Body.Type) -> Message {
        Message(name: "\(type)", frameType: Body.frameType, fields: fields(of: type))
    }

    private static func part<Body: MessageBody>(_ type: Body.Type) -> Message {
        Message(name: "\(type)", frameType: nil, fields: fields(of: type))
    }

    private static func fields<Body: MessageBody>(of _: Body.Type) -> [Field] {
        Body.Field.allCases.map { Field(name: "\($0)", number: $0.rawValue, shape: $0.shape) }
    }
}
