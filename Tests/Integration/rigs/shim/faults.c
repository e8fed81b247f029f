// Makes a disk fail on command. It is loaded with LD_PRELOAD before the C library and intercepts every call on a file below
// LONGWIRE_FAULT_FOLDER. The file LONGWIRE_FAULT_CONTROL selects the current fault. Its one line is
//
//     sync-fails [PART]       fsync and fdatasync return EIO
//     sync-hangs [PART]       they wait until the control file changes
//     full COUNT [PART]       COUNT more bytes may be written, the last of them by a short write, then ENOSPC
//     write-fails [PART]      writes return EIO
//     read-fails [PART]       reads return EIO
//     read-only [PART]        opening for writing, creating, renaming and removing return EROFS
//
// and PART restricts it to paths that contain it. A missing or empty file means no fault.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum fault { NONE, SYNC_FAILS, SYNC_HANGS, FULL, WRITE_FAILS, READ_FAILS, READ_ONLY };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char last_line[512];
static long long room;

/// Returns the fault of `path` in the control file.
///
/// System calls are made directly, because this library replaces the C library's functions.
static enum fault fault_of(const char *path) {
    const char *folder = getenv("LONGWIRE_FAULT_FOLDER"), *control = getenv("LONGWIRE_FAULT_CONTROL");
    if (!folder || !control || strncmp(path, folder, strlen(folder)) != 0) return NONE;
    char line[512] = "";
    long file = syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC);
    if (file < 0) return NONE;
    long count = syscall(SYS_read, file, line, sizeof line - 1);
    syscall(SYS_close, file);
    line[count > 0 ? count : 0] = 0;
    char word[32] = "", first[256] = "", second[256] = "";
    sscanf(line, "%31s %255s %255s", word, first, second);
    int is_full = strcmp(word, "full") == 0;
    if (is_full) {
        pthread_mutex_lock(&mutex);
        if (strcmp(line, last_line) != 0) {
            strcpy(last_line, line);
            room = atoll(first);
        }
        pthread_mutex_unlock(&mutex);
    }
    if (!strstr(path, is_full ? second : first)) return NONE;
    if (is_full) return FULL;
    if (strcmp(word, "sync-fails") == 0) return SYNC_FAILS;
    if (strcmp(word, "sync-hangs") == 0) return SYNC_HANGS;
    if (strcmp(word, "write-fails") == 0) return WRITE_FAILS;
    if (strcmp(word, "read-fails") == 0) return READ_FAILS;
    if (strcmp(word, "read-only") == 0) return READ_ONLY;
    return NONE;
}

static enum fault fault_of_descriptor(int descriptor) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    long count = syscall(SYS_readlink, link, path, sizeof path - 1);
    if (count <= 0 || path[0] != '/') return NONE;
    path[count] = 0;
    return fault_of(path);
}

static int fail(int code) {
    errno = code;
    return -1;
}

/// Returns how many of `count` bytes may be written; -1 with errno set for none.
static long long allowed(int descriptor, long long count) {
    switch (fault_of_descriptor(descriptor)) {
    case WRITE_FAILS: return fail(EIO);
    case FULL:
        pthread_mutex_lock(&mutex);
        if (count > room) count = room;
        room -= count;
        pthread_mutex_unlock(&mutex);
        return count > 0 ? count : fail(ENOSPC);
    default: return count;
    }
}

ssize_t write(int descriptor, const void *bytes, size_t count) {
    long long size = count == 0 ? 0 : allowed(descriptor, (long long)count);
    return size < 0 ? -1 : syscall(SYS_write, descriptor, bytes, (size_t)size);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t count, off_t offset) {
    long long size = count == 0 ? 0 : allowed(descriptor, (long long)count);
    return size < 0 ? -1 : syscall(SYS_pwrite64, descriptor, bytes, (size_t)size, offset);
}
ssize_t pwrite64(int descriptor, const void *bytes, size_t count, off64_t offset) {
    return pwrite(descriptor, bytes, count, offset);
}

