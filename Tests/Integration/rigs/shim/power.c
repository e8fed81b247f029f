// Records the changes of a process to the files of a folder, so that a power failure at any instant can be replayed afterwards.
// It is loaded with LD_PRELOAD. It writes each change of a file or a name below LONGWIRE_POWER_FOLDER to the log
// LONGWIRE_POWER_LOG, in the order in which the kernel performed them, and records when each sync began and returned.
// `power_disk.py` reads the log.
//
// The log is a file of fixed size in shared memory. Its header is a page:
//
//     0   "LWPOWER1"
//     8   the position of the next record. A reader of it after an answer knows that the answer came no later.
//     16  1 to hold every change, so that the process can be killed between two changes and not within one; 2 to begin
//         with that at the end of the journal's next fdatasync, before it is recorded
//     24  1 while a change is in progress
//
// A record is 32 bytes, then its names (each ended by a zero), then a write's bytes, then zeros up to a multiple of 8:
//
//     u32 byte count  u8 kind  u8 flags  u16 bytes of names  u64 inode  u64 offset  u64 length
//
// Syncs are not forwarded: they take about LONGWIRE_POWER_SYNC_MICROSECONDS, and only the log determines their effect. A run
// therefore does not depend on the underlying disk, and events during a sync have time to happen.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum kind {
    START = 1, CREATE, WRITE, TRUNCATE, ALLOCATE, RENAME, LINK, UNLINK, MAKE_FOLDER, REMOVE_FOLDER, SYNC_BEGINS,
    SYNC_ENDS
};
enum flag { IS_ZERO = 1, IS_DATA_ONLY = 2 };

struct head {
    char magic[8];
    _Atomic uint64_t end, is_held, is_changing;
};
struct record {
    uint32_t byte_count;
    uint8_t kind, flags;
    uint16_t name_byte_count;
    uint64_t inode, offset, length;
};

#define DESCRIPTOR_COUNT 65536
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct head *head;
static size_t capacity;
static char folder[4096];
static size_t folder_length;
static long sync_microseconds;
static _Atomic uint64_t inodes[DESCRIPTOR_COUNT];  // of files below the folder; 0 for every other descriptor

static void say(const char *text) {
    char line[256];
    int count = snprintf(line, sizeof line, "power shim: %s\n", text);
    syscall(SYS_write, 2, line, (size_t)count);
}

static void stop(const char *text) {
    say(text);
    syscall(SYS_exit_group, 99);
}

static uint64_t inode_of(const char *path);
static void append(
    enum kind kind, int flags, uint64_t inode, uint64_t offset, uint64_t length, const char *first, const char *second,
    const struct iovec *parts, int part_count, size_t byte_count);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("LONGWIRE_POWER_FOLDER"), *log = getenv("LONGWIRE_POWER_LOG");
    const char *pause = getenv("LONGWIRE_POWER_SYNC_MICROSECONDS");
    if (!path || !log) return;
    snprintf(folder, sizeof folder, "%s/", path);
    folder_length = strlen(folder);
    sync_microseconds = pause ? atol(pause) : 0;
    long file = syscall(SYS_openat, AT_FDCWD, log, O_RDWR | O_CLOEXEC);
    struct stat status;
    if (file < 0 || fstat((int)file, &status) != 0) stop("the log cannot be opened");
    capacity = (size_t)status.st_size;
    void *memory = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, (int)file, 0);
    if (memory == MAP_FAILED) stop("the log cannot be mapped");
    syscall(SYS_close, file);
    head = memory;
    if (memcmp(head->magic, "LWPOWER1", 8) != 0) stop("the log has no head");
    uint64_t root = inode_of(path);
    pthread_mutex_lock(&mutex);
    append(START, 0, root, 0, 0, NULL, NULL, NULL, 0, 0);
    pthread_mutex_unlock(&mutex);
    unsetenv("LD_PRELOAD");  // a child would write into the same log
}

// Records. The mutex serializes changes, so that the log's order is the kernel's.

static int is_below(const char *path) { return head && strncmp(path, folder, folder_length) == 0; }

static void enter(void) {
    pthread_mutex_lock(&mutex);
    for (;;) {
        atomic_store(&head->is_changing, 1);
        if (atomic_load(&head->is_held) != 1) return;
        atomic_store(&head->is_changing, 0);
        struct timespec rest = {.tv_nsec = 200000};
        nanosleep(&rest, NULL);
    }
}
static void leave(void) {
    int code = errno;
    atomic_store(&head->is_changing, 0);
    pthread_mutex_unlock(&mutex);
    errno = code;
}

