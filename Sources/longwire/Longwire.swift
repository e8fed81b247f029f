@main struct Longwire { static func main() {} }
