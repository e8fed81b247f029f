// A C interface to simdjson's DOM parser.
//
// A parsed document is simdjson's tape: an array of 64-bit words, type in the top byte, payload in the low 56 bits (described in
// simdjson's own doc/tape.md). The caller reads the tape directly, so that reading a field needs no call.
#ifndef LONGWIRE_CSIMDJSON_H
#define LONGWIRE_CSIMDJSON_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct longwire_json_parser longwire_json_parser;

// The result of a parse, valid until the parser's next parse or destruction.
typedef struct {
    const uint64_t *tape;  // word 0 is the root's frame; the value starts at word 1
    size_t tape_count;
    const uint8_t *strings;  // a string's payload is an offset into it: 4 bytes length, the bytes, a zero
    // The texts of numbers that are no 64-bit integers. Such a number has the tag '#' and a second word: the offset in `numbers`
    // (high half) and the byte count (low half).
    const uint8_t *numbers;
    // The number of unreadable strings and numbers: a string has the tag '!', a number has no bytes.
    size_t unreadable_count;
} longwire_json_document;

enum {
    LONGWIRE_JSON_OK = 0,
    LONGWIRE_JSON_TOO_LARGE = 1,
    LONGWIRE_JSON_TOO_DEEP = 2,
    LONGWIRE_JSON_NO_MEMORY = 3,
    LONGWIRE_JSON_EMPTY = 4,
    LONGWIRE_JSON_BAD_STRUCTURE = 5,
    LONGWIRE_JSON_BAD_STRING = 6,
    LONGWIRE_JSON_BAD_NUMBER = 7,
    LONGWIRE_JSON_BAD_UTF8 = 8
};

// Creates a parser for documents of at most `byte_limit` bytes and `depth_limit` nested containers; NULL without memory. Not
// thread-safe.
longwire_json_parser *longwire_json_create(size_t byte_limit, size_t depth_limit);
void longwire_json_destroy(longwire_json_parser *parser);

// Parses a copy of `count` bytes, which need no padding. `out` is set only if the result is LONGWIRE_JSON_OK.
//
// Numbers of any size are accepted: those that are no 64-bit integers keep their texts. Invalid strings (half a surrogate pair, a
// bad escape, a raw control character, invalid UTF-8), NaN and Infinity are marked as unreadable instead of failing the document.
int longwire_json_parse(longwire_json_parser *parser, const void *bytes, size_t count, longwire_json_document *out);

#ifdef __cplusplus
}
#endif

#endif
