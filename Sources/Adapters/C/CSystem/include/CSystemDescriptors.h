#ifndef LONGWIRE_CSYSTEM_DESCRIPTORS_H
#define LONGWIRE_CSYSTEM_DESCRIPTORS_H

#include <stdint.h>

/// Gives the calling thread a descriptor table of its own, a copy of the one it shared; 0, or -1 with errno set.
int longwire_unshare_descriptors(void);

/// Calls `visit` for every open descriptor of the calling thread's table: is it a socket, is it a file (or folder,
/// or pipe). 0 or -1.
int longwire_each_descriptor(void (*visit)(void *context, int descriptor, int is_socket, int is_file), void *context);

/// A connected, non-blocking, close-on-exec pair that keeps messages apart; 0, or -1 with errno set.
int longwire_message_pair(int *receiving, int *sending);

/// Sends one word with a copy of `descriptor` along; 0, or -1 with errno set (EAGAIN: the receiver is behind).
int longwire_send_descriptor(int socket, uint64_t word, int descriptor);

/// Receives one word and its descriptor, -1 if the table had no room for it; 1, 0 when nothing waits, -1 with errno set.
int longwire_receive_descriptor(int socket, uint64_t *word, int *descriptor);

#endif