static void append(
    enum kind kind, int flags, uint64_t inode, uint64_t offset, uint64_t length, const char *first, const char *second,
    const struct iovec *parts, int part_count, size_t byte_count) {
    int code = errno;
    size_t first_count = first ? strlen(first) + 1 : 0, second_count = second ? strlen(second) + 1 : 0;
    size_t whole = (sizeof(struct record) + first_count + second_count + byte_count + 7) & ~(size_t)7;
    uint64_t position = atomic_load(&head->end);
    if (position + whole > capacity) stop("the log is full");
    uint8_t *place = (uint8_t *)head + position;
    struct record record = {
        (uint32_t)whole, (uint8_t)kind, (uint8_t)flags, (uint16_t)(first_count + second_count), inode, offset, length};
    memcpy(place, &record, sizeof record);
    place += sizeof record;
    if (first) memcpy(place, first, first_count);
    if (second) memcpy(place + first_count, second, second_count);
    place += first_count + second_count;
    for (int index = 0; index < part_count && byte_count > 0; index++) {
        size_t part = parts[index].iov_len < byte_count ? parts[index].iov_len : byte_count;
        memcpy(place, parts[index].iov_base, part);
        place += part;
        byte_count -= part;
    }
    atomic_store(&head->end, position + whole);
    errno = code;
}

/// Returns the inode of a name; 0 for none.
static uint64_t inode_of(const char *path) {
    struct stat status;
    int code = errno;
    uint64_t inode = fstatat(AT_FDCWD, path, &status, AT_SYMLINK_NOFOLLOW) == 0 ? status.st_ino : 0;
    errno = code;
    return inode;
}

/// Returns the inode of a descriptor below the folder, or 0.
static uint64_t followed(int descriptor) {
    if (descriptor < 0 || descriptor >= DESCRIPTOR_COUNT) return 0;
    uint64_t known = atomic_load(&inodes[descriptor]);
    if (!known) return 0;
    // A descriptor that was closed without this library may have another file now.
    struct stat status;
    int code = errno;
    if (fstat(descriptor, &status) != 0 || status.st_ino != known
        || !(S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))) {
        atomic_store(&inodes[descriptor], 0);
        known = 0;
    }
    errno = code;
    return known;
}

static int is_zero(const struct iovec *parts, int part_count, size_t byte_count) {
    for (int index = 0; index < part_count && byte_count > 0; index++) {
        const uint8_t *bytes = parts[index].iov_base;
        size_t part = parts[index].iov_len < byte_count ? parts[index].iov_len : byte_count;
        if (part > 0 && (bytes[0] != 0 || memcmp(bytes, bytes + 1, part - 1) != 0)) return 0;
        byte_count -= part;
    }
    return 1;
}

static void note_write(
    int descriptor, uint64_t inode, off_t offset, const struct iovec *parts, int part_count, ssize_t written) {
    if (written <= 0) return;
    size_t count = (size_t)written;
    struct stat status;
    // Such a write appends to the file, whatever its offset.
    if (fcntl(descriptor, F_GETFL) & O_APPEND && fstat(descriptor, &status) == 0) offset = status.st_size - written;
    if (is_zero(parts, part_count, count)) {
        append(WRITE, IS_ZERO, inode, (uint64_t)offset, count, NULL, NULL, NULL, 0, 0);
    } else {
        append(WRITE, 0, inode, (uint64_t)offset, count, NULL, NULL, parts, part_count, count);
    }
}

// Writing

ssize_t write(int descriptor, const void *bytes, size_t count) {
    uint64_t inode = followed(descriptor);
    if (!inode) return syscall(SYS_write, descriptor, bytes, count);
    struct iovec part = {(void *)bytes, count};
    enter();
    ssize_t result = syscall(SYS_write, descriptor, bytes, count);
    if (result > 0) note_write(descriptor, inode, lseek(descriptor, 0, SEEK_CUR) - result, &part, 1, result);
    leave();
    return result;
}
ssize_t writev(int descriptor, const struct iovec *parts, int part_count) {
    uint64_t inode = followed(descriptor);
    if (!inode) return syscall(SYS_writev, descriptor, parts, (long)part_count);
    enter();
    ssize_t result = syscall(SYS_writev, descriptor, parts, (long)part_count);
    if (result > 0) note_write(descriptor, inode, lseek(descriptor, 0, SEEK_CUR) - result, parts, part_count, result);
    leave();
    return result;
}
ssize_t pwrite(int descriptor, const void *bytes, size_t count, off_t offset) {
    uint64_t inode = followed(descriptor);
    if (!inode) return syscall(SYS_pwrite64, descriptor, bytes, count, offset);
    struct iovec part = {(void *)bytes, count};
    enter();
    ssize_t result = syscall(SYS_pwrite64, descriptor, bytes, count, offset);
    note_write(descriptor, inode, offset, &part, 1, result);
    leave();
    return result;
}
ssize_t pwrite64(int descriptor, const void *bytes, size_t count, off64_t offset) {
    return pwrite(descriptor, bytes, count, offset);
}
ssize_t pwritev(int descriptor, const struct iovec *parts, int part_count, off_t offset) {
    uint64_t inode = followed(descriptor);
    if (!inode) return syscall(SYS_pwritev, descriptor, parts, (long)part_count, (long)offset, 0L);
    enter();
    ssize_t result = syscall(SYS_pwritev, descriptor, parts, (long)part_count, (long)offset, 0L);
    note_write(descriptor, inode, offset, parts, part_count, result);
    leave();
    return result;
}
ssize_t pwritev64(int descriptor, const struct iovec *parts, int part_count, off64_t offset) {
    return pwritev(descriptor, parts, part_count, offset);
}
ssize_t pwritev2(int descriptor, const struct iovec *parts, int part_count, off_t offset, int flags) {
    if (followed(descriptor) && (flags || offset == -1)) stop("a kind of pwritev2 that is not recorded");
    if (followed(descriptor)) return pwritev(descriptor, parts, part_count, offset);
    return syscall(SYS_pwritev2, descriptor, parts, (long)part_count, (long)offset, 0L, flags);
}
ssize_t pwritev64v2(int descriptor, const struct iovec *parts, int part_count, off64_t offset, int flags) {
    return pwritev2(descriptor, parts, part_count, offset, flags);
}

