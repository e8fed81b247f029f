internal import CLua
internal import Cryptography
internal import Platform

/// A Lua 5.1 interpreter with `KEYS`, `ARGV`, `redis.call` and the other globals that a Redis server provides.
///
/// A test over the simulated Redis therefore runs the engine's own scripts.
final class Interpreter: @unchecked Sendable {
    // `@unchecked Sendable` is sound because `turn` guards all state.
    static let shared = Interpreter()

    private let turn = Lock(())
    private let state: OpaquePointer
    /// Runs one command of the current script.
    private var call: (([Bytes]) -> Reply)?
    private static let globals: CInt = -10_002

    /// The globals that a server defines before each script.
    ///
    /// Errors are raised in Lua, because a Lua error must not unwind a Swift frame.
    private static let prelude = """
        local send, hash = ...
        local function call(...)
            local reply = send(...)
            if type(reply) == 'table' and reply.err then error(reply, 0) end
            return reply
        end
        redis = {
            call = call, pcall = send, sha1hex = hash,
            error_reply = function(text)
                if text:sub(1, 1) == '-' then text = text:sub(2) end
                if not text:find(' ', 1, true) then text = 'ERR ' .. text end
                return {err = text}
            end,
            status_reply = function(text) return {ok = text} end,
            log = function() end, setresp = function() end, replicate_commands = function() return true end,
            LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3, REDIS_VERSION = '7.0.15',
        }
        """

    private init() {
        guard let state = luaL_newstate() else { preconditionFailure("no memory for Lua") }
        self.state = state
        luaL_openlibs(state)
        let prelude = Bytes(Self.prelude.utf8)
        guard load(prelude, name: "prelude") else { preconditionFailure("the prelude does not compile") }
        let context = Unmanaged.passUnretained(self).toOpaque()
        lua_pushlightuserdata(state, context)
        lua_pushcclosure(state, forwardCall, 1)
        lua_pushcclosure(state, forwardHash, 0)
        precondition(lua_pcall(state, 2, 0, 0) == 0, "the prelude does not run")
    }

    /// Returns the error of a script that does not compile.
    func fault(in body: Bytes) -> String? {
        turn.withLock { _ in
            defer { lua_settop(state, 0) }
            guard !load(body, name: "@user_script") else { return nil }
            return "ERR Error compiling script (new function): \(text(at: -1))"
        }
    }

    func run(_ body: Bytes, keys: [Bytes], arguments: [Bytes], call: ([Bytes]) -> Reply) -> Reply {
        turn.withLock { _ in
            withoutActuallyEscaping(call) { call in
                self.call = call
                defer {
                    self.call = nil
                    lua_settop(state, 0)
                }
                guard load(body, name: "@user_script") else {
                    return .error("ERR Error compiling script (new function): \(text(at: -1))")
                }
                for (name, list) in [("KEYS", keys), ("ARGV", arguments)] {
                    lua_createtable(state, CInt(list.count), 0)
                    for (index, bytes) in list.enumerated() {
                        push(bytes)
                        lua_rawseti(state, -2, CInt(index + 1))
                    }
                    lua_setfield(state, Self.globals, name)
                }
                guard lua_pcall(state, 0, 1, 0) == 0 else {
                    let digest = SHA1.hex(body)
                    if case .error(let text) = reply(at: -1) {
                        return .error("\(text) script: \(digest), on @user_script:1.")
                    }
                    return .error("ERR \(text(at: -1)) script: \(digest), on @user_script:1.")
                }
                return reply(at: -1)
            }
        }
    }

    private func load(_ body: Bytes, name: String) -> Bool {
        body.withUnsafeBytes {
            luaL_loadbuffer(state, $0.baseAddress?.assumingMemoryBound(to: CChar.self), $0.count, name) == 0
        }
    }

    private func text(at index: CInt) -> String { String(decoding: bytes(at: index), as: UTF8.self) }

    /// Returns a string, or a number in Lua's notation.
    private func bytes(at index: CInt) -> Bytes {
        var count = 0
        guard let start = lua_tolstring(state, index, &count) else { return [] }
        return Bytes(UnsafeRawBufferPointer(start: start, count: count))
    }

