#ifndef LONGWIRE_CSYSTEM_DESCRIPTORS_H
#define LONGWIRE_CSYSTEM_DESCRIPTORS_H

#include <stdint.h>

/// Gives the calling thread a private copy of its descriptor table. Returns 0, or -1 with errno set.
int longwire_unshare_descriptors(void);

/// Calls `visit` for every open descriptor of the calling thread's table. `is_file` is also set for a folder or pipe. Returns 0
/// or -1.
int longwire_each_descriptor(void (*visit)(void *context, int descriptor, int is_socket, int is_file), void *context);

/// Creates a connected, non-blocking, close-on-exec socket pair that preserves message boundaries. Returns 0, or -1 with errno
/// set.
int longwire_message_pair(int *receiving, int *sending);

/// Sends a word with a copy of `descriptor`. Returns 0, or -1 with errno set (EAGAIN: the receiver's buffer is full).
int longwire_send_descriptor(int socket, uint64_t word, int descriptor);

/// Receives a word and its descriptor, or -1 as the descriptor if the table is full. Returns 1, 0 when nothing is pending, or -1
/// with errno set.
int longwire_receive_descriptor(int socket, uint64_t *word, int *descriptor);

#endif
