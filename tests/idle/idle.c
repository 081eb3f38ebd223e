/*
 * What do blocked threads cost? Each scenario blocks threads for good, in a process of its own, and prints the CPU time
 * and the context switches of that process over a window in which nothing happens. Not its wall time: a busy machine
 * changes nothing.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MANY = 100, SOME = 40 };

static pthread_mutex_t mutexes[MANY]; /* all-zero is free */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t semaphore;

static atomic_int at_it; /* threads that are about to block */

static void die(const char *what)
{
    fprintf(stderr, "idle: %s: %s\n", what, strerror(errno));
    _exit(2);
}

static void must(int rc, const char *what)
{
    if (rc) {
        errno = rc;
        die(what);
    }
}

static void nap_ms(long ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&left, &left) == -1 && errno == EINTR)
        ;
}

static struct timespec far(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_sec += 3600;
    return time;
}

/* ---- What threads block on; none of these returns before the process ends ---- */

static void *in_lock(void *object)
{
    atomic_fetch_add(&at_it, 1);
    must(pthread_mutex_lock(object), "pthread_mutex_lock");
    return NULL;
}

static void *in_timedlock(void *object)
{
    struct timespec deadline = far();
    atomic_fetch_add(&at_it, 1);
    must(pthread_mutex_timedlock(object, &deadline), "pthread_mutex_timedlock");
    return NULL;
}

static void *in_rdlock(void *object)
{
    atomic_fetch_add(&at_it, 1);
    must(pthread_rwlock_rdlock(object), "pthread_rwlock_rdlock");
    return NULL;
}

static void *in_wrlock(void *object)
{
    atomic_fetch_add(&at_it, 1);
    must(pthread_rwlock_wrlock(object), "pthread_rwlock_wrlock");
    return NULL;
}

static void *in_sem_wait(void *object)
{
    atomic_fetch_add(&at_it, 1);
    if (sem_wait(object)) die("sem_wait");
    return NULL;
}

static void *in_sem_timedwait(void *object)
{
    struct timespec deadline = far();
    atomic_fetch_add(&at_it, 1);
    if (sem_timedwait(object, &deadline)) die("sem_timedwait");
    return NULL;
}

static void *in_cond_wait(void *object)
{
    must(pthread_mutex_lock(&mutex), "pthread_mutex_lock");
    atomic_fetch_add(&at_it, 1);
    must(pthread_cond_wait(object, &mutex), "pthread_cond_wait");
    return NULL;
}

static void *in_cond_timedwait(void *object)
{
    struct timespec deadline = far();
    must(pthread_mutex_lock(&mutex), "pthread_mutex_lock");
    atomic_fetch_add(&at_it, 1);
    must(pthread_cond_timedwait(object, &mutex, &deadline), "pthread_cond_timedwait");
    return NULL;
}

static void block(int count, void *(*where)(void *), void *object)
{
    pthread_attr_t small;
    int before = atomic_load(&at_it);
    must(pthread_attr_init(&small), "pthread_attr_init");
    must(pthread_attr_setstacksize(&small, 64 * 1024), "pthread_attr_setstacksize");
    for (int i = 0; i < count; i++) {
        pthread_t thread;
        must(pthread_create(&thread, &small, where, object), "pthread_create");
    }
    while (atomic_load(&at_it) < before + count) nap_ms(1);
}

/* ---- Scenarios ---- */

static void many_mutexes(void)
{
    for (int i = 0; i < MANY; i++) {
        must(pthread_mutex_lock(&mutexes[i]), "pthread_mutex_lock");
        block(1, in_lock, &mutexes[i]);
    }
}

static void one_mutex(void)
{
    must(pthread_mutex_lock(&mutex), "pthread_mutex_lock");
    block(SOME, in_lock, &mutex);
}

static void timed(void)
{
    must(pthread_mutex_lock(&mutex), "pthread_mutex_lock");
    block(SOME, in_timedlock, &mutex);
}

/* Those whose time runs out leave nodes behind; who comes then waits all the same. */
static void *in_short_timedlock(void *object)
{
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_nsec += 50 * 1000000;
    deadline.tv_sec += deadline.tv_nsec / 1000000000;
    deadline.tv_nsec %= 1000000000;
    atomic_fetch_add(&at_it, 1);
    must(pthread_mutex_timedlock(object, &deadline) == ETIMEDOUT ? 0 : EINVAL, "pthread_mutex_timedlock");
    return NULL;
}

