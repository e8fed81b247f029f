#include "CSimdjson.h"

#include <simdjson.h>

#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace {
// A parser keeps about 14 bytes for each byte of its largest document. The memory of one large document must not be kept forever.
constexpr size_t keptCapacity = 1 << 20;
constexpr size_t smallestCapacity = 16 << 10;

int translate(simdjson::error_code code) {
    switch (code) {
    case simdjson::SUCCESS: return LONGWIRE_JSON_OK;
    case simdjson::CAPACITY: return LONGWIRE_JSON_TOO_LARGE;
    case simdjson::DEPTH_ERROR: return LONGWIRE_JSON_TOO_DEEP;
    case simdjson::MEMALLOC: return LONGWIRE_JSON_NO_MEMORY;
    case simdjson::EMPTY: return LONGWIRE_JSON_EMPTY;
    case simdjson::STRING_ERROR:
    case simdjson::UNESCAPED_CHARS:
    case simdjson::UNCLOSED_STRING: return LONGWIRE_JSON_BAD_STRING;
    case simdjson::NUMBER_ERROR: return LONGWIRE_JSON_BAD_NUMBER;
    case simdjson::UTF8_ERROR: return LONGWIRE_JSON_BAD_UTF8;
    default: return LONGWIRE_JSON_BAD_STRUCTURE;
    }
}

// Returns whether an error concerns a single string or number, which can be replaced.
bool isMendable(simdjson::error_code code) {
    switch (code) {
    case simdjson::CAPACITY:
    case simdjson::MEMALLOC:
    case simdjson::DEPTH_ERROR:
    case simdjson::EMPTY:
    case simdjson::UNCLOSED_STRING: return false;
    default: return true;
    }
}

// A token that simdjson cannot represent: its index among the strings or numbers, and the position of its text.
struct Mark {
    uint32_t ordinal;
    uint32_t offset, count;  // Of a number's text; a count of 0 marks an unreadable number.
};

bool isDigit(uint8_t byte) { return byte >= '0' && byte <= '9'; }

// Returns the value of four hex digits, or -1 if they are missing.
int hex4(const uint8_t *at, const uint8_t *end) {
    if (end - at < 4) return -1;
    int value = 0;
    for (int place = 0; place < 4; place++) {
        uint8_t digit = at[place];
        int nibble = isDigit(digit)                     ? digit - '0'
                     : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
                     : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
                                                    : -1;
        if (nibble < 0) return -1;
        value = value << 4 | nibble;
    }
    return value;
}

// Returns the byte count of the UTF-8 character at `at`, or 0 if it is invalid.
size_t utf8Length(const uint8_t *at, const uint8_t *end) {
    uint8_t first = at[0];
    if (first < 0x80) return 1;
    size_t count = first >= 0xC2 && first <= 0xDF   ? 2
                   : first >= 0xE0 && first <= 0xEF ? 3
                   : first >= 0xF0 && first <= 0xF4 ? 4
                                                    : 0;
    if (count == 0 || size_t(end - at) < count) return 0;
    for (size_t place = 1; place < count; place++) {
        if ((at[place] & 0xC0) != 0x80) return 0;
    }
    if ((first == 0xE0 && at[1] < 0xA0) || (first == 0xED && at[1] > 0x9F) || (first == 0xF0 && at[1] < 0x90) ||
        (first == 0xF4 && at[1] > 0x8F))
        return 0;
    return count;
}

// Replaces tokens that simdjson cannot represent, byte for byte, and marks their positions.
struct Mender {
    std::vector<Mark> strings, numbers;
    std::vector<uint8_t> texts;
    size_t unreadableCount = 0;

    void clear() {
        // Releases the memory of a rare large document.
        if (strings.capacity() + numbers.capacity() > smallestCapacity) *this = Mender();
        strings.clear();
        numbers.clear();
        texts.clear();
        unreadableCount = 0;
    }

    // Returns false when a string does not end, or when a number or word is adjacent to another token. simdjson's error is
    // correct then. A replacement adjacent to another token would merge with it.
    bool mend(uint8_t *at, uint8_t *end) {
        const uint8_t *const begin = at;
        size_t stringCount = 0, numberCount = 0;
        while (at < end) {
            uint8_t byte = *at;
            if (byte == '"') {
                bool isUnreadable = false;
                if (!mendString(at, end, isUnreadable)) return false;
                if (isUnreadable) {
                    strings.push_back({uint32_t(stringCount), 0, 0});
                    unreadableCount++;
                }
                stringCount++;
            } else if (byte == '-' || isDigit(byte) || byte == 'N' || byte == 'I') {
                if (at > begin && !isDelimiter(at[-1])) return false;
                if (byte == 'N' || byte == 'I') {
                    mendWord(at, end, numberCount);
                } else {
                    mendNumber(at, end, numberCount);
                }
                if (at < end && !isDelimiter(*at)) return false;
            } else {
                at++;
            }
        }
        return true;
    }

