internal import PushSender
internal import Glibc

@main struct LongwireSender {
    static func main() { exit(LongwireSenderMain.run(Array(CommandLine.arguments.dropFirst()))) }
}
