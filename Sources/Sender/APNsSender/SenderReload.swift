internal import APNs

extension Sender {
    /// New keys and certificates are in force: jobs that wait go the new way, requests under way end on the old one.
    func reload(credentials: [String: [Credential]], otherCredentials: [Credential]) {
        let old = takeLanes()
        replace(credentials: credentials, otherCredentials: otherCredentials)
        for lane in old {
            for job in lane.retire() {
                guard let new = self.lane(of: job.appID, job.environment) else {
                    giveBack(job, "noCredential", retryAfter: 300)
                    continue
                }
                new.add(job)
            }
        }
    }
}