ssize_t pwritev(int descriptor, const struct iovec *parts, int part_count, off_t offset) {
    size_t whole = 0;
    for (int index = 0; index < part_count; index++) whole += parts[index].iov_len;
    long long size = whole == 0 ? 0 : allowed(descriptor, (long long)whole);
    if (size < 0) return -1;
    if ((size_t)size == whole) {
        return syscall(SYS_pwritev, descriptor, parts, (long)part_count, (long)offset, 0L);
    }
    // A short write: the parts that fit, the last of them cut.
    size_t done = 0;
    for (int index = 0; index < part_count && done < (size_t)size; index++) {
        size_t part = parts[index].iov_len;
        if (part > (size_t)size - done) part = (size_t)size - done;
        long result = syscall(SYS_pwrite64, descriptor, parts[index].iov_base, part, offset + (off_t)done);
        if (result < 0) return done > 0 ? (ssize_t)done : -1;
        done += (size_t)result;
    }
    return (ssize_t)done;
}
ssize_t pwritev64(int descriptor, const struct iovec *parts, int part_count, off64_t offset) {
    return pwritev(descriptor, parts, part_count, offset);
}

int fallocate(int descriptor, int mode, off_t offset, off_t count) {
    if (fault_of_descriptor(descriptor) == FULL) return fail(ENOSPC);
    return (int)syscall(SYS_fallocate, descriptor, mode, offset, count);
}
int fallocate64(int descriptor, int mode, off64_t offset, off64_t count) {
    return fallocate(descriptor, mode, offset, count);
}

ssize_t read(int descriptor, void *bytes, size_t count) {
    if (fault_of_descriptor(descriptor) == READ_FAILS) return fail(EIO);
    return syscall(SYS_read, descriptor, bytes, count);
}
ssize_t pread(int descriptor, void *bytes, size_t count, off_t offset) {
    if (fault_of_descriptor(descriptor) == READ_FAILS) return fail(EIO);
    return syscall(SYS_pread64, descriptor, bytes, count, offset);
}
ssize_t pread64(int descriptor, void *bytes, size_t count, off64_t offset) {
    return pread(descriptor, bytes, count, offset);
}

static int synchronize(int descriptor, long number) {
    enum fault fault;
    while ((fault = fault_of_descriptor(descriptor)) == SYNC_HANGS) {
        struct timespec rest = {.tv_nsec = 5000000};
        nanosleep(&rest, NULL);
    }
    return fault == SYNC_FAILS ? fail(EIO) : (int)syscall(number, descriptor);
}
int fdatasync(int descriptor) { return synchronize(descriptor, SYS_fdatasync); }
int fsync(int descriptor) { return synchronize(descriptor, SYS_fsync); }

static int open_at(int folder, const char *path, int flags, mode_t mode) {
    int is_writing = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT);
    if (is_writing && fault_of(path) == READ_ONLY) return fail(EROFS);
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}
#define MODE(last) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list arguments; \
        va_start(arguments, last); \
        mode = (mode_t)va_arg(arguments, int); \
        va_end(arguments); \
    }
int open(const char *path, int flags, ...) {
    MODE(flags)
    return open_at(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE(flags)
    return open_at(AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char *path, int flags, ...) {
    MODE(flags)
    return open_at(folder, path, flags, mode);
}
int openat64(int folder, const char *path, int flags, ...) {
    MODE(flags)
    return open_at(folder, path, flags, mode);
}

int mkdir(const char *path, mode_t mode) {
    struct stat status;
    if (fault_of(path) == READ_ONLY && stat(path, &status) != 0) return fail(EROFS);
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}
int rename(const char *source, const char *target) {
    if (fault_of(target) == READ_ONLY) return fail(EROFS);
    return (int)syscall(SYS_renameat2, AT_FDCWD, source, AT_FDCWD, target, 0);
}
int unlink(const char *path) {
    if (fault_of(path) == READ_ONLY) return fail(EROFS);
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}