    private func push(_ bytes: Bytes) {
        bytes.withUnsafeBytes {
            // An empty Swift array has no base address, but Lua requires a pointer for each string.
            if let start = $0.baseAddress {
                lua_pushlstring(state, start.assumingMemoryBound(to: CChar.self), $0.count)
            } else {
                lua_pushlstring(state, "", 0)
            }
        }
    }

    // MARK: Between replies and values of Lua

    private func push(_ reply: Reply) {
        switch reply {
        case .integer(let number): lua_pushnumber(state, lua_Number(number))
        case .bulk(let bytes): push(bytes)
        case .null: lua_pushboolean(state, 0)
        case .simple(let text): pushField("ok", text)
        case .error(let text): pushField("err", text)
        case .array(let items):
            lua_checkstack(state, 4)
            lua_createtable(state, CInt(items.count), 0)
            for (index, item) in items.enumerated() {
                push(item)
                lua_rawseti(state, -2, CInt(index + 1))
            }
        }
    }

    private func pushField(_ name: String, _ text: String) {
        lua_createtable(state, 0, 1)
        push(Bytes(text.utf8))
        lua_setfield(state, -2, name)
    }

    private func reply(at index: CInt) -> Reply {
        switch lua_type(state, index) {
        case LUA_TSTRING: return .bulk(bytes(at: index))
        case LUA_TNUMBER: return .integer(Int64(lua_tonumber(state, index)))
        case LUA_TBOOLEAN: return lua_toboolean(state, index) != 0 ? .integer(1) : .null
        case LUA_TTABLE: break
        default: return .null
        }
        lua_checkstack(state, 4)
        lua_pushvalue(state, index)
        defer { lua_settop(state, -2) }
        for name in ["err", "ok"] {
            lua_getfield(state, -1, name)
            defer { lua_settop(state, -2) }
            if lua_type(state, -1) == LUA_TSTRING { return name == "ok" ? .simple(text(at: -1)) : .error(text(at: -1)) }
        }
        var items: [Reply] = []
        while true {
            lua_rawgeti(state, -1, CInt(items.count + 1))
            defer { lua_settop(state, -2) }
            if lua_type(state, -1) == LUA_TNIL { break }
            items.append(reply(at: -1))
        }
        return .array(items)
    }

    /// Runs one command; its words are on the Lua stack, and its reply is pushed there.
    fileprivate func command() -> CInt {
        let count = lua_gettop(state)
        var words: [Bytes] = []
        for index in 0..<count {
            let kind = lua_type(state, index + 1)
            guard kind == LUA_TSTRING || kind == LUA_TNUMBER else {
                push(Reply.error("ERR Lua redis lib command arguments must be strings or integers"))
                return 1
            }
            // The server writes numbers with 17 digits. Lua's default of 14 digits would round a timestamp.
            if kind == LUA_TNUMBER {
                let number = lua_tonumber(state, index + 1)
                words.append(Bytes((number == number.rounded() ? "\(Int64(number))" : "\(number)").utf8))
            } else {
                words.append(bytes(at: index + 1))
            }
        }
        guard !words.isEmpty else {
            push(Reply.error("ERR Please specify at least one argument for this redis.call() call"))
            return 1
        }
        push(call?(words) ?? .error("ERR no script runs"))
        return 1
    }
}

private func forwardCall(_ state: OpaquePointer?) -> CInt {
    // The index of the closure's first upvalue.
    guard let context = lua_touserdata(state, -10_003) else { return 0 }
    return Unmanaged<Interpreter>.fromOpaque(context).takeUnretainedValue().command()
}

private func forwardHash(_ state: OpaquePointer?) -> CInt {
    var count = 0
    guard let start = lua_tolstring(state, 1, &count) else { return 0 }
    let digest = Bytes(SHA1.hex(Bytes(UnsafeRawBufferPointer(start: start, count: count))).utf8)
    digest.withUnsafeBytes { lua_pushlstring(state, $0.baseAddress?.assumingMemoryBound(to: CChar.self), $0.count) }
    return 1
}
