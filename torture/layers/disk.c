/* A disk as a process sees it: LD_PRELOAD of this makes syncs fail or take long, fills the disk, and keeps a journal for power cuts.
 *
 * The cells of the file that SKEP_TORTURE_DISK names say how; they are written from outside while the process runs, and all are zero at
 * first, which changes nothing. Beside it, with `.journal` at the end of its name, is the file with the root, the folder whose files are meant, and
 * the journal. The calls below reach the kernel directly. For 64-bit Linux.
 *
 * Not covered: what stdio writes (fwrite), copy_file_range, sendfile, io_uring, and stores to mapped memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
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

#define ROOT_BYTES 4096 /* then the journal begins */
#define MAGIC 0x6a6f75726e616c21u

enum full { ROOMY, NO_GROWTH, NO_WRITES };
enum kind { WRITE = 1, TRUNCATE, SYNC, GONE };

/* As torture/layers/disk.py names them. */
struct cells {
    _Atomic int64_t version;
    _Atomic int64_t loaded;        /* processes that have loaded the layer */
    _Atomic int64_t root_length;   /* 0 until the root is known */
    _Atomic int64_t failures_left; /* so many syncs are still to fail */
    _Atomic int64_t delay_ms;      /* each sync takes so much longer */
    _Atomic int64_t full;
    _Atomic int64_t room;          /* bytes that a full disk still takes */
    _Atomic int64_t journaling;
    _Atomic int64_t journal_bytes; /* its size */
    _Atomic int64_t tail;          /* where the next record goes */
    _Atomic int64_t overflowed;
    _Atomic int64_t clock;         /* orders writes and syncs */
    _Atomic int64_t unsynced;      /* writes in the journal since the last sync of any file */
    _Atomic int64_t failed;        /* how often the process met what */
    _Atomic int64_t delayed;
    _Atomic int64_t refused;
};

struct record {
    _Atomic uint64_t magic; /* stored last: without it the record is not whole, and its write was not begun */
    uint64_t place;
    uint64_t kind;
    uint64_t device;
    uint64_t inode;
    uint64_t at;
    uint64_t size;
    uint64_t old_size;      /* of the file */
    uint64_t kept;          /* bytes of the old content, which follow */
    _Atomic uint64_t done;  /* the time after a write, or before a sync; 0 while a write is under way */
};

static struct cells *cells;
static const char *root;
static char *journal;

static void *mapped(const char *path) {
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    struct stat found;
    void *memory = MAP_FAILED;
    if (file >= 0 && fstat(file, &found) == 0)
        memory = mmap(NULL, (size_t)found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    return memory == MAP_FAILED ? NULL : memory;
}

__attribute__((constructor)) static void map_cells(void) {
    const char *path = getenv("SKEP_TORTURE_DISK");
    char beside[PATH_MAX];
    if (!path) return;
    snprintf(beside, sizeof beside, "%s.journal", path);
    struct cells *found = mapped(path);
    root = mapped(beside);
    if (!found || !root) return;
    journal = (char *)root + ROOT_BYTES;
    atomic_fetch_add(&found->loaded, 1);
    cells = found;
}

/* Whether a fault is on that writes can meet. */
static bool writes_matter(void) { return cells && (cells->full || cells->journaling); }

static bool is_journaling(void) { return cells && cells->journaling; }

/* Whether an open file, or folder, is under the root; says what it is. */
static bool is_on_disk(int fd, struct stat *found) {
    char link[64], path[PATH_MAX];
    size_t length = (size_t)cells->root_length;
    if (!length || fstat(fd, found) || !(S_ISREG(found->st_mode) || S_ISDIR(found->st_mode))) return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path);
    return size >= (ssize_t)length && !memcmp(path, root, length) && (size == (ssize_t)length || path[length] == '/');
}

/* The journal: the old content of what is overwritten, and what was synced. */

static void read_old(int fd, char *to, size_t size, off_t at) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd); /* the file may be open for writing only */
    int source = (int)syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC, 0);
    while (size > 0) {
        ssize_t got = pread(source, to, size, at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        to += got, at += got, size -= (size_t)got;
    }
    if (source >= 0) close(source);
}

static uint64_t tick(void) { return (uint64_t)atomic_fetch_add(&cells->clock, 1) + 1; }

static struct record *note(enum kind kind, int fd, const struct stat *file, uint64_t at, uint64_t size, uint64_t done) {
    uint64_t old_size = (uint64_t)file->st_size;
    uint64_t kept = at >= old_size ? 0 : (at + size < old_size ? size : old_size - at);
    uint64_t bytes = (sizeof(struct record) + kept + 7) & ~(uint64_t)7;
    uint64_t place = (uint64_t)atomic_fetch_add(&cells->tail, (int64_t)bytes);
    if (place + bytes > (uint64_t)cells->journal_bytes) {
        cells->overflowed = 1;
        return NULL;
    }
    struct record *record = (struct record *)(journal + place);
    record->place = place, record->kind = kind, record->device = file->st_dev, record->inode = file->st_ino;
    record->at = at, record->size = size, record->old_size = old_size, record->kept = kept, record->done = done;
    if (kept) read_old(fd, (char *)(record + 1), kept, (off_t)at);
    atomic_store(&record->magic, MAGIC);
    return record;
}

