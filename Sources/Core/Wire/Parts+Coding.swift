extension VendorToken: MessageBody {
    package enum Field: UInt32, MessageField {
        case kind = 1, environment, topic, token, channel, activity

        package var shape: FieldShape {
            switch self {
            case .kind, .environment, .channel: .enumeration
            case .topic, .token, .activity: .string
            }
        }
    }

    package init() { self.init(kind: .alert) }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while let field = try cursor.next(Field.self, in: bytes) {
            switch field {
            case .kind: kind = try cursor.knownValue(Kind.self, field, in: bytes)
            case .environment: environment = try cursor.knownValue(Environment.self, field, in: bytes)
            case .topic: topic = try cursor.string(field, limit: Limits.topicByteCount, in: bytes)
            case .token: token = try cursor.string(field, limit: Limits.tokenByteCount, in: bytes)
            // An unknown channel is possible only if the field occurs twice, because `Cursor.token` skips tokens of unknown
            // channels.
            case .channel: channel = try cursor.vendor(in: bytes) ?? channel
            case .activity: activity = try cursor.string(field, limit: Limits.activityByteCount, in: bytes)
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.value(kind, Field.kind)
        sink.value(environment, Field.environment)
        sink.text(topic, Field.topic)
        sink.text(token, Field.token)
        sink.value(channel, Field.channel)
        sink.text(activity, Field.activity)
    }
}

extension VendorToken {
    /// Returns whether this version knows the token's channel; the other fields are not validated.
    fileprivate static func isOfKnownChannel(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) -> Bool {
        var cursor = Cursor(range)
        var isKnown = true
        while cursor.offset < cursor.end {
            let (number, wireType) = try cursor.tag(in: bytes)
            if number == Field.channel.rawValue, wireType == .varint {
                isKnown = try cursor.vendor(in: bytes) != nil
            } else {
                try cursor.skip(wireType, in: bytes)
            }
        }
        return isKnown
    }
}

extension Cursor {
    /// Reads a token's channel; `nil` for a channel of a later version, and for a follow-up channel, which has no tokens.
    fileprivate mutating func vendor(in bytes: RawSpan) throws(WireError) -> VendorChannel? {
        let channel = try value(VendorChannel.self, in: bytes)
        return channel?.isFollowUp == true ? nil : channel
    }

    /// Appends one token of a list.
    ///
    /// A token of an unknown channel is skipped, because a client may support more channels than its gateway. A token that is too
    /// long, has invalid text or exceeds the count is rejected alone.
    mutating func token(
        of list: inout [VendorToken], refused: inout RefusedTokens, _ field: some MessageField, in bytes: RawSpan
    ) throws(WireError) {
        var behind = self
        let range = try behind.lengthDelimited(in: bytes)
        guard try VendorToken.isOfKnownChannel(bytes, at: range) else {
            self = behind
            return
        }
        do throws(WireError) {
            try element(of: &list, field, limit: Limits.tokenCount, in: bytes)
            return
        } catch .tooLong {
            refused.note(.tooLong)
        } catch .badText {
            refused.note(.badText)
        } catch .tooMany {
            refused.note(.tooMany)
        }
        self = behind
    }
}

extension SequenceRange: MessageBody {
    package enum Field: UInt32, MessageField {
        case first = 1, last

        package var shape: FieldShape { .uint64 }
    }

    package init() { self.init(first: 0) }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while let field = try cursor.next(Field.self, in: bytes) {
            switch field {
            case .first: first = try cursor.varint(in: bytes)
            case .last: last = try cursor.varint(in: bytes)
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.number(first, Field.first)
        sink.number(last, Field.last)
    }
}

extension StreamPosition: MessageBody {
    package enum Field: UInt32, MessageField {
        case stream = 1, sequence, ranges

        package var shape: FieldShape {
            switch self {
            case .stream: .uint32
            case .sequence: .uint64
            case .ranges: .message.repeated
            }
        }
    }

    package init() { self.init(stream: 0) }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while let field = try cursor.next(Field.self, in: bytes) {
            switch field {
            case .stream: stream = try cursor.uint32(in: bytes)
            case .sequence: sequence = try cursor.varint(in: bytes)
            case .ranges: try cursor.element(of: &ranges, field, limit: Limits.rangeCount, in: bytes)
            }
        }
        // The ranges are checked at the end because the fields may arrive in any order.
        var floor = sequence
        for range in ranges { try range.check(beyond: &floor) }
    }

    package func write(to sink: inout some ByteSink) {
        sink.number(stream, Field.stream)
        sink.number(sequence, Field.sequence)
        sink.messages(ranges, Field.ranges)
    }
}

extension SequenceRange {
    /// Throws if the range is empty or does not begin above `floor`; otherwise sets `floor` to the range's end.
    ///
    /// Decoded ranges therefore ascend.
    func check(beyond floor: inout UInt64) throws(WireError) {
        guard first > floor, last >= first else { throw .badRange(field: StreamPosition.Field.ranges.rawValue) }
        floor = last
    }
}

extension Dropped: MessageBody {
    package enum Field: UInt32, MessageField {
        case reason = 1, count

        package var shape: FieldShape {
            switch self {
            case .reason: .string
            case .count: .uint64
            }
        }
    }

    package init() { self.init(count: 0) }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while let field = try cursor.next(Field.self, in: bytes) {
            switch field {
            case .reason: reason = try cursor.string(field, limit: Limits.reasonByteCount, in: bytes)
            case .count: count = try cursor.varint(in: bytes)
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.text(reason, Field.reason)
        sink.number(count, Field.count)
    }
}

extension Alert: MessageBody {
    package enum Field: UInt32, MessageField {
        case title = 1, body

        package var shape: FieldShape { .string }
    }

    package init() { self.init(title: "") }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while let field = try cursor.next(Field.self, in: bytes) {
            switch field {
            case .title: title = try cursor.string(field, limit: .max, in: bytes)
            case .body: body = try cursor.string(field, limit: .max, in: bytes)
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.text(title, Field.title)
        sink.text(body, Field.body)
    }
}

extension Alert {
    /// Merges a repeated occurrence of a message field into the earlier one, as protobuf requires.
    static func merge(_ bytes: RawSpan, at range: Range<Int>, into alert: inout Alert?) throws(WireError) {
        var whole = alert ?? Alert()
        try whole.merge(bytes, at: range)
        alert = whole
    }
}

extension Rejected: MessageBody {
    package enum Field: UInt32, MessageField {
        case stream = 1, sequence, reason

        package var shape: FieldShape {
            switch self {
            case .stream: .uint32
            case .sequence: .uint64
            case .reason: .string
            }
        }
    }

    package init() { self.init(stream: 0) }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while let field = try cursor.next(Field.self, in: bytes) {
            switch field {
            case .stream: stream = try cursor.uint32(in: bytes)
            case .sequence: sequence = try cursor.varint(in: bytes)
            case .reason: reason = try cursor.string(field, limit: Limits.reasonByteCount, in: bytes)
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.number(stream, Field.stream)
        sink.number(sequence, Field.sequence)
        sink.text(reason, Field.reason)
    }
}
