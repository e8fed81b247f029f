internal import Gateway
internal import Glibc

@main struct Longwired {
    static func main() { exit(LongwiredMain.run(Array(CommandLine.arguments.dropFirst()))) }
}
