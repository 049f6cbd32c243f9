/* Time as a process sees it: LD_PRELOAD of this puts its clocks ahead or back, lets them drift, and blocks its main thread.
 *
 * The cells of the file that SKEP_TORTURE_CLOCK names say how; they are written from outside while the process runs, and all are zero
 * at first, which changes nothing. Children have the same cells. Waits until a point in time are put back to the kernel's time, so that
 * a thread waits as long as it meant to.
 *
 * Not covered: timerfd and POSIX timers with absolute times, and programs that make system calls without the C library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS 1000000000LL
#define MILLION 1000000LL
#define WALL_SINCE 1000000000LL /* seconds: no machine has run for so long, and no wall clock is so far behind */

/* As torture/layers/clock.py names them. */
struct cells {
    int64_t version; /* odd while somebody writes */
    int64_t loaded;  /* processes that have loaded the layer */
    int64_t wall_ns; /* by how much the wall clock is ahead */
    int64_t drift_ppm;      /* by how much it is too fast since then; then the monotonic clock alone leads it, so that it never trembles */
    int64_t drift_since_ns; /* of the kernel's monotonic clock */
    int64_t drift_wall_ns;  /* of the kernel's wall clock at that moment */
    int64_t monotonic_ns;   /* by how much the monotonic clocks are ahead */
    int64_t block_ns;       /* how long the main thread is to be blocked when it next waits for events */
    int64_t blocked;        /* how often it was */
};

static struct cells *cells;

__attribute__((constructor)) static void map_cells(void)
{
    const char *path = getenv("SKEP_TORTURE_CLOCK");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *found = mmap(NULL, sizeof(struct cells), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (found == MAP_FAILED)
        return;
    cells = found;
    __atomic_add_fetch(&cells->loaded, 1, __ATOMIC_SEQ_CST);
}

static int64_t kernel_ns(clockid_t clock)
{
    struct timespec t;
    syscall(SYS_clock_gettime, clock, &t);
    return t.tv_sec * NS + t.tv_nsec;
}

static struct cells read_cells(void)
{
    struct cells read;
    do {
        read.version = __atomic_load_n(&cells->version, __ATOMIC_SEQ_CST);
        read.wall_ns = __atomic_load_n(&cells->wall_ns, __ATOMIC_SEQ_CST);
        read.drift_ppm = __atomic_load_n(&cells->drift_ppm, __ATOMIC_SEQ_CST);
        read.drift_since_ns = __atomic_load_n(&cells->drift_since_ns, __ATOMIC_SEQ_CST);
        read.drift_wall_ns = __atomic_load_n(&cells->drift_wall_ns, __ATOMIC_SEQ_CST);
        read.monotonic_ns = __atomic_load_n(&cells->monotonic_ns, __ATOMIC_SEQ_CST);
    } while (read.version % 2 || read.version != __atomic_load_n(&cells->version, __ATOMIC_SEQ_CST));
    return read;
}

static int is_wall(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

/* What a clock shows; those of the time that a process or thread has used are left alone. */
static int64_t shown_ns(clockid_t clock)
{
    if (!cells)
        return kernel_ns(clock);
    struct cells read = read_cells();
    if (is_wall(clock) && read.drift_ppm) {
        __int128 passed = kernel_ns(CLOCK_MONOTONIC) - read.drift_since_ns;
        return read.drift_wall_ns + read.wall_ns + (int64_t)(passed * (MILLION + read.drift_ppm) / MILLION);
    }
    if (is_wall(clock))
        return kernel_ns(clock) + read.wall_ns;
    if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_BOOTTIME)
        return kernel_ns(clock) + read.monotonic_ns;
    return kernel_ns(clock);
}

static struct timespec as_timespec(int64_t ns)
{
    struct timespec found = {ns < 0 ? 0 : ns / NS, ns < 0 ? 0 : ns % NS};
    return found;
}

/* The moment of the kernel's clock that a moment of the shown clock is. */
static struct timespec meant(clockid_t clock, const struct timespec *until)
{
    if (!cells || until->tv_sec > INT64_MAX / NS - 1)
        return *until; /* for ever */
    return as_timespec(until->tv_sec * NS + until->tv_nsec - (shown_ns(clock) - kernel_ns(clock)));
}

/* Clocks */

int clock_gettime(clockid_t clock, struct timespec *t)
{
    long failed = syscall(SYS_clock_gettime, clock, t);
    if (!failed && cells)
        *t = as_timespec(shown_ns(clock));
    return (int)failed;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    (void)zone;
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    t->tv_sec = found.tv_sec;
    t->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *t)
{
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (t)
        *t = found.tv_sec;
    return found.tv_sec;
}

/* Waits until a point in time */

typedef int (*cond_clockwait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
typedef int (*sem_clockwait_t)(sem_t *, clockid_t, const struct timespec *);

int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until)
{
    cond_clockwait next = (cond_clockwait)dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    struct timespec end = meant(clock, until);
    return next(cond, mutex, clock, &end);
}

/* Which clock a condition goes by, its deadline tells. */
int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until)
{
    clockid_t clock = until->tv_sec >= WALL_SINCE ? CLOCK_REALTIME : CLOCK_MONOTONIC;
    return pthread_cond_clockwait(cond, mutex, clock, until);
}

int sem_clockwait(sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict until)
{
    sem_clockwait_t next = (sem_clockwait_t)dlsym(RTLD_NEXT, "sem_clockwait");
    struct timespec end = meant(clock, until);
    return next(semaphore, clock, &end);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until)
{
    return sem_clockwait(semaphore, CLOCK_REALTIME, until);
}

/* The event loop of the main thread */

static void block(void)
{
    if (!cells || syscall(SYS_gettid) != getpid())
        return;
    int64_t ns = __atomic_exchange_n(&cells->block_ns, 0, __ATOMIC_SEQ_CST);
    if (ns <= 0)
        return;
    struct timespec left = {ns / NS, ns % NS};
    while (syscall(SYS_nanosleep, &left, &left) && errno == EINTR)
        ;
    __atomic_add_fetch(&cells->blocked, 1, __ATOMIC_SEQ_CST);
}

int epoll_pwait(int poll, struct epoll_event *events, int most, int timeout, const sigset_t *mask)
{
    block();
    return (int)syscall(SYS_epoll_pwait, poll, events, most, timeout, mask, 8);
}

int epoll_wait(int poll, struct epoll_event *events, int most, int timeout)
{
    return epoll_pwait(poll, events, most, timeout, NULL);
}
