internal import Cluster
internal import Platform
internal import TextForms

/// Joins the register, and waits for members whose lease will end.
struct ClusterJoin {
    let request: JoinRequest
    let name: String
    var timing = ClusterTiming()
    var now: () -> Int64 = { SystemClock.monotonicTime }

    /// Joins.
    ///
    /// A member may stand in the way: it works alone, has this gateway's address, or has another secret. One that was killed
    /// keeps its lease for a moment, and leases begin again when the register was away. So one that is still there after
    /// three leases runs.
    ///
    /// - Parameters:
    ///   - register: the cluster's.
    ///   - pause: waits before the next try; its argument is the reason.
    /// - Returns: the reply, and when the call that got it was sent.
    /// - Throws: `ClusterFailure` for what an operator has to change, and what `pause` throws.
    func join(
        _ register: some ClusterRegister, pause: (_ trouble: String) throws -> Void
    ) throws -> (reply: JoinReply, sentAt: Int64) {
        // When the member that stands in the way must have ended, if it does not live.
        var end: Int64?
        while true {
            let trouble: String
            do throws(RegisterError) {
                let sentAt = now()
                let reply = try register.join(request)
                guard let stranger = stranger(in: reply) else { return (reply, sentAt) }
                // As a member this gateway would own parts that the others cannot reach.
                do throws(RegisterError) { try register.leave(reply.node, instance: request.instance) } catch {}
                trouble = stranger
            } catch {
                trouble = "\(error)"
                switch error {
                case .worksAlone, .addressTaken: break
                case .unavailable, .isFull, .isCopied(isTarget: false, _):
                    end = nil
                    try pause(trouble)
                    continue
                default: throw ClusterFailure(description: TerminalText.plain(trouble))
                }
            }
            let time = now()
            guard time < end ?? .max else { throw ClusterFailure(description: TerminalText.plain(trouble)) }
            end = end ?? time + 3 * timing.lease
            try pause(trouble)
        }
    }

    /// The description of a member with another secret; `nil`: there is none.
    private func stranger(in reply: JoinReply) -> String? {
        let strangers = reply.snapshot.members.filter {
            $0.key != reply.node && !request.info.sharesSecret(with: $0.value.info)
        }
        guard let (node, member) = strangers.min(by: { $0.key < $1.key }) else { return nil }
        return
            "cluster.secretFile: gateway \(node) at \(member.info.address) of cluster \(name) has another secret; give all "
            + "gateways of a cluster the same one. To change it, see \"Changing the secret\" in docs/use/Cluster.md"
    }
}
