/* Calls to a disk that answers late, for the programs of tests: those named in SLOW_CALLS wait SLOW_MILLIS before they are made,
 * where their path holds SLOW_PATH. It must change nothing else. Built by the test, and loaded by LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static void wait_for(const char *call, const char *path) {
    const char *calls = getenv("SLOW_CALLS"), *part = getenv("SLOW_PATH"), *millis = getenv("SLOW_MILLIS");
    if (!calls || !part || !millis || !path || !strstr(calls, call) || !strstr(path, part)) return;
    long long wait = atoll(millis);
    struct timespec rest = {wait / 1000, wait % 1000 * 1000000};
    while (nanosleep(&rest, &rest) != 0) {}
}

int open64(const char *path, int flags, ...) {
    static int (*next)(const char *, int, ...);
    if (!next) next = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    wait_for("open", path);
    return next(path, flags, mode);
}

int statx(int folder, const char *path, int flags, unsigned mask, struct statx *found) {
    static int (*next)(int, const char *, int, unsigned, struct statx *);
    if (!next) next = (int (*)(int, const char *, int, unsigned, struct statx *))dlsym(RTLD_NEXT, "statx");
    wait_for("stat", path);
    return next(folder, path, flags, mask, found);
}

int mkdir(const char *path, mode_t mode) {
    static int (*next)(const char *, mode_t);
    if (!next) next = (int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "mkdir");
    wait_for("mkdir", path);
    return next(path, mode);
}

int unlink(const char *path) {
    static int (*next)(const char *);
    if (!next) next = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
    wait_for("unlink", path);
    return next(path);
}