static struct record *note_write(int fd, const struct stat *file, uint64_t at, uint64_t size) {
    return is_journaling() && S_ISREG(file->st_mode) ? note(WRITE, fd, file, at, size, 0) : NULL;
}

static void note_done(struct record *record) {
    if (!record) return;
    record->done = tick();
    atomic_fetch_add(&cells->unsynced, 1);
}

/* A file that is about to lose its last name: its inode may soon be another file's. */
static bool is_last_name(int folder, const char *path, struct stat *found) {
    return is_journaling() && !fstatat(folder, path, found, AT_SYMLINK_NOFOLLOW) && S_ISREG(found->st_mode) && found->st_nlink == 1;
}

/* Writes. */

/* How many bytes of a write a disk takes; -1 with ENOSPC when it takes none. */
static ssize_t room_for(const struct stat *file, uint64_t at, size_t size) {
    int64_t full = cells->full;
    uint64_t end = at + size, old_size = (uint64_t)file->st_size;
    uint64_t growth = end <= old_size ? 0 : (at >= old_size ? size : end - old_size);
    uint64_t asked = full == NO_WRITES ? size : growth;
    if (full == ROOMY || asked == 0) return (ssize_t)size;
    int64_t room = atomic_fetch_sub(&cells->room, (int64_t)asked);
    if (room >= (int64_t)asked) return (ssize_t)size;
    if (room < 0) room = 0;
    atomic_fetch_add(&cells->room, (int64_t)asked - room);
    atomic_fetch_add(&cells->refused, 1);
    uint64_t taken = size - asked + (uint64_t)room;
    if (taken > 0) return (ssize_t)taken;
    errno = ENOSPC;
    return -1;
}

static size_t total(const struct iovec *parts, int count) {
    size_t size = 0;
    for (int i = 0; i < count; i++) size += parts[i].iov_len;
    return size;
}

/* The first parts of a write that hold so many bytes. */
static int shortened(const struct iovec *parts, int count, size_t size, struct iovec *first) {
    int used = 0;
    for (; used < count && used < IOV_MAX && size > 0; used++) {
        first[used] = parts[used];
        if (first[used].iov_len > size) first[used].iov_len = size;
        size -= first[used].iov_len;
    }
    return used;
}

/* All writes end here; ``at`` is -1 where the file's own position counts. */
static ssize_t write_parts(int fd, const struct iovec *parts, int count, off_t at) {
    struct stat file;
    struct iovec first[IOV_MAX];
    struct record *record = NULL;
    if (writes_matter() && is_on_disk(fd, &file)) {
        bool appends = at < 0 && (fcntl(fd, F_GETFL) & O_APPEND);
        uint64_t place = (uint64_t)(at >= 0 ? at : appends ? file.st_size : lseek(fd, 0, SEEK_CUR));
        ssize_t size = room_for(&file, place, total(parts, count));
        if (size < 0) return -1;
        count = shortened(parts, count, (size_t)size, first);
        parts = first;
        record = note_write(fd, &file, place, (uint64_t)size);
    }
    ssize_t written =
        at < 0 ? syscall(SYS_writev, fd, parts, count) : syscall(SYS_pwritev, fd, parts, count, (unsigned long)at, 0ul);
    note_done(record);
    return written;
}

