#include "CSimdjson.h"

#include <simdjson.h>

#include <cstring>
#include <memory>
#include <new>

namespace {
// A parser keeps about 14 bytes for each byte of its largest document. One large batch must not pin that for ever.
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
}  // namespace

struct longwire_json_parser {
    size_t byteLimit, depthLimit;
    size_t capacity = 0;
    std::unique_ptr<simdjson::dom::parser> parser;
    std::unique_ptr<uint8_t[]> input;  // simdjson reads up to SIMDJSON_PADDING bytes past the end

    int grow(size_t count) {
        size_t wanted = smallestCapacity;
        while (wanted < count) wanted *= 2;
        capacity = 0;
        input.reset(new (std::nothrow) uint8_t[wanted + simdjson::SIMDJSON_PADDING]);
        parser.reset(new (std::nothrow) simdjson::dom::parser());
        if (!input || !parser) return LONGWIRE_JSON_NO_MEMORY;
        // simdjson counts the document itself as one level.
        if (auto error = parser->allocate(wanted, depthLimit + 1)) return translate(error);
        capacity = wanted;
        return LONGWIRE_JSON_OK;
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
    std::memcpy(self->input.get(), bytes, count);
    std::memset(self->input.get() + count, 0, simdjson::SIMDJSON_PADDING);
    simdjson::dom::element root;
    if (auto error = self->parser->parse(self->input.get(), count, false).get(root)) return translate(error);
    const simdjson::dom::document &document = self->parser->doc;
    out->tape = document.tape.get();
    out->tape_count = size_t(out->tape[0] & 0x00FFFFFFFFFFFFFFULL);
    out->strings = document.string_buf.get();
    return LONGWIRE_JSON_OK;
}
