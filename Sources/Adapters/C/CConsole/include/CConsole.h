#ifndef LONGWIRE_CCONSOLE_H
#define LONGWIRE_CCONSOLE_H

#include <stddef.h>

/// A file of the console, as it lies in `assets`.
struct longwire_console_file {
    const char *name;
    const char *content_type;
    const unsigned char *bytes;
    size_t byte_count;
};

/// The file at a place, the first being the page itself; NULL behind the last.
const struct longwire_console_file *longwire_console_file(size_t index);

#endif
