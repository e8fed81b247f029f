#ifndef LONGWIRE_CCONSOLE_H
#define LONGWIRE_CCONSOLE_H

#include <stddef.h>

/// A file of the console in `assets`.
struct longwire_console_file {
    const char *name;
    const char *content_type;
    const unsigned char *bytes;
    size_t byte_count;
};

/// Returns the file at an index, or NULL after the last one. The first file is the page itself.
const struct longwire_console_file *longwire_console_file(size_t index);

#endif