int ftruncate(int descriptor, off_t length) {
    uint64_t inode = followed(descriptor);
    if (!inode) return (int)syscall(SYS_ftruncate, descriptor, length);
    enter();
    int result = (int)syscall(SYS_ftruncate, descriptor, length);
    if (result == 0) append(TRUNCATE, 0, inode, 0, (uint64_t)length, NULL, NULL, NULL, 0, 0);
    leave();
    return result;
}
int ftruncate64(int descriptor, off64_t length) { return ftruncate(descriptor, length); }
int truncate(const char *path, off_t length) {
    if (!is_below(path)) return (int)syscall(SYS_truncate, path, length);
    enter();
    int result = (int)syscall(SYS_truncate, path, length);
    if (result == 0) append(TRUNCATE, 0, inode_of(path), 0, (uint64_t)length, NULL, NULL, NULL, 0, 0);
    leave();
    return result;
}
int truncate64(const char *path, off64_t length) { return truncate(path, length); }

int fallocate(int descriptor, int mode, off_t offset, off_t count) {
    uint64_t inode = followed(descriptor);
    if (!inode) return (int)syscall(SYS_fallocate, descriptor, mode, offset, count);
    if (mode & ~FALLOC_FL_KEEP_SIZE) stop("a kind of fallocate that is not recorded");
    enter();
    int result = (int)syscall(SYS_fallocate, descriptor, mode, offset, count);
    if (result == 0 && !(mode & FALLOC_FL_KEEP_SIZE)) {
        append(ALLOCATE, 0, inode, (uint64_t)offset, (uint64_t)count, NULL, NULL, NULL, 0, 0);
    }
    leave();
    return result;
}
int fallocate64(int descriptor, int mode, off64_t offset, off64_t count) {
    return fallocate(descriptor, mode, offset, count);
}
int posix_fallocate(int descriptor, off_t offset, off_t count) {
    return fallocate(descriptor, 0, offset, count) == 0 ? 0 : errno;
}
int posix_fallocate64(int descriptor, off64_t offset, off64_t count) {
    return posix_fallocate(descriptor, offset, count);
}

// Syncing

/// Whether the file is a segment of the journal; the tables' files are synced, too, at other instants.
static int is_segment(int descriptor) {
    char link[64], name[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, name, sizeof name - 1);
    name[length > 0 ? length : 0] = 0;
    return strstr(name, "/segment-") != NULL;
}

static int synchronize(int descriptor, long number) {
    uint64_t inode = followed(descriptor);
    if (!inode) return (int)syscall(number, descriptor);
    int flags = number == SYS_fdatasync ? IS_DATA_ONLY : 0;
    enter();
    uint64_t began = atomic_load(&head->end);
    append(SYNC_BEGINS, flags, inode, 0, 0, NULL, NULL, NULL, 0, 0);
    leave();
    if (sync_microseconds > 0) {
        // Between a half and one and a half, by the position. Only a run's log is repeatable, not the run.
        long spread = (long)(began * 2654435761u >> 8) % sync_microseconds;
        struct timespec rest = {.tv_nsec = (sync_microseconds / 2 + spread) * 1000};
        nanosleep(&rest, NULL);
    }
    uint64_t soon = 2;
    if (flags & IS_DATA_ONLY && atomic_load(&head->is_held) == soon && is_segment(descriptor))
        atomic_compare_exchange_strong(&head->is_held, &soon, 1);
    enter();
    append(SYNC_ENDS, flags, inode, began, 0, NULL, NULL, NULL, 0, 0);
    leave();
    return 0;
}
int fdatasync(int descriptor) { return synchronize(descriptor, SYS_fdatasync); }
int fsync(int descriptor) { return synchronize(descriptor, SYS_fsync); }

