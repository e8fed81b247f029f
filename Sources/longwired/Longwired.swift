@main struct Longwired { static func main() {} }
