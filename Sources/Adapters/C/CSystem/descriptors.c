#define _GNU_SOURCE
#include "CSystemDescriptors.h"
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

int longwire_unshare_descriptors(void) { return unshare(CLONE_FILES); }

int longwire_each_descriptor(void (*visit)(void *context, int descriptor, int is_socket, int is_file), void *context) {
    // The thread's own entry: /proc/self refers to the table of the main thread.
    DIR *folder = opendir("/proc/thread-self/fd");
    if (!folder) return -1;
    int own = dirfd(folder);
    struct dirent *entry;
    while ((entry = readdir(folder))) {
        char *end;
        long descriptor = strtol(entry->d_name, &end, 10);
        if (*end || end == entry->d_name || descriptor == own) continue;
        struct stat what;
        if (fstat((int)descriptor, &what)) continue;
        visit(context, (int)descriptor, S_ISSOCK(what.st_mode), 
              S_ISREG(what.st_mode) || S_ISDIR(what.st_mode) || S_ISFIFO(what.st_mode));
    }
    closedir(folder);
    return 0;
}

int longwire_message_pair(int *receiving, int *sending) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair)) return -1;
    *receiving = pair[0];
    *sending = pair[1];
    return 0;
}

int longwire_send_descriptor(int socket, uint64_t word, int descriptor) {
    struct iovec data = {.iov_base = &word, .iov_len = sizeof word};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof descriptor)];
    } control;
    memset(&control, 0, sizeof control);
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    ssize_t sent;
    do sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -1 : 0;
}

int longwire_receive_descriptor(int socket, uint64_t *word, int *descriptor) {
    struct iovec data = {.iov_base = word, .iov_len = sizeof *word};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof *descriptor)];
    } control;
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t received;
    do received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (received < 0 && errno == EINTR);
    if (received < 0) return errno == EAGAIN ? 0 : -1;
    if (received != (ssize_t)sizeof *word) return 0;
    *descriptor = -1;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
        memcpy(descriptor, CMSG_DATA(header), sizeof *descriptor);
    return 1;
}
