// The module that a debug build links with the standard library. No code uses its content.
