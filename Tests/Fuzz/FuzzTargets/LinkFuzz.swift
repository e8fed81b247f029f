internal import Gateway

/// Frames of another gateway on a link: rereading written frames yields the same frames.
///
/// Input: a byte for the size of the pieces, then the frames.
enum LinkFuzz {
    static func run(_ input: [UInt8]) throws {
        guard let first = input.first else { return }
        // A separate allocation lets AddressSanitizer detect a read past the frames.
        let frames = Array(input.dropFirst())
        let problem = LinkInspection.problem(in: frames, pieceByteCount: first == 0 ? frames.count : Int(first))
        try require(problem == nil, problem ?? "")
    }
}
