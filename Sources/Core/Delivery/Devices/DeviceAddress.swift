package import Wire

package struct DeviceAddress: Hashable, Sendable, Codable {
    package var app: AppKey
    package var bucket: Bucket
    package var cid: DeviceID
    package init(app: AppKey, bucket: Bucket, cid: DeviceID) { (self.app, self.bucket, self.cid) = (app, bucket, cid) }
}
