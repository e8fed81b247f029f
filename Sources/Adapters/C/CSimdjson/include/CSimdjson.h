// JSON parsing by simdjson's DOM parser, with a plain C face.
//
// A parsed document is simdjson's tape: an array of 64-bit words, type in the top byte, payload in the low 56 bits
// (described in simdjson's own doc/tape.md). The caller reads it directly, so that reading a field costs no call.
#ifndef LONGWIRE_CSIMDJSON_H
#define LONGWIRE_CSIMDJSON_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct longwire_json_parser longwire_json_parser;

// What a parse found. Valid until the parser's next parse or its end.
typedef struct {
    const uint64_t *tape;  // word 0 is the root's frame; the value starts at word 1
    size_t tape_count;
    const uint8_t *strings;  // a string's payload is an offset here: 4 bytes length, the bytes, a zero
    // A number that is no 64-bit integer has the tag '#' and a second word: its text's offset in `numbers` (high half)
    // and byte count (low half).
    const uint8_t *numbers;
    // Strings and numbers that cannot be read: a string has the tag '!', a number no bytes.
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

// A parser for documents of at most `byte_limit` bytes and `depth_limit` nested containers; NULL without memory.
// Not for use by two threads at once.
longwire_json_parser *longwire_json_create(size_t byte_limit, size_t depth_limit);
void longwire_json_destroy(longwire_json_parser *parser);

// Parses `count` bytes, which are copied and need no padding. `out` is set only when the answer is LONGWIRE_JSON_OK.
//
// Numbers of any size are taken: those that are no 64-bit integers keep their texts. A string that is no Unicode text (half
// a surrogate pair, a bad escape, a raw control character, bytes that are no UTF-8) spoils itself alone, and so do NaN and
// Infinity: they are marked as unreadable.
int longwire_json_parse(longwire_json_parser *parser, const void *bytes, size_t count, longwire_json_document *out);

#ifdef __cplusplus
}
#endif

#endif
