internal import Cluster
internal import Platform
internal import TextForms

/// Joins the register, and waits for the lease of a conflicting member to expire.
struct ClusterJoin {
    let request: JoinRequest
    let name: String
    var timing = ClusterTiming()
    var now: () -> Int64 = { SystemClock.monotonicTime }

    /// Joins the register, with retries.
    ///
    /// A member conflicts if it or this gateway has no `cluster.listen`, if it has this gateway's address, or if it has another
    /// secret. A crashed member keeps its lease until expiry, and all leases are extended after a register outage. A member that
    /// remains for three leases is therefore running.
    ///
    /// - Parameters:
    ///   - register: The cluster's register.
    ///   - pause: Waits before the next try; its argument is the reason.
    /// - Returns: The reply, and the time at which its call was sent.
    /// - Throws: `ClusterFailure` for a problem that an operator must solve, and the errors of `pause`.
    func join(
        _ register: some ClusterRegister, pause: (_ trouble: String) throws -> Void
    ) throws -> (reply: JoinReply, sentAt: Int64) {
        // The time by which the conflicting member's lease has expired, unless the member is running.
        var end: Int64?
        while true {
            let trouble: String
            do throws(RegisterError) {
                let sentAt = now()
                let reply = try register.join(request)
                guard let stranger = stranger(in: reply) else { return (reply, sentAt) }
                // As a member, this gateway would own partitions that the others cannot reach.
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

    /// Describes a member that has another secret; returns `nil` if there is no such member.
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