int sync_file_range(int descriptor, off64_t offset, off64_t count, unsigned flags) {
    // Has no effect: neither the disk's cache nor the metadata to find the data is written.
    if (followed(descriptor)) return 0;
    return (int)syscall(SYS_sync_file_range, descriptor, offset, count, flags);
}

// Opening and closing

static int open_at(int at, const char *path, int flags, mode_t mode) {
    if (!is_below(path)) {
        int result = (int)syscall(SYS_openat, at, path, flags, mode);
        if (result >= 0 && result < DESCRIPTOR_COUNT) {
            atomic_store(&inodes[result], 0);
            // The folder itself.
            if (head && strncmp(path, folder, folder_length - 1) == 0 && path[folder_length - 1] == 0) {
                atomic_store(&inodes[result], inode_of(path));
            }
        }
        return result;
    }
    if ((flags & O_TMPFILE) == O_TMPFILE) stop("O_TMPFILE is not recorded");
    int changes = flags & (O_CREAT | O_TRUNC);
    if (changes) enter();
    uint64_t before = flags & O_CREAT ? inode_of(path) : 0;
    int result = (int)syscall(SYS_openat, at, path, flags, mode);
    if (result >= DESCRIPTOR_COUNT) stop("too many descriptors");
    if (result >= 0) {
        struct stat status;
        int is_known = fstat(result, &status) == 0;
        atomic_store(&inodes[result], is_known ? status.st_ino : 0);
        if (flags & O_CREAT && !before) {
            append(CREATE, 0, status.st_ino, 0, 0, path, NULL, NULL, 0, 0);
        } else if (flags & O_TRUNC) {
            append(TRUNCATE, 0, status.st_ino, 0, 0, NULL, NULL, NULL, 0, 0);
        }
    }
    if (changes) leave();
    return result;
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
int openat(int at, const char *path, int flags, ...) {
    MODE(flags)
    return open_at(at, path, flags, mode);
}
int openat64(int at, const char *path, int flags, ...) {
    MODE(flags)
    return open_at(at, path, flags, mode);
}
int creat(const char *path, mode_t mode) { return open_at(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode); }
int close(int descriptor) {
    if (descriptor >= 0 && descriptor < DESCRIPTOR_COUNT) atomic_store(&inodes[descriptor], 0);
    return (int)syscall(SYS_close, descriptor);
}

// Names

int mkdir(const char *path, mode_t mode) {
    if (!is_below(path)) return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    enter();
    int result = (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    if (result == 0) append(MAKE_FOLDER, 0, inode_of(path), 0, 0, path, NULL, NULL, 0, 0);
    leave();
    return result;
}
int rename(const char *source, const char *target) {
    if (!is_below(source) && !is_below(target)) {
        return (int)syscall(SYS_renameat2, AT_FDCWD, source, AT_FDCWD, target, 0);
    }
    enter();
    uint64_t inode = inode_of(source);
    int result = (int)syscall(SYS_renameat2, AT_FDCWD, source, AT_FDCWD, target, 0);
    if (result == 0) append(RENAME, 0, inode, 0, 0, source, target, NULL, 0, 0);
    leave();
    return result;
}
int link(const char *source, const char *target) {
    if (!is_below(target)) return (int)syscall(SYS_linkat, AT_FDCWD, source, AT_FDCWD, target, 0);
    enter();
    int result = (int)syscall(SYS_linkat, AT_FDCWD, source, AT_FDCWD, target, 0);
    if (result == 0) append(LINK, 0, inode_of(target), 0, 0, source, target, NULL, 0, 0);
    leave();
    return result;
}
static int remove_name(const char *path, int flags, enum kind kind) {
    if (!is_below(path)) return (int)syscall(SYS_unlinkat, AT_FDCWD, path, flags);
    enter();
    uint64_t inode = inode_of(path);
    int result = (int)syscall(SYS_unlinkat, AT_FDCWD, path, flags);
    if (result == 0) append(kind, 0, inode, 0, 0, path, NULL, NULL, 0, 0);
    leave();
    return result;
}
int unlink(const char *path) { return remove_name(path, 0, UNLINK); }
int rmdir(const char *path) { return remove_name(path, AT_REMOVEDIR, REMOVE_FOLDER); }
int remove(const char *path) {
    int result = unlink(path);
    return result != 0 && (errno == EISDIR || errno == EPERM) ? rmdir(path) : result;
}
