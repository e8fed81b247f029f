// swift-tools-version: 6.2
import PackageDescription

let features = [
    "ExistentialAny", "InferIsolatedConformances", "InternalImportsByDefault", "MemberImportVisibility",
    "NonisolatedNonsendingByDefault",
]
// Only CI and `make check` set this variable: warnings prevent a merge, but not a local build.
let strict: [SwiftSetting] = Context.environment["LONGWIRE_CI"] == nil ? [] : [.treatAllWarnings(as: .error)]
let common = features.map { SwiftSetting.enableUpcomingFeature($0) } + strict
let pure = common + [.strictMemorySafety()]  // Every unsafe expression must be marked `unsafe`.

// Only `make fuzz` sets this variable, because ordinary builds have no libFuzzer to link.
let fuzzerLibrary = Context.environment["LONGWIRE_FUZZ"]
let fuzzers: [Target] =
    fuzzerLibrary.map { library in
        [
            .executableTarget(
                name: "longwire-fuzz", dependencies: ["FuzzTargets"], path: "Tests/Fuzz/FuzzRunner",
                swiftSettings: common + [.unsafeFlags(["-parse-as-library"])],
                linkerSettings: [.unsafeFlags([library]), .linkedLibrary("stdc++")])
        ]
    } ?? []

// `make run` and `make build` compile the programs in one pass, without the tests and their tools.
let onlyPrograms = Context.environment["LONGWIRE_PROGRAMS"] != nil

let package = Package(
    name: "longwire",
    // For the client only; the gateway runs on Linux. The client must not use newer APIs (Tests/Checks/check-client.sh).
    platforms: [.iOS(.v16), .macOS(.v13)],
    products: [
        .library(name: "LongwireClient", targets: ["LongwireClient"]),
        .executable(name: "longwired", targets: ["longwired"]),
        .executable(name: "longwire", targets: ["longwire"]),
        .executable(name: "longwire-sender", targets: ["longwire-sender"]),
    ],
    targets: [
        // System libraries and the two C targets.
        .systemLibrary(
            name: "CLibevent", path: "Sources/Adapters/C/CLibevent", pkgConfig: "libevent_core",
            providers: [.apt(["libevent-dev"])]),
        .systemLibrary(name: "CRocksDB", path: "Sources/Adapters/C/CRocksDB", providers: [.apt(["librocksdb-dev"])]),
        .systemLibrary(
            name: "COpenSSL", path: "Sources/Adapters/C/COpenSSL", pkgConfig: "openssl",
            providers: [.apt(["libssl-dev"])]),
        .systemLibrary(
            name: "CNghttp2", path: "Sources/Adapters/C/CNghttp2", pkgConfig: "libnghttp2",
            providers: [.apt(["libnghttp2-dev"])]),
        .systemLibrary(name: "CHiredis", path: "Sources/Adapters/C/CHiredis", providers: [.apt(["libhiredis-dev"])]),
        .systemLibrary(
            name: "CCurl", path: "Sources/Adapters/C/CCurl", pkgConfig: "libcurl",
            providers: [.apt(["libcurl4-openssl-dev"])]),
        .target(name: "CSystem", path: "Sources/Adapters/C/CSystem"),
        .target(name: "CConsole", path: "Sources/Adapters/C/CConsole", exclude: ["assets"]),
        .target(
            name: "CSimdjson", path: "Sources/Adapters/C/CSimdjson",
            linkerSettings: [.linkedLibrary("simdjson"), .linkedLibrary("stdc++")]),

        // Pure modules: no sockets, no clocks, no blocking calls.
        .target(name: "Structures", path: "Sources/Core/Structures", swiftSettings: common),
        .target(name: "Wire", path: "Sources/Core/Wire", swiftSettings: pure),
        .target(name: "TextForms", path: "Sources/Core/TextForms", swiftSettings: common),
        .target(
            name: "Delivery", dependencies: ["Wire", "Structures"], path: "Sources/Core/Delivery", swiftSettings: pure),
        .target(name: "APNs", dependencies: ["JSON", "TextForms"], path: "Sources/Core/APNs", swiftSettings: pure),
        .target(
            name: "Directory", dependencies: ["Delivery", "Wire"], path: "Sources/Core/Directory", swiftSettings: pure),
        .target(name: "Quotas", dependencies: ["Delivery", "Wire"], path: "Sources/Core/Quotas", swiftSettings: pure),
        .target(name: "Cluster", path: "Sources/Core/Cluster", swiftSettings: pure),

        // Wrappers. Each one is the only importer of its C module.
        .target(name: "Platform", dependencies: ["CSystem"], path: "Sources/Adapters/Platform", swiftSettings: common),
        .target(
            name: "Cryptography", dependencies: ["COpenSSL"], path: "Sources/Adapters/Cryptography",
            swiftSettings: common),
        .target(
            name: "EventLoops", dependencies: ["CLibevent", "Platform", "Cryptography", "Structures", "TextForms"],
            path: "Sources/Adapters/EventLoops",
            swiftSettings: common),
        .target(
            name: "HTTP2", dependencies: ["CNghttp2", "EventLoops", "Cryptography", "Platform"],
            path: "Sources/Adapters/HTTP2", swiftSettings: common),
        .target(name: "Console", dependencies: ["CConsole"], path: "Sources/Gateway/Console", swiftSettings: common),
        .target(
            name: "HTTPClient", dependencies: ["CCurl"], path: "Sources/Adapters/HTTPClient", swiftSettings: common),
        .target(
            name: "Redis", dependencies: ["CHiredis", "Cryptography", "Platform"], path: "Sources/Adapters/Redis",
            swiftSettings: common),
        .target(
            name: "Journal", dependencies: ["Platform", "Structures"], path: "Sources/Store/Journal",
            swiftSettings: common),
        .target(
            name: "MessageStore",
            dependencies: ["CRocksDB", "Redis", "Journal", "Delivery", "Cryptography", "Platform", "Structures"],
            path: "Sources/Store/MessageStore",
            swiftSettings: common),

        .target(
            name: "Configuration", dependencies: ["Platform", "TextForms"], path: "Sources/Gateway/Configuration",
            swiftSettings: common),
        .target(
            name: "JSON", dependencies: ["CSimdjson", "TextForms"], path: "Sources/Adapters/JSON", swiftSettings: common
        ),
        .target(
            name: "Webhooks", dependencies: ["Cryptography", "TextForms"], path: "Sources/Adapters/Webhooks",
            swiftSettings: common),

        // Modules that combine the ones above, and the programs.
        .target(
            name: "PushAPI",
            dependencies: [
                "APNs", "Quotas", "Delivery", "Directory", "JSON", "TextForms", "Webhooks", "Wire", "Cryptography",
            ], path: "Sources/Gateway/PushAPI",
            swiftSettings: common),
        .target(
            name: "Gateway",
            dependencies: [
                "APNs", "Cluster", "Redis", "Console", "HTTPClient", "Configuration", "EventLoops", "JSON",
                "MessageStore", "PushAPI", "Quotas", "Delivery", "Directory", "Webhooks", "Wire", "Cryptography",
                "Platform", "Structures", "TextForms",
            ], path: "Sources/Gateway/Gateway", swiftSettings: common),
        .target(
            name: "PushSender",
            dependencies: [
                "APNs", "Configuration", "FakeAPNs", "FakeVendors", "HTTP2", "HTTPClient", "EventLoops", "JSON",
                "Cryptography", "Platform", "Structures", "TextForms", "Vendors", "Webhooks",
            ], path: "Sources/Sender/PushSender", swiftSettings: common),
        .target(
            name: "Vendors", dependencies: ["JSON", "TextForms", "Cryptography", "Wire"],
            path: "Sources/Sender/Vendors",
            swiftSettings: pure),
        .target(
            name: "FakeAPNs",
            dependencies: [
                "APNs", "Configuration", "FakeVendors", "HTTP2", "EventLoops", "JSON", "Cryptography", "Platform",
                "TextForms",
            ], path: "Sources/Sender/FakeAPNs", swiftSettings: common),
        .target(
            name: "FakeVendors",
            dependencies: ["Configuration", "EventLoops", "JSON", "Cryptography", "Platform", "TextForms"],
            path: "Sources/Sender/FakeVendors", swiftSettings: common),
        .target(
            name: "LongwireClient",
            // Apple's systems have CryptoKit and Network.framework, so OpenSSL must not be required there.
            dependencies: ["Wire", .target(name: "Cryptography", condition: .when(platforms: [.linux]))],
            path: "Sources/Client/LongwireClient", swiftSettings: common),
        .target(
            name: "LoadGenerator", dependencies: ["TextForms", "Wire", "Cryptography", "Platform"],
            path: "Sources/Tools/LoadGenerator",
            swiftSettings: common),
        .target(
            name: "CommandLineTool",
            dependencies: [
                "HTTPClient", "LongwireClient", "TextForms", "Wire", "Cryptography", "MessageStore", "Redis",
                "Delivery",
                "Platform",
            ], path: "Sources/Tools/CommandLineTool",
            swiftSettings: common),
        .executableTarget(
            name: "longwire-sender", dependencies: ["PushSender"], path: "Sources/Programs/longwire-sender",
            swiftSettings: common),
        .executableTarget(
            name: "longwired", dependencies: ["Gateway"], path: "Sources/Programs/longwired", swiftSettings: common),
        .executableTarget(
            name: "longwire", dependencies: ["CommandLineTool", "LoadGenerator", "TextForms"],
            path: "Sources/Programs/longwire",
            swiftSettings: common),

        // Tests and their support modules.
        .target(
            name: "TestKit", dependencies: ["Delivery", "Wire", "Structures"], path: "Tests/Support/TestKit",
            swiftSettings: common),
        .testTarget(
            name: "StructuresTests", dependencies: ["Structures", "TestKit"], path: "Tests/Unit/StructuresTests",
            swiftSettings: common),
        .testTarget(
            name: "WireTests", dependencies: ["Wire", "TestKit"], path: "Tests/Unit/WireTests", swiftSettings: common),
        .testTarget(
            name: "TextFormsTests", dependencies: ["TextForms"], path: "Tests/Unit/TextFormsTests",
            swiftSettings: common),
        .testTarget(
            name: "DeliveryTests", dependencies: ["Delivery", "TestKit"], path: "Tests/Unit/DeliveryTests",
            swiftSettings: common),
        .testTarget(
            name: "PushSenderTests",
            dependencies: [
                "PushSender", "FakeAPNs", "APNs", "Delivery", "HTTP2", "HTTPClient", "EventLoops", "JSON", "PushAPI",
                "Cryptography", "Platform", "Vendors", "Wire",
            ], path: "Tests/Unit/PushSenderTests", swiftSettings: common),
        .testTarget(
            name: "VendorsTests", dependencies: ["Vendors", "Wire", "JSON", "TextForms", "Cryptography"],
            path: "Tests/Unit/VendorsTests", swiftSettings: common),
        .testTarget(
            name: "FakeVendorsTests",
            dependencies: [
                "FakeVendors", "Vendors", "Configuration", "Cryptography", "EventLoops", "JSON", "Platform",
            ], path: "Tests/Unit/FakeVendorsTests", swiftSettings: common),
        .testTarget(
            name: "APNsTests", dependencies: ["APNs", "TextForms"], path: "Tests/Unit/APNsTests", swiftSettings: common),
        .testTarget(
            name: "DirectoryTests", dependencies: ["Directory", "Delivery", "TestKit"],
            path: "Tests/Unit/DirectoryTests", swiftSettings: common),
        .testTarget(
            name: "CryptographyTests", dependencies: ["COpenSSL", "Cryptography"], path: "Tests/Unit/CryptographyTests",
            swiftSettings: common),
        .target(
            name: "EventLoopsKit", dependencies: ["EventLoops"], path: "Tests/Support/EventLoopsKit",
            swiftSettings: common),
        .testTarget(
            name: "EventLoopsTests", dependencies: ["EventLoops", "EventLoopsKit", "Platform", "Cryptography"],
            path: "Tests/Unit/EventLoopsTests",
            swiftSettings: common),
        .testTarget(
            name: "HTTPClientTests", dependencies: ["HTTPClient"], path: "Tests/Unit/HTTPClientTests",
            swiftSettings: common),
        .testTarget(
            name: "HTTP2Tests", dependencies: ["HTTP2", "EventLoops", "Cryptography", "Platform"],
            path: "Tests/Unit/HTTP2Tests",
            swiftSettings: common),
        .testTarget(
            name: "JournalTests", dependencies: ["Journal", "Delivery", "Platform", "TestKit"],
            path: "Tests/Unit/JournalTests", swiftSettings: common),
        .testTarget(
            name: "RedisTests", dependencies: ["Redis", "Cryptography", "Platform"], path: "Tests/Unit/RedisTests",
            swiftSettings: common),
        .testTarget(
            name: "MessageStoreTests",
            dependencies: ["MessageStore", "Journal", "Platform", "Redis", "SimulatedRedis", "TestKit"],
            path: "Tests/Unit/MessageStoreTests",
            swiftSettings: common),
        .testTarget(
            name: "QuotasTests", dependencies: ["Quotas", "Delivery", "Wire"], path: "Tests/Unit/QuotasTests",
            swiftSettings: common),
        .testTarget(
            name: "ClusterTests", dependencies: ["Cluster", "ClusterSimulation", "TestKit"],
            path: "Tests/Unit/ClusterTests", swiftSettings: common),
        .target(
            name: "ClusterSimulation", dependencies: ["Cluster", "TestKit"], path: "Tests/Simulation/ClusterSimulation",
            swiftSettings: common),
        .executableTarget(
            name: "longwire-simulate-cluster", dependencies: ["ClusterSimulation"],
            path: "Tests/Simulation/longwire-simulate-cluster", swiftSettings: common),
        .testTarget(
            name: "JSONTests", dependencies: ["JSON", "TestKit"], path: "Tests/Unit/JSONTests", swiftSettings: common),
        .testTarget(
            name: "PushAPITests",
            dependencies: ["JSON", "PushAPI", "Webhooks", "TestKit", "Cryptography", "TextForms"],
            path: "Tests/Unit/PushAPITests", swiftSettings: common),
        .testTarget(
            name: "GatewayTests",
            dependencies: [
                "Gateway", "Quotas", "Cluster", "Configuration", "Cryptography", "Delivery", "Directory",
                "EventLoops", "HTTPClient",
                "LongwireClient", "MessageStore",
                "Platform", "PushAPI", "Redis", "TextForms", "Wire", "TestKit",
            ], path: "Tests/Unit/GatewayTests",
            swiftSettings: common),
        .testTarget(
            name: "LongwireClientTests", dependencies: ["LongwireClient", "Cryptography", "TestKit"],
            path: "Tests/Unit/LongwireClientTests",
            swiftSettings: common),
        .executableTarget(
            name: "longwire-conformance-driver", dependencies: ["LongwireClient", "Wire"],
            path: "Tests/Conformance/SwiftDriver", swiftSettings: common),
        .testTarget(
            name: "LoadGeneratorTests", dependencies: ["LoadGenerator", "TextForms", "Wire", "Cryptography"],
            path: "Tests/Unit/LoadGeneratorTests",
            swiftSettings: common),
        .target(
            name: "Simulation",
            dependencies: [
                "Delivery", "Directory", "Wire", "Structures", "LongwireClient", "Cryptography", "TextForms", "TestKit",
            ],
            path: "Tests/Simulation/Simulation", swiftSettings: common),
        .executableTarget(
            name: "longwire-return-benchmark", dependencies: ["Cryptography", "Platform", "Wire"],
            path: "Tests/Benchmarks/Return", swiftSettings: common),
        .executableTarget(
            name: "longwire-parse-benchmark", dependencies: ["PushAPI", "Delivery", "Cryptography", "Wire"],
            path: "Tests/Benchmarks/Parse", swiftSettings: common),
        .executableTarget(
            name: "longwire-soak", dependencies: ["Simulation", "Delivery", "TextForms"],
            path: "Tests/Simulation/longwire-soak",
            swiftSettings: common),
        .testTarget(
            name: "SimulationTests",
            dependencies: [
                "Simulation", "SimulatedRedis", "MessageStore", "Redis", "Platform", "TestKit", "Delivery", "TextForms",
                "Wire",
            ],
            path: "Tests/Simulation/SimulationTests", swiftSettings: common),
        .systemLibrary(
            name: "CLua", path: "Tests/Support/SimulatedRedis/CLua", pkgConfig: "lua5.1",
            providers: [.apt(["liblua5.1-0-dev"])]
        ),
        .target(
            name: "SimulatedRedis", dependencies: ["CLua", "Cryptography", "Platform", "Redis"],
            path: "Tests/Support/SimulatedRedis/SimulatedRedis",
            swiftSettings: common),
        .testTarget(
            name: "SimulatedRedisTests", dependencies: ["SimulatedRedis", "Platform", "Redis"],
            path: "Tests/Support/SimulatedRedis/SimulatedRedisTests", swiftSettings: common),
        .testTarget(
            name: "CommandLineToolTests",
            dependencies: [
                "CommandLineTool", "LongwireClient", "TextForms", "Wire", "MessageStore", "Delivery", "TestKit",
            ], path: "Tests/Unit/CommandLineToolTests",
            swiftSettings: common),
        .target(
            name: "FuzzTargets",
            dependencies: [
                "APNs", "Gateway", "Configuration", "EventLoops", "EventLoopsKit", "HTTP2", "JSON", "LongwireClient",
                "PushAPI",
                "Quotas", "Journal",
                "Delivery", "Directory",
                "TextForms", "Wire", "Cryptography", "Platform", "MessageStore", "TestKit",
            ], path: "Tests/Fuzz/FuzzTargets", swiftSettings: common),
        .executableTarget(
            name: "longwire-roam", dependencies: ["FuzzTargets", "TextForms"], path: "Tests/Fuzz/FuzzRoamer",
            swiftSettings: common),
        .testTarget(
            name: "FuzzReplayTests", dependencies: ["FuzzTargets"], path: "Tests/Fuzz/FuzzReplayTests",
            swiftSettings: common),
    ].filter { !onlyPrograms || !($0.path ?? "").hasPrefix("Tests/") } + fuzzers,
    swiftLanguageModes: [.v6],
    cLanguageStandard: .c17,
    cxxLanguageStandard: .cxx17
)
