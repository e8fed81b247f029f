internal import Cryptography
internal import Delivery
internal import EventLoops
internal import Platform
internal import PushAPI
internal import Wire

// Checks of a device before its shard gets the Hello, in order. The host that accepted the connection checks what needs no device
// record. The host of the device's partition checks whether there is room. A new check is a `throw` in its place.

extension EventLoopHost {
    /// Reads a Hello and judges it: role, app, and a registration's proof.
    ///
    /// - Parameters:
    ///   - body: of the Hello's frame.
    ///   - isPrivate: the answer to a registration, which has the device's secret, cannot be read on its way.
    ///   - question: how far a question about the Hello's app is.
    /// - Returns: the Hello with its device; `nil`: the owner of the apps' rows must be asked first.
    /// - Throws: why not.
    func judge(
        _ body: UnsafeRawBufferPointer, isPrivate: Bool, _ question: AppQuestion
    ) throws(Refusal) -> AdoptedHello? {
        var hello: Hello
        let transcript: HelloTranscript
        do throws(WireError) {
            hello = try Hello(decoding: body.bytes)
            transcript = try HelloTranscript(body: body.bytes)
        } catch {
            throw Refusal(.malformed, "the Hello cannot be read")
        }
        hello.tokens.clean(&hello.refusedTokens)
        guard hello.role == .device else {
            throw Refusal(.wrongListener, "this listener is for devices; senders have their own")
        }
        guard let app = registry[hello.appID] else {
            if question == .none, registry.known(hello.appID) == nil { return nil }
            throw refusal(ofApp: hello.appID, isConfirmed: question == .confirmed)
        }
        var adopted = AdoptedHello(
            app: app.key, bucket: Bucket(0), cid: hello.cid, newSecret: nil, transcript: transcript.bytes,
            hello: hello)
        if hello.registration {
            guard isPrivate || snapshot.allowsPlaintextRegistration else {
                throw Refusal(.plaintextRegistration, "register over TLS: the answer holds the device's secret")
            }
            var isProven = false
            for secret in app.appSecrets
            where HMACSHA256.isCode(hello.proof, of: transcript.bytes, key: Array(secret.utf8)) { isProven = true }
            guard isProven else { throw Refusal(.badProof, "the proof does not match the app's secret") }
            adopted.cid = mintDevice(of: app, for: hello.proof)
            adopted.newSecret = SecureRandom.bytes(32)
        } else if hello.cid.isNone {
            throw Refusal(.malformed, "a Hello names a cid or asks for a registration")
        }
        adopted.bucket = app.bucket(of: adopted.cid)
        // Before any work for the device, registered or not.
        if context.isEmptying {
            let alternate = context.emptying.withLock { $0?.alternate } ?? ""
            throw .emptying(alternate, window: alternate.isEmpty ? nil : Emptying.window)
        }
        return adopted
    }

    /// Takes a registration's proof once.
    func takeOnce(_ adopted: AdoptedHello) throws(Refusal) {
        guard adopted.newSecret != nil else { return }
        let (now, tolerance) = (now, limits.shardLimits.clockTolerance)
        // Which registrations an earlier owner of the part has taken, this gateway does not know.
        let ownedAt = context.cluster?.seatedAt(adopted.bucket.loop(of: context.partitionCount)) ?? 0
        let verdict = context.peers.replays.withLock {
            $0.take(
                adopted.hello.proof, timestamp: adopted.hello.timestamp, now: now, tolerance: tolerance,
                servedSince: ownedAt)
        }
        switch verdict {
        case .fresh: break
        case .stale: throw Refusal(.clockSkew, ReplayGuard.staleReason)
        case .full: throw Refusal(.overloaded, ReplayGuard.fullReason)
        }
    }

    /// A new cid; in a cluster one of the part that the proof names, so that one gateway is asked whether it was taken before.
    ///
    /// A proof cannot be chosen without the app's secret, so registrations go to all parts alike.
    private func mintDevice(of app: App, for proof: [UInt8]) -> DeviceID {
        let wanted = Int(proof.prefix(4).reduce(UInt32(0)) { $0 << 8 | UInt32($1) }) % partitionCount
        while true {
            let (high, low) = SecureRandom.words()
            let cid = DeviceID(high: high, low: low)
            if context.cluster == nil || app.bucket(of: cid).loop(of: partitionCount) == wanted { return cid }
        }
    }

    /// The partition that takes a device's Hello.
    ///
    /// - Returns: the partition, and the app whose quota of devices counts the device as new.
    /// - Throws: why not.
    func admission(of adopted: AdoptedHello) throws(Refusal) -> (partition: Partition, countedApp: AppKey?) {
        guard !context.isStopping else { throw .stopping }
        guard let partition = servingPartition(adopted.bucket.loop(of: context.partitionCount)),
            partition.welcomesDevices
        else { throw Refusal(.moved, "another gateway is taking this device over; come back") }
        // Another gateway may know the app, or its end, earlier than this one.
        guard let app = registry[adopted.hello.appID] else {
            guard registry.known(adopted.hello.appID) != nil else {
                throw Refusal(.moved, "this gateway is told of the app in a moment; come back")
            }
            throw .appDisabled
        }
        let now = Int64(loop.now)
        let delay = context.peers.flaps.withLock { $0.delay(of: adopted.cid, now: now) }
        guard delay == 0 else {
            metrics.count(.flappingRefused)
            let least = UInt32(clamping: max(1_000, delay))
            throw Refusal(
                .overloaded, "the device connects and leaves over and over; come back after the time given",
                window: (least, least + least / 2))
        }
        guard !partition.isStandingStill || welcomes.standingRoom > 0 else { throw .standing }
        let isCounted = try partition.admission(of: adopted.cid, of: app, isRegistration: adopted.newSecret != nil)
        return (partition, isCounted ? app.key : nil)
    }
}

// Devices in browsers.
extension EventLoopHost {
    /// Answers a request for a WebSocket on the device listener, once it is whole.
    func answer(toUpgrade bytes: UnsafeRawBufferPointer) -> WebSocketGreeting.Answer {
        let origins = snapshot.webSockets.origins
        return WebSocketGreeting.answer(bytes) { request in
            // A query is the client's own, and slashes are read as in the push API's paths.
            guard RequestPath(request.target).isMade(of: "v1", "device") else {
                return .refuse(status: 404, "devices find their WebSocket at /v1/device")
            }
            // A program that is no browser sends no origin, and no page of a foreign site can make it.
            guard let text = request.origin else { return .accept }
            return WebOrigin(text).map { origins.contains($0) } ?? false
                ? .accept : .refuse(status: 403, "device.webSocket.origins does not list this page's origin")
        }
    }
}