ssize_t write(int fd, const void *data, size_t size) {
    if (!writes_matter()) return syscall(SYS_write, fd, data, size);
    struct iovec part = {(void *)data, size};
    struct stat file;
    return is_on_disk(fd, &file) ? write_parts(fd, &part, 1, -1) : syscall(SYS_write, fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    if (!writes_matter() || at < 0) return syscall(SYS_pwrite64, fd, data, size, at);
    struct iovec part = {(void *)data, size};
    return write_parts(fd, &part, 1, at);
}

ssize_t writev(int fd, const struct iovec *parts, int count) { return write_parts(fd, parts, count, -1); }

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    if (at < 0) return syscall(SYS_pwritev, fd, parts, count, (unsigned long)at, 0ul);
    return write_parts(fd, parts, count, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { return pwrite(fd, data, size, at); }

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) { return pwritev(fd, parts, count, at); }

/* Sizes. */

int fallocate(int fd, int mode, off_t at, off_t size) {
    struct stat file;
    struct record *record = NULL;
    if (writes_matter() && at >= 0 && size > 0 && is_on_disk(fd, &file)) {
        ssize_t room = room_for(&file, (uint64_t)at, (size_t)size);
        if (room < size) {
            errno = ENOSPC; /* all of it or nothing */
            return -1;
        }
        if (at + size > file.st_size) record = note_write(fd, &file, (uint64_t)file.st_size, (uint64_t)(at + size - file.st_size));
    }
    int done = (int)syscall(SYS_fallocate, fd, mode, at, size);
    note_done(record);
    return done;
}

int posix_fallocate(int fd, off_t at, off_t size) {
    int before = errno, failed = fallocate(fd, 0, at, size) ? errno : 0;
    errno = before;
    return failed;
}

int ftruncate(int fd, off_t size) {
    struct stat file;
    struct record *record = NULL;
    if (writes_matter() && size >= 0 && is_on_disk(fd, &file)) {
        uint64_t old_size = (uint64_t)file.st_size, new_size = (uint64_t)size;
        if (new_size > old_size) {
            if (room_for(&file, old_size, new_size - old_size) < size - file.st_size) {
                errno = ENOSPC;
                return -1;
            }
            record = note_write(fd, &file, old_size, new_size - old_size);
        } else if (new_size < old_size && is_journaling()) {
            record = note(TRUNCATE, fd, &file, new_size, old_size - new_size, 0);
        }
    }
    int done = (int)syscall(SYS_ftruncate, fd, size);
    note_done(record);
    return done;
}

int truncate(const char *path, off_t size) {
    if (!writes_matter()) return (int)syscall(SYS_truncate, path, size);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
    if (fd < 0) return -1;
    int done = ftruncate(fd, size), why = errno;
    close(fd);
    errno = why;
    return done;
}

int fallocate64(int fd, int mode, off64_t at, off64_t size) { return fallocate(fd, mode, at, size); }

int posix_fallocate64(int fd, off64_t at, off64_t size) { return posix_fallocate(fd, at, size); }

int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

int truncate64(const char *path, off64_t size) { return truncate(path, size); }

/* An open file with O_TRUNC loses its content first, as with ftruncate. */
static int open_at(int folder, const char *path, int flags, mode_t mode) {
    if ((flags & O_TRUNC) && !(flags & O_EXCL) && is_journaling()) {
        int fd = (int)syscall(SYS_openat, folder, path, O_WRONLY | O_CLOEXEC | O_NONBLOCK, 0);
        if (fd >= 0) {
            ftruncate(fd, 0);
            close(fd);
        }
    }
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

static mode_t mode_of(int flags, va_list rest) {
    return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? (mode_t)va_arg(rest, int) : 0;
}

#define OPENS(name, given, folder)                         \
    int name given {                                       \
        va_list rest;                                      \
        va_start(rest, flags);                             \
        mode_t mode = mode_of(flags, rest);                \
        va_end(rest);                                      \
        return open_at(folder, path, flags, mode);         \
    }

OPENS(open, (const char *path, int flags, ...), AT_FDCWD)
OPENS(open64, (const char *path, int flags, ...), AT_FDCWD)
OPENS(openat, (int folder, const char *path, int flags, ...), folder)
OPENS(openat64, (int folder, const char *path, int flags, ...), folder)

/* Syncs. */

static void wait_ms(int64_t delay_ms) {
    struct timespec left = {(time_t)(delay_ms / 1000), (long)(delay_ms % 1000) * 1000000};
    while (nanosleep(&left, &left) && errno == EINTR) continue;
}

/* Whether this sync is one of those that fail. */
static bool takes_failure(void) {
    int64_t left = cells->failures_left;
    while (left > 0)
        if (atomic_compare_exchange_weak(&cells->failures_left, &left, left - 1)) return true;
    return false;
}

static int sync_with(long call, int fd) {
    struct stat file;
    bool matters = cells && (cells->failures_left || cells->delay_ms || cells->journaling) && is_on_disk(fd, &file);
    if (!matters) return (int)syscall(call, fd);
    int64_t delay_ms = cells->delay_ms;
    if (delay_ms > 0 && (!cells->journaling || cells->unsynced)) { /* a power cut waits for a sync that has something to do */
        atomic_fetch_add(&cells->delayed, 1);
        wait_ms(delay_ms);
    }
    if (takes_failure()) {
        atomic_fetch_add(&cells->failed, 1);
        errno = EIO;
        return -1;
    }
    uint64_t began = tick();
    int done = (int)syscall(call, fd);
    if (done == 0 && is_journaling()) {
        note(SYNC, fd, &file, 0, 0, began);
        cells->unsynced = 0;
    }
    return done;
}

int fsync(int fd) { return sync_with(SYS_fsync, fd); }

int fdatasync(int fd) { return sync_with(SYS_fdatasync, fd); }

/* Names. They are durable at once. */

int unlinkat(int folder, const char *path, int flags) {
    struct stat found;
    bool is_last = is_last_name(folder, path, &found);
    uint64_t began = is_last ? tick() : 0;
    int done = (int)syscall(SYS_unlinkat, folder, path, flags);
    if (done == 0 && is_last) note(GONE, -1, &found, 0, 0, began);
    return done;
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    struct stat found;
    bool replaces = is_last_name(to_folder, to, &found);
    uint64_t began = replaces ? tick() : 0;
    int done = (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, 0);
    if (done == 0 && replaces) note(GONE, -1, &found, 0, 0, began);
    return done;
}

int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }
