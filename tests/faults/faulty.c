/* File system calls that remember what was not synced, and fail when they are told to. Preloaded into a process under test.

   FAULTY_UNDER    the files it is about: those whose path contains this
   FAULTY_CONTROL  a file of `struct control`, shared with the test, which switches things on and off
   FAULTY_LOG      a folder; each process writes its records to a file of its own there

   Records tell what a write changed, so that the test can undo those that no sync followed: tests/faults/power.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { READ = 1, WRITE = 2, EXTEND = 4, SYNC = 8, TRUNCATE = 16 };
enum { WRITTEN = 1, SYNCED = 2, RESIZED = 3, GONE = 4 };

struct control {
    int64_t logging; /* whether writes are recorded, and syncs only recorded */
    int64_t kinds;   /* the calls that fail */
    int64_t code;    /* their errno; 0 and none fails */
    int64_t after;   /* so many are let through first */
    int64_t times;   /* and so many fail */
    int64_t passed;  /* calls of these kinds that were counted */
    int64_t failed;
    int64_t number; /* of the newest record */
    int64_t clock;  /* seconds that the wall clock is ahead */
};

struct record {
    int64_t kind, number, device, inode, offset, size; /* size: of the file before */
    int64_t was, is;                                   /* bytes that follow: what stood there, and what is written */
};

static struct control none, *control = &none;
static const char *under, *folder;

/* Each is resolved when first used: other libraries write before our constructor runs. */
#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static ssize_t real_pread(int fd, void *data, size_t size, off_t at) { REAL(pread); return real(fd, data, size, at); }
static ssize_t real_write(int fd, const void *data, size_t size) { REAL(write); return real(fd, data, size); }

__attribute__((constructor)) static void begin(void) {
    /* Copies: Postgres writes its process title over its environment. */
    under = getenv("FAULTY_UNDER") ? strdup(getenv("FAULTY_UNDER")) : NULL;
    folder = getenv("FAULTY_LOG") ? strdup(getenv("FAULTY_LOG")) : NULL;
    const char *path = getenv("FAULTY_CONTROL");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *shared = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared != MAP_FAILED) control = shared;
    close(fd);
}

static int is_on(void) { return control->logging || control->code; }

static int concerns(int fd, struct stat *found) {
    if (!is_on() || !under) return 0;
    char name[64], path[PATH_MAX];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    if (!strstr(path, under)) return 0;
    return fstat(fd, found) == 0 && S_ISREG(found->st_mode);
}

static int fails(int kind) {
    if (!control->code || !(control->kinds & kind)) return 0;
    int64_t before = __atomic_fetch_add(&control->passed, 1, __ATOMIC_SEQ_CST);
    if (before < control->after || before >= control->after + control->times) return 0;
    __atomic_fetch_add(&control->failed, 1, __ATOMIC_SEQ_CST);
    errno = (int)control->code;
    return 1;
}

/* A write that is not remembered cannot be undone. */
static void die(const char *why) {
    dprintf(2, "faulty.c: %s: %s\n", why, strerror(errno));
    abort();
}

static void append(struct record *record, const void *was, const struct iovec *is, int count) {
    static int log = -1;
    static pid_t owner;
    static __thread struct iovec parts[1030];
    if (owner != getpid()) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%d", folder, (int)getpid());
        log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        owner = getpid();
    }
    parts[0] = (struct iovec){record, sizeof *record};
    parts[1] = (struct iovec){(void *)was, (size_t)record->was};
    for (int n = 0; n < count; n++) parts[n + 2] = is[n];
    static ssize_t (*real)(int, const struct iovec *, int);
    if (!real) real = (ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
    if (log < 0 || real(log, parts, count + 2) < 0) die("cannot write a record");
}

static struct record new_record(int kind, const struct stat *file) {
    int64_t number = __atomic_add_fetch(&control->number, 1, __ATOMIC_SEQ_CST);
    return (struct record){.kind = kind, .number = number, .device = (int64_t)file->st_dev,
                           .inode = (int64_t)file->st_ino, .size = file->st_size};
}

/* The bytes of a file from there on, at most so many; how many there are. */
static int64_t old_bytes(int fd, off_t at, int64_t size, const struct stat *file, char **bytes) {
    int64_t there = file->st_size - at;
    if (there > size) there = size;
    *bytes = NULL;
    if (there <= 0) return 0;
    *bytes = malloc((size_t)there);
    /* The file may be open for writing alone. */
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int reading = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t found = *bytes && reading >= 0 ? real_pread(reading, *bytes, (size_t)there, at) : -1;
    if (found != there) die("cannot read what a write replaces");
    close(reading);
    return there;
}