static void after_time_outs(void)
{
    must(pthread_mutex_lock(&mutex), "pthread_mutex_lock");
    block(1, in_lock, &mutex);
    block(MANY, in_short_timedlock, &mutex);
    nap_ms(300);
    block(SOME, in_lock, &mutex);
}

static void readers(void)
{
    must(pthread_rwlock_wrlock(&rwlock), "pthread_rwlock_wrlock");
    block(SOME, in_rdlock, &rwlock);
}

static void writers(void)
{
    must(pthread_rwlock_wrlock(&rwlock), "pthread_rwlock_wrlock");
    block(SOME, in_wrlock, &rwlock);
}

static void behind_reader(void)
{
    must(pthread_rwlock_rdlock(&rwlock), "pthread_rwlock_rdlock");
    block(SOME, in_wrlock, &rwlock);
}

static void permits(void)
{
    if (sem_init(&semaphore, 0, 0)) die("sem_init");
    block(SOME, in_sem_wait, &semaphore);
    block(SOME, in_sem_timedwait, &semaphore);
}

static void conditions(void)
{
    block(SOME, in_cond_wait, &cond);
    block(SOME, in_cond_timedwait, &cond);
}

static void broadcast(void)
{
    block(SOME, in_cond_wait, &cond);
    must(pthread_mutex_lock(&mutex), "pthread_mutex_lock");
    must(pthread_cond_broadcast(&cond), "pthread_cond_broadcast");
}

static const struct scenario {
    const char *name;
    void (*block)(void);
    int threads;
    const char *about;
} scenarios[] = {
    {"mutexes", many_mutexes, MANY, "100 mutexes, a waiter for each"},
    {"mutex", one_mutex, SOME, "one mutex, 40 waiters"},
    {"timed", timed, SOME, "one mutex, 40 waiters with a deadline in an hour"},
    {"abandoned", after_time_outs, SOME + 1, "one mutex, 40 waiters behind 100 that have timed out"},
    {"readers", readers, SOME, "a lock held for writing, 40 readers"},
    {"writers", writers, SOME, "a lock held for writing, 40 writers"},
    {"behind-reader", behind_reader, SOME, "a lock held for reading, 40 writers"},
    {"semaphore", permits, 2 * SOME, "40 threads in sem_wait, 40 in sem_timedwait"},
    {"condition", conditions, 2 * SOME, "40 threads in pthread_cond_wait, 40 in pthread_cond_timedwait"},
    {"broadcast", broadcast, SOME, "40 waiters of a broadcast, whose mutex is held"},
};
enum { SCENARIOS = sizeof scenarios / sizeof scenarios[0] };

/* ---- Measuring ---- */

static long microseconds(struct timeval time)
{
    return time.tv_sec * 1000000L + time.tv_usec;
}

static void measure(const struct scenario *s, long settle_ms, long window_ms)
{
    struct rusage before, after;
    s->block();
    nap_ms(settle_ms);
    getrusage(RUSAGE_SELF, &before);
    nap_ms(window_ms);
    getrusage(RUSAGE_SELF, &after);
    long cpu = microseconds(after.ru_utime) - microseconds(before.ru_utime) + microseconds(after.ru_stime) -
               microseconds(before.ru_stime);
    long switches = after.ru_nvcsw - before.ru_nvcsw + after.ru_nivcsw - before.ru_nivcsw;
    printf("%s threads=%d window_ms=%ld cpu_us=%ld switches=%ld\n", s->name, s->threads, window_ms, cpu, switches);
    fflush(stdout);
    _exit(0);
}

static int usage(void)
{
    fprintf(stderr, "usage: idle --list | idle SETTLE_MS WINDOW_MS [SCENARIO...]\n");
    return 2;
}

int main(int count, char **arguments)
{
    if (count == 2 && strcmp(arguments[1], "--list") == 0) {
        for (int i = 0; i < SCENARIOS; i++) printf("%-14s %s\n", scenarios[i].name, scenarios[i].about);
        return 0;
    }
    if (count < 3 || atol(arguments[1]) <= 0 || atol(arguments[2]) <= 0) return usage();
    int failed = 0;
    for (int i = 0; i < SCENARIOS; i++) {
        bool chosen = count == 3;
        for (int j = 3; j < count; j++) chosen |= strcmp(arguments[j], scenarios[i].name) == 0;
        if (!chosen) continue;
        pid_t pid = fork();
        if (pid == -1) die("fork");
        if (pid == 0) measure(&scenarios[i], atol(arguments[1]), atol(arguments[2]));
    }
    int status;
    while (wait(&status) > 0) failed |= status;
    return failed ? 1 : 0;
}
