// What a debug build links with the standard library; nothing of it is used.
