internal import Cryptography
internal import Delivery
internal import EventLoops
internal import Platform
internal import PushAPI
internal import Wire

// Checks of a device before its shard receives the Hello, in order. The accepting host makes the checks that need no device
// record. The host of the device's partition checks whether the partition accepts the device. Each check throws a `Refusal`.

extension EventLoopHost {
    /// Decodes a Hello and checks its role, its app and the proof of a registration.
    ///
    /// - Parameters:
    ///   - body: The body of the Hello frame.
    ///   - isPrivate: Whether the connection is encrypted or local. The answer to a registration contains the device's secret.
    ///   - question: The state of the lookup for an unknown app.
    ///   - named: Receives the cid of a Hello that is no registration, also if the Hello is refused.
    /// - Returns: The Hello with its device, or `nil` if the owner of the apps' rows must be asked first.
    /// - Throws: The reason to refuse the Hello.
    func judge(
        _ body: UnsafeRawBufferPointer, isPrivate: Bool, _ question: AppQuestion, named: inout DeviceID
    ) throws(Refusal) -> AdoptedHello? {
        var hello: Hello
        let transcript: HelloTranscript
        do throws(WireError) {
            hello = try Hello(decoding: body.bytes)
            transcript = try HelloTranscript(body: body.bytes)
        } catch {
            throw Refusal(.malformed, "the Hello cannot be read")
        }
        if !hello.registration { named = hello.cid }
        hello.tokens.clean(&hello.refusedTokens)
        hello.droppedAttributes = hello.attributes?.clean() ?? []
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
            try checkRegistration(hello, transcript, app)
            adopted.cid = mintDevice(of: app, for: hello.proof)
            adopted.newSecret = SecureRandom.bytes(32)
        } else if hello.cid.isNone {
            throw Refusal(.malformed, "a Hello names a cid or asks for a registration")
        }
        adopted.hello.registrationToken = ""
        adopted.bucket = app.bucket(of: adopted.cid)
        // A draining gateway refuses new and registered devices alike, before their shard does any work for them.
        if context.isEmptying {
            let alternate = context.emptying.withLock { $0?.alternate } ?? ""
            throw .emptying(alternate, window: alternate.isEmpty ? nil : Emptying.window)
        }
        return adopted
    }

    /// Checks the proof of a registration, by the token of the app's server or by the appSecret.
    private func checkRegistration(_ hello: Hello, _ transcript: HelloTranscript, _ app: App) throws(Refusal) {
        guard hello.registrationToken.isEmpty else {
            do throws(ServerToken.Fault) {
                _ = try ServerToken(hello.registrationToken, app: app, now: now)
            } catch {
                throw Refusal(.badProof, error.reason)
            }
            let key = Array(hello.registrationToken.utf8)
            guard HMACSHA256.isCode(hello.proof, of: transcript.bytes, key: key) else {
                throw Refusal(.badProof, "the proof does not match the token")
            }
            return
        }
        guard app.registersBySecret else {
            throw Refusal(.badProof, "this app registers devices only with a token of the app's server")
        }
        var isProven = false
        for secret in app.appSecrets
        where HMACSHA256.isCode(hello.proof, of: transcript.bytes, key: Array(secret.utf8)) { isProven = true }
        guard isProven else { throw Refusal(.badProof, "the proof does not match the app's secret") }
    }

    /// Rejects a registration whose proof was used before.
    func takeOnce(_ adopted: AdoptedHello) throws(Refusal) {
        guard adopted.newSecret != nil else { return }
        let (now, tolerance) = (now, limits.shardLimits.clockTolerance)
        // Proofs from before this gateway owned the partition are refused, because the previous owner may have accepted them.
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

    /// Generates a cid; in a cluster the cid belongs to the partition that the proof selects, so a replayed proof reaches the
    /// same owner.
    ///
    /// A valid proof needs the appSecret or a token. Clients cannot choose it freely, so registrations spread evenly over the
    /// partitions.
    private func mintDevice(of app: App, for proof: [UInt8]) -> DeviceID {
        let wanted = Int(proof.prefix(4).reduce(UInt32(0)) { $0 << 8 | UInt32($1) }) % partitionCount
        while true {
            let (high, low) = SecureRandom.words()
            let cid = DeviceID(high: high, low: low)
            if context.cluster == nil || app.bucket(of: cid).loop(of: partitionCount) == wanted { return cid }
        }
    }

    /// Returns the partition that serves a device's Hello.
    ///
    /// - Returns: The partition, and the app whose device quota counts the device as new.
    /// - Throws: The reason to refuse the device.
    func admission(of adopted: AdoptedHello) throws(Refusal) -> (partition: Partition, countedApp: AppKey?) {
        guard !context.isStopping else { throw .stopping }
        guard let partition = servingPartition(adopted.bucket.loop(of: context.partitionCount)),
            partition.welcomesDevices
        else { throw Refusal(.moved, "another gateway is taking this device over; reconnect") }
        // Another gateway may learn of a new or deleted app earlier than this one.
        guard let app = registry[adopted.hello.appID] else {
            guard registry.known(adopted.hello.appID) != nil else {
                throw Refusal(.moved, "this gateway does not know the app yet; reconnect")
            }
            throw .appDisabled
        }
        let now = Int64(loop.now)
        let delay = context.peers.flaps.withLock { $0.delay(of: adopted.cid, now: now) }
        guard delay == 0 else {
            metrics.count(.flappingRefused)
            let least = UInt32(clamping: max(1_000, delay))
            throw Refusal(
                .overloaded, "the device reconnects too often; retry after the given time",
                window: (least, least + least / 2))
        }
        guard !partition.isStandingStill || welcomes.standingRoom > 0 else { throw .standing }
        let isCounted = try partition.admission(of: adopted.cid, of: app, isRegistration: adopted.newSecret != nil)
        return (partition, isCounted ? app.key : nil)
    }
}

extension EventLoopHost {
    /// Answers a WebSocket upgrade request on the device listener once the request is complete.
    func answer(toUpgrade bytes: UnsafeRawBufferPointer) -> WebSocketGreeting.Answer {
        let origins = snapshot.webSockets.origins
        return WebSocketGreeting.answer(bytes) { request in
            // The query is ignored, because clients may use it. Slashes in the path are handled as in the push API.
            guard RequestPath(request.target).isMade(of: "v1", "device") else {
                return .refuse(status: 404, "devices find their WebSocket at /v1/device")
            }
            // Other clients send no `Origin` header and are accepted. A page in a browser cannot remove the header.
            guard let text = request.origin else { return .accept }
            return WebOrigin(text).map { origins.contains($0) } ?? false
                ? .accept : .refuse(status: 403, "device.webSocket.origins does not list this page's origin")
        }
    }
}
