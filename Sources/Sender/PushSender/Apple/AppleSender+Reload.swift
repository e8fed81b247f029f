internal import APNs

extension AppleSender {
    /// Applies new credentials: waiting jobs move to new lanes, and requests in flight end on the old ones.
    func reload(credentials: [String: [Credential]], otherCredentials: [Credential]) {
        let old = takeLanes()
        replace(credentials: credentials, otherCredentials: otherCredentials)
        for lane in old {
            for job in lane.retire() {
                guard let new = self.lane(of: job.appID, job.environment) else {
                    giveBackWithoutCredential(job)
                    continue
                }
                new.add(job)
            }
        }
    }
}