   private:
    static bool isDelimiter(uint8_t byte) { return byte != 0 && std::strchr(" \t\r\n,:[]{}", byte) != nullptr; }

    bool mendString(uint8_t *&at, uint8_t *end, bool &isUnreadable) {
        at++;
        while (at < end) {
            if (*at == '"') {
                at++;
                return true;
            }
            if (*at == '\\') {
                if (end - at < 2) return false;
                size_t count = escapeLength(at, end);
                if (count == 0) {
                    *at = '?';
                    isUnreadable = true;
                    // The byte after the backslash is an ordinary one.
                    count = 1;
                } else if (count == 1) {
                    // Half a surrogate pair is replaced by six characters that simdjson accepts.
                    std::memcpy(at + 2, "fffd", 4);
                    isUnreadable = true;
                    count = 6;
                }
                at += count;
            } else if (*at < 0x20) {
                *at++ = ' ';
                isUnreadable = true;
            } else if (size_t count = utf8Length(at, end)) {
                at += count;
            } else {
                *at++ = '?';
                isUnreadable = true;
            }
        }
        return false;
    }

    // Returns the byte count of an escape, 1 for half a surrogate pair, or 0 for an invalid escape.
    static size_t escapeLength(const uint8_t *at, const uint8_t *end) {
        if (at[1] != 'u') return std::memchr("\"\\/bfnrt", at[1], 8) ? 2 : 0;
        int unit = hex4(at + 2, end);
        if (unit < 0) return 0;
        if (unit < 0xD800 || unit > 0xDFFF) return 6;
        if (unit > 0xDBFF || end - at < 12 || at[6] != '\\' || at[7] != 'u') return 1;
        int low = hex4(at + 8, end);
        return low >= 0xDC00 && low <= 0xDFFF ? 12 : 1;
    }

    // Saves the text of a number that is no 64-bit integer. A malformed number is left for simdjson to reject.
    void mendNumber(uint8_t *&at, uint8_t *end, size_t &ordinal) {
        uint8_t *start = at;
        bool isNegative = *at == '-';
        if (isNegative) at++;
        if (at < end && (*at == 'I' || *at == 'N')) return mendWord(at, end, ordinal, start);
        uint8_t *digits = at;
        while (at < end && isDigit(*at)) at++;
        size_t digitCount = size_t(at - digits);
        bool isNumber = digitCount == 1 || (digitCount > 1 && *digits != '0');
        bool isInteger = true;
        if (at < end && *at == '.') {
            isInteger = false;
            uint8_t *fraction = ++at;
            while (at < end && isDigit(*at)) at++;
            if (at == fraction) isNumber = false;
        }
        if (at < end && (*at == 'e' || *at == 'E')) {
            isInteger = false;
            at++;
            if (at < end && (*at == '+' || *at == '-')) at++;
            uint8_t *exponent = at;
            while (at < end && isDigit(*at)) at++;
            if (at == exponent) isNumber = false;
        }
        if (isNumber && (!isInteger || !fits(digits, digitCount, isNegative))) {
            numbers.push_back({uint32_t(ordinal), uint32_t(texts.size()), uint32_t(at - start)});
            texts.insert(texts.end(), start, at);
            blank(start, at);
        }
        ordinal++;
    }

    // Replaces NaN, Infinity and -Infinity, which are not valid JSON but are written by some encoders.
    void mendWord(uint8_t *&at, uint8_t *end, size_t &ordinal, uint8_t *start = nullptr) {
        if (!start) start = at;
        for (const char *word : {"NaN", "Infinity"}) {
            size_t count = std::strlen(word);
            if (size_t(end - at) < count || std::memcmp(at, word, count) != 0) continue;
            at += count;
            numbers.push_back({uint32_t(ordinal++), 0, 0});
            unreadableCount++;
            return blank(start, at);
        }
        at++;
    }

    static void blank(uint8_t *start, uint8_t *end) {
        std::memset(start, ' ', size_t(end - start));
        *start = '0';
    }

    static bool fits(const uint8_t *digits, size_t count, bool isNegative) {
        const char *most = isNegative ? "9223372036854775808" : "18446744073709551615";
        size_t length = std::strlen(most);
        return count < length || (count == length && std::memcmp(digits, most, length) <= 0);
    }
};

// Returns the number of tape words of a token. Arrays and objects are entered.
size_t tapeStep(uint8_t tag) { return tag == 'l' || tag == 'u' || tag == 'd' ? 2 : 1; }
}  // namespace

struct longwire_json_parser {
    size_t byteLimit, depthLimit;
    size_t capacity = 0;
    std::unique_ptr<simdjson::dom::parser> parser;
    std::unique_ptr<uint8_t[]> input;  // simdjson reads up to SIMDJSON_PADDING bytes past the end
    Mender mender;

