/*
 * What do blocked threads cost? Each scenario blocks threads for good, in a process of its own, and prints the CPU time
 * and the context switches of that process over a window in which nothing happens, once all sleep. Not its wall time: a
 * busy machine changes nothing. After a second window of that length it prints how often the thread that got up most
 * often has done so since all slept: a timer that doubles fires seldom, however late the machine.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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
static pthread_cond_t shared[SOME];
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t semaphore;

static atomic_int at_it; /* threads that are about to block */
static atomic_int gone;  /* threads whose time is out */

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

/* At a process-shared condition variable, with a private mutex of its own. A wait may end without a signal: the thread
 * waits again. */
static void *in_shared_cond_wait(void *object)
{
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    must(pthread_mutex_lock(&own), "pthread_mutex_lock");
    atomic_fetch_add(&at_it, 1);
    for (;;) must(pthread_cond_wait(object, &own), "pthread_cond_wait");
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
    atomic_fetch_add(&gone, 1);
    return NULL;
}

static void after_time_outs(void)
{
    must(pthread_mutex_lock(&mutex), "pthread_mutex_lock");
    block(1, in_lock, &mutex);
    block(MANY, in_short_timedlock, &mutex);
    while (atomic_load(&gone) < MANY) nap_ms(1);
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

static void shared_conditions(void)
{
    pthread_condattr_t attr;
    must(pthread_condattr_init(&attr), "pthread_condattr_init");
    must(pthread_condattr_setpshared(&attr, PTHREAD_PROCESS_SHARED), "pthread_condattr_setpshared");
    for (int i = 0; i < SOME; i++) {
        must(pthread_cond_init(&shared[i], &attr), "pthread_cond_init");
        block(1, in_shared_cond_wait, &shared[i]);
    }
}

static void broadcast(void)
{
    block(SOME, in_cond_wait, &cond);
    must(pthread_mutex_lock(&mutex), "pthread_mutex_lock");
    must(pthread_cond_broadcast(&cond), "pthread_cond_broadcast");
}

/* What must be found out: a waiter that gets up again and again to look. */
static void *in_naps(void *object)
{
    (void)object;
    atomic_fetch_add(&at_it, 1);
    for (;;) nap_ms(20);
    return NULL;
}

static void napping(void)
{
    one_mutex();
    block(1, in_naps, NULL);
}

static const struct scenario {
    const char *name;
    void (*block)(void);
    int threads;
    const char *about; /* NULL: not for locks, and only if it is named */
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
    {"shared", shared_conditions, SOME, "40 process-shared condition variables, a waiter for each"},
    {"broadcast", broadcast, SOME, "40 waiters of a broadcast, whose mutex is held"},
    {"napping", napping, SOME + 1, NULL},
};
enum { SCENARIOS = sizeof scenarios / sizeof scenarios[0] };

/* ---- Measuring ---- */

static long microseconds(struct timeval time)
{
    return time.tv_sec * 1000000L + time.tv_usec;
}

/* Of the other threads of this process. */
struct look {
    int count, awake;
    struct {
        int tid;
        long slept; /* how often it has given up its CPU */
    } threads[4 * MANY];
};

static long after(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? atol(at + strlen(name)) : 0;
}

static void look(struct look *look)
{
    char path[300], text[4096];
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) die("/proc/self/task");
    look->count = look->awake = 0;
    for (struct dirent *entry; (entry = readdir(tasks)) && look->count < 4 * MANY;) {
        int tid = atoi(entry->d_name);
        snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
        int fd = tid == 0 || tid == gettid() ? -1 : open(path, O_RDONLY);
        if (fd < 0) continue;
        ssize_t length = read(fd, text, sizeof text - 1);
        close(fd);
        if (length <= 0) continue;
        text[length] = 0;
        look->awake += strstr(text, "\nState:\tS") == NULL;
        look->threads[look->count].tid = tid;
        look->threads[look->count++].slept = after(text, "\nvoluntary_ctxt_switches:");
    }
    closedir(tasks);
}

static long now_ms(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Until they sleep, at two looks; or have polled for so much CPU time that they will not stop. */
static void await_sleep(struct look *now)
{
    enum { POLL_MS = 2000 };
    for (int asleep = 0; asleep < 2 && now_ms(CLOCK_PROCESS_CPUTIME_ID) < POLL_MS; nap_ms(20)) {
        look(now);
        asleep = now->awake ? 0 : asleep + 1;
    }
    look(now);
}

/* How often the thread has given up its CPU between the looks that did so most often. */
static long most(const struct look *before, const struct look *now)
{
    long most = 0;
    for (int i = 0; i < now->count; i++)
        for (int j = 0; j < before->count; j++) {
            long got_up = now->threads[i].slept - before->threads[j].slept;
            if (now->threads[i].tid == before->threads[j].tid && got_up > most) most = got_up;
        }
    return most;
}

static void measure(const struct scenario *s, long settle_ms, long window_ms)
{
    static struct look asleep, late;
    struct rusage before, now;
    s->block();
    await_sleep(&asleep);
    long begun_ms = now_ms(CLOCK_MONOTONIC);
    nap_ms(settle_ms);
    getrusage(RUSAGE_SELF, &before);
    nap_ms(window_ms);
    getrusage(RUSAGE_SELF, &now);
    long cpu = microseconds(now.ru_utime) - microseconds(before.ru_utime) + microseconds(now.ru_stime) -
               microseconds(before.ru_stime);
    long switches = now.ru_nvcsw - before.ru_nvcsw + now.ru_nivcsw - before.ru_nivcsw;
    nap_ms(window_ms);
    look(&late);
    printf("%s threads=%d window_ms=%ld cpu_us=%ld switches=%ld asleep_ms=%ld got_up=%ld\n", s->name, s->threads,
           window_ms, cpu, switches, now_ms(CLOCK_MONOTONIC) - begun_ms, most(&asleep, &late));
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
        for (int i = 0; i < SCENARIOS; i++)
            if (scenarios[i].about) printf("%-14s %s\n", scenarios[i].name, scenarios[i].about);
        return 0;
    }
    if (count < 3 || atol(arguments[1]) <= 0 || atol(arguments[2]) <= 0) return usage();
    int failed = 0;
    for (int i = 0; i < SCENARIOS; i++) {
        bool chosen = count == 3 && scenarios[i].about;
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
