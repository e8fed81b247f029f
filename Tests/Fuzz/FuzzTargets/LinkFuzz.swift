internal import Gateway

/// Frames as another gateway could send them over a link: what is read, written and read again stays the same.
///
/// Input: a byte for the size of the pieces in which they come, then the frames.
enum LinkFuzz {
    static func run(_ input: [UInt8]) throws {
        guard let first = input.first else { return }
        // A copy of its own size, so that a read past the frames is one past an allocation.
        let frames = Array(input.dropFirst())
        let problem = LinkInspection.problem(in: frames, pieceByteCount: first == 0 ? frames.count : Int(first))
        try require(problem == nil, problem ?? "")
    }
}