/* Before a write: whether it is to fail; else it is recorded. */
static int refuses(int fd, const struct iovec *data, int count, off_t at) {
    struct stat file;
    int saved = errno;
    if (!concerns(fd, &file)) { errno = saved; return 0; }
    int64_t size = 0;
    for (int n = 0; n < count; n++) size += (int64_t)data[n].iov_len;
    if (at < 0) at = fcntl(fd, F_GETFL) & O_APPEND ? file.st_size : lseek(fd, 0, SEEK_CUR);
    if (fails(WRITE) || (at + size > file.st_size && fails(EXTEND))) return 1;
    if (control->logging) {
        char *was;
        struct record record = new_record(WRITTEN, &file);
        record.offset = at;
        record.is = size;
        record.was = old_bytes(fd, at, size, &file, &was);
        append(&record, was, data, count);
        free(was);
    }
    errno = saved;
    return 0;
}

ssize_t write(int fd, const void *data, size_t size) {
    struct iovec one = {(void *)data, size};
    return refuses(fd, &one, 1, -1) ? -1 : real_write(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *data, int count) {
    REAL(writev);
    return refuses(fd, data, count, -1) ? -1 : real(fd, data, count);
}

#define PWRITE(name) \
    ssize_t name(int fd, const void *data, size_t size, off_t at) { \
        REAL(name); \
        struct iovec one = {(void *)data, size}; \
        return refuses(fd, &one, 1, at) ? -1 : real(fd, data, size, at); \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define PWRITEV(name) \
    ssize_t name(int fd, const struct iovec *data, int count, off_t at) { \
        REAL(name); \
        return refuses(fd, data, count, at) ? -1 : real(fd, data, count, at); \
    }
PWRITEV(pwritev)
PWRITEV(pwritev64)

#define PREAD(name) \
    ssize_t name(int fd, void *data, size_t size, off_t at) { \
        REAL(name); \
        struct stat file; \
        return concerns(fd, &file) && fails(READ) ? -1 : real(fd, data, size, at); \
    }
PREAD(pread)
PREAD(pread64)

#define PREADV(name) \
    ssize_t name(int fd, const struct iovec *data, int count, off_t at) { \
        REAL(name); \
        struct stat file; \
        return concerns(fd, &file) && fails(READ) ? -1 : real(fd, data, count, at); \
    }
PREADV(preadv)
PREADV(preadv64)

/* While we remember, what a sync promises is what we say it is, and the disk need not be asked. */
#define FSYNC(name) \
    int name(int fd) { \
        REAL(name); \
        struct stat file; \
        if (!concerns(fd, &file)) return control->logging && under ? 0 : real(fd); \
        if (fails(SYNC)) return -1; \
        if (!control->logging) return real(fd); \
        struct record record = new_record(SYNCED, &file); \
        append(&record, NULL, NULL, 0); \
        return 0; \
    }
FSYNC(fsync)
FSYNC(fdatasync)

static int resizes(int fd, off_t size, int *failing) {
    struct stat file;
    *failing = 0;
    if (!concerns(fd, &file)) return 0;
    if (fails(TRUNCATE) || (size > file.st_size && fails(EXTEND))) return *failing = 1;
    if (control->logging && size != file.st_size) {
        char *was;
        struct record record = new_record(RESIZED, &file);
        record.offset = size;
        record.was = size < file.st_size ? old_bytes(fd, size, file.st_size - size, &file, &was) : 0;
        append(&record, record.was ? was : NULL, NULL, 0);
        if (record.was) free(was);
    }
    return 0;
}

#define FTRUNCATE(name) \
    int name(int fd, off_t size) { \
        REAL(name); \
        int failing; \
        resizes(fd, size, &failing); \
        return failing ? -1 : real(fd, size); \
    }
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)

/* Returns its error instead of setting it. It never makes a file smaller. */
#define FALLOCATE(name) \
    int name(int fd, off_t at, off_t size) { \
        REAL(name); \
        struct stat file; \
        int failing = 0; \
        if (is_on() && fstat(fd, &file) == 0 && at + size > file.st_size) resizes(fd, at + size, &failing); \
        return failing ? (int)control->code : real(fd, at, size); \
    }
FALLOCATE(posix_fallocate)
FALLOCATE(posix_fallocate64)

/* Another file may get its inode. */
static void gone(const char *path) {
    struct stat file;
    if (control->logging && under && strstr(path, under) && lstat(path, &file) == 0 && S_ISREG(file.st_mode) &&
        file.st_nlink == 1) {
        struct record record = new_record(GONE, &file);
        append(&record, NULL, NULL, 0);
    }
}

int unlink(const char *path) {
    REAL(unlink);
    gone(path);
    return real(path);
}

int rename(const char *from, const char *to) {
    REAL(rename);
    gone(to);
    return real(from, to);
}

int clock_gettime(clockid_t which, struct timespec *now) {
    REAL(clock_gettime);
    int result = real(which, now);
    if (result == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += control->clock;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    REAL(gettimeofday);
    int result = real(now, zone);
    if (result == 0) now->tv_sec += control->clock;
    return result;
}

time_t time(time_t *now) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now) *now = found.tv_sec;
    return found.tv_sec;
}
