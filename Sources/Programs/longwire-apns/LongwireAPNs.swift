internal import APNsSender
internal import Glibc

@main struct LongwireAPNs {
    static func main() { exit(LongwireAPNsMain.run(Array(CommandLine.arguments.dropFirst()))) }
}