    int grow(size_t count) {
        size_t wanted = smallestCapacity;
        while (wanted < count) wanted *= 2;
        capacity = 0;
        mender = Mender();
        input.reset(new (std::nothrow) uint8_t[wanted + simdjson::SIMDJSON_PADDING]);
        parser.reset(new (std::nothrow) simdjson::dom::parser());
        if (!input || !parser) return LONGWIRE_JSON_NO_MEMORY;
        // simdjson counts the document itself as one level.
        if (auto error = parser->allocate(wanted, depthLimit + 1)) return translate(error);
        capacity = wanted;
        return LONGWIRE_JSON_OK;
    }

    simdjson::error_code parse(size_t count) {
        simdjson::dom::element root;
        return parser->parse(input.get(), count, false).get(root);
    }

    uint64_t *tape() { return parser->doc.tape.get(); }

    // Returns whether the tape has a floating-point number, whose original text must be kept instead.
    bool hasFraction() {
        const uint64_t *words = tape();
        size_t end = size_t(words[0] & 0x00FFFFFFFFFFFFFFULL);
        for (size_t place = 1; place < end;) {
            uint8_t tag = uint8_t(words[place] >> 56);
            if (tag == 'd') return true;
            place += tapeStep(tag);
        }
        return false;
    }

    // Writes the marks to the tape, whose tokens are in document order. Returns false when a mark has no token, or when a
    // floating-point number is unmarked, which readers of the tape do not support.
    bool mark() {
        uint64_t *words = tape();
        size_t end = size_t(words[0] & 0x00FFFFFFFFFFFFFFULL);
        size_t stringCount = 0, numberCount = 0;
        auto string = mender.strings.begin();
        auto number = mender.numbers.begin();
        for (size_t place = 1; place < end;) {
            uint8_t tag = uint8_t(words[place] >> 56);
            size_t step = tapeStep(tag);
            if (tag == '"') {
                if (string != mender.strings.end() && string->ordinal == stringCount) {
                    words[place] = uint64_t('!') << 56;
                    ++string;
                }
                stringCount++;
            } else if (step == 2) {
                if (number != mender.numbers.end() && number->ordinal == numberCount) {
                    words[place] = uint64_t('#') << 56;
                    words[place + 1] = uint64_t(number->offset) << 32 | number->count;
                    ++number;
                } else if (tag == 'd') {
                    return false;
                }
                numberCount++;
            }
            place += step;
        }
        return string == mender.strings.end() && number == mender.numbers.end();
    }
};

extern "C" longwire_json_parser *longwire_json_create(size_t byte_limit, size_t depth_limit) {
    return new (std::nothrow) longwire_json_parser{byte_limit, depth_limit, 0, nullptr, nullptr};
}

extern "C" void longwire_json_destroy(longwire_json_parser *parser) { delete parser; }

extern "C" int longwire_json_parse(
    longwire_json_parser *self, const void *bytes, size_t count, longwire_json_document *out) {
    if (count == 0) return LONGWIRE_JSON_EMPTY;
    if (count > self->byteLimit) return LONGWIRE_JSON_TOO_LARGE;
    bool oversized = self->capacity > keptCapacity && count <= keptCapacity;
    if (count > self->capacity || oversized) {
        if (int error = self->grow(count)) return error;
    }
    auto copy = [&] {
        std::memcpy(self->input.get(), bytes, count);
        std::memset(self->input.get() + count, 0, simdjson::SIMDJSON_PADDING);
    };
    copy();
    self->mender.clear();
    auto error = self->parse(count);
    // Most documents need no second parse.
    if (error ? isMendable(error) : self->hasFraction()) {
        bool isMended = self->mender.mend(self->input.get(), self->input.get() + count) &&
                        !(self->mender.strings.empty() && self->mender.numbers.empty());
        if (isMended) {
            if (auto second = self->parse(count)) {
                // The first error refers to the original text.
                if (!error) error = second;
                return translate(error);
            }
            if (!self->mark()) return translate(error ? error : simdjson::NUMBER_ERROR);
            error = simdjson::SUCCESS;
        } else if (!error) {
            // Readers of the tape do not support unmarked floating-point numbers.
            error = simdjson::NUMBER_ERROR;
        }
    }
    if (error) return translate(error);
    const simdjson::dom::document &document = self->parser->doc;
    out->tape = document.tape.get();
    out->tape_count = size_t(out->tape[0] & 0x00FFFFFFFFFFFFFFULL);
    out->strings = document.string_buf.get();
    out->numbers = self->mender.texts.data();
    out->unreadable_count = self->mender.unreadableCount;
    return LONGWIRE_JSON_OK;
}
