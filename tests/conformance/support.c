/* Gates, time, threads and processes: see conformance.h. */
#include "conformance.h"

#include <gnu/libc-version.h>

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* ---- Gates ---- */

void gate_open(struct gate *gate)
{
    int saved = errno;
    atomic_fetch_add(&gate->count, 1);
    syscall(SYS_futex, &gate->count, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    errno = saved;
}

void gate_wait(struct gate *gate, int count)
{
    int saved = errno, now;
    while ((now = atomic_load(&gate->count)) < count)
        syscall(SYS_futex, &gate->count, FUTEX_WAIT, now, NULL, NULL, 0);
    errno = saved;
}

int gate_count(struct gate *gate)
{
    return atomic_load(&gate->count);
}

/* ---- Time ---- */

struct timespec time_after_ms(clockid_t clock, long ms)
{
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_sec += ms / 1000;
    time.tv_nsec += ms % 1000 * 1000000;
    if (time.tv_nsec >= 1000000000) {
        time.tv_sec++;
        time.tv_nsec -= 1000000000;
    }
    return time;
}

struct timespec time_far(clockid_t clock)
{
    return time_after_ms(clock, 3600 * 1000L);
}

long time_missing_us(clockid_t clock, struct timespec deadline)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (deadline.tv_sec - now.tv_sec) * 1000000 + (deadline.tv_nsec - now.tv_nsec) / 1000;
}

bool time_reached(clockid_t clock, struct timespec deadline)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec > deadline.tv_sec || (now.tv_sec == deadline.tv_sec && now.tv_nsec >= deadline.tv_nsec);
}

/* How many times as long as others this process's check repeats itself. */
static double times_as_long = 1;

void repeat_for_longer(double times)
{
    times_as_long = times;
}

/* How long it repeats itself. */
static long long budget_us(void)
{
    const char *seconds = getenv("CONFORMANCE_SECONDS");
    double given = seconds ? atof(seconds) : 0;
    return (long long)(times_as_long * (given > 0 ? given : 1.5) * 1e6);
}

bool time_is_short(void)
{
    static atomic_llong end_us;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long long now_us = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
    if (atomic_load(&end_us) == 0) atomic_store(&end_us, now_us + budget_us());
    return now_us > atomic_load(&end_us);
}

void nap_us(long us)
{
    int saved = errno;
    struct timespec left = {us / 1000000, us % 1000000 * 1000};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
    errno = saved;
}

void nap_ms(long ms)
{
    nap_us(ms * 1000);
}

/* ---- Threads ---- */

pthread_t thread_start(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    CHECK_OK(pthread_create(&thread, NULL, body, argument));
    return thread;
}

void *thread_join(pthread_t thread)
{
    void *result;
    CHECK_OK(pthread_join(thread, &result));
    return result;
}

void threads_run(int count, void *(*body)(void *), void *argument)
{
    pthread_t threads[count];
    for (int i = 0; i < count; i++) threads[i] = thread_start(body, argument);
    for (int i = 0; i < count; i++) thread_join(threads[i]);
}

/* The state letter stands behind the last ')' of the stat line. */
bool is_asleep(pid_t tid)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return true; /* gone: nothing to wait for */
    ssize_t length = read(fd, line, sizeof line - 1);
    close(fd);
    if (length <= 0) return true;
    line[length] = 0;
    const char *name_end = strrchr(line, ')');
    return name_end && name_end[1] == ' ' && name_end[2] == 'S';
}

static long number_after(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? atol(at + strlen(name)) : 0;
}

struct others others_look(void)
{
    struct others others = {0};
    char path[300], text[4096];
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) FAIL("cannot read /proc/self/task: %s", code_name(errno));
    for (struct dirent *entry; (entry = readdir(tasks));) {
        pid_t tid = atoi(entry->d_name);
        snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)tid);
        int fd = tid == 0 || tid == gettid() ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        ssize_t length = read(fd, text, sizeof text - 1);
        close(fd);
        if (length <= 0) continue;
        text[length] = 0;
        const char *state = strstr(text, "\nState:\t");
        others.count++;
        others.awake += !state || !strchr("SZX", state[8]);
        others.switches += number_after(text, "\nvoluntary_ctxt_switches:");
    }
    closedir(tasks);
    return others;
}

static long cpu_ms(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

void others_sleep(void)
{
    enum { POLLS_MS = 1000, GETS_UP = 200 };
    struct others now = others_look(), last;
    do {
        if (cpu_ms() > POLLS_MS || now.switches > GETS_UP * now.count)
            FAIL("waiters poll: %ld ms of CPU time, %d threads got up %ld times", cpu_ms(), now.count, now.switches);
        nap_ms(50);
        last = now;
        now = others_look();
    } while (last.awake || now.awake || last.switches != now.switches);
}

bool patience_lasts(struct patience *p, long progress)
{
    enum { QUICK = 20, LOOKS = 100, MOST = 60000, MOST_ASLEEP = 10000 / LOOKS };
    if (progress != p->seen) *p = (struct patience){.seen = progress};
    nap_us(p->naps < QUICK ? 100 : 1000);
    if (++p->naps % LOOKS == 0) p->asleep = others_look().awake ? 0 : p->asleep + 1;
    return p->naps < MOST && p->asleep < MOST_ASLEEP;
}

void settle(pid_t tid)
{
    for (int i = 0; i < 250 && !is_asleep(tid); i++) nap_us(200);
}

static void *try_and_release(void *mutex)
{
    int rc = pthread_mutex_trylock(mutex);
    if (rc == 0) CHECK_OK(pthread_mutex_unlock(mutex));
    return (void *)(intptr_t)rc;
}

int trylock_elsewhere(pthread_mutex_t *mutex)
{
    return (intptr_t)thread_join(thread_start(try_and_release, mutex));
}

static void *release(void *mutex)
{
    return (void *)(intptr_t)pthread_mutex_unlock(mutex);
}

int unlock_elsewhere(pthread_mutex_t *mutex)
{
    return (intptr_t)thread_join(thread_start(release, mutex));
}

/* ---- Processes ---- */

int process_status(pid_t pid)
{
    int status;
    if (pid < 0) FAIL("cannot make a process: %s", code_name(errno));
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) FAIL("waitpid: %s", code_name(errno));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

bool excepted_are_tried(void)
{
    const char *tried = getenv("CONFORMANCE_EXCEPTED");
    return tried && strcmp(tried, "1") == 0;
}

bool locks_are_glibcs(void)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    CHECK_OK(pthread_mutex_lock(&mutex));
    bool counted = mutex.__data.__nusers == 1;
    CHECK_OK(pthread_mutex_unlock(&mutex));
    return counted;
}

pid_t raw_fork(void)
{
#if __GLIBC_PREREQ(2, 34)
    return _Fork();
#else
    return (pid_t)syscall(SYS_fork);
#endif
}

const char *beside_program(const char *name)
{
    static char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0) FAIL("cannot find this program: %s", code_name(errno));
    path[length] = 0;
    char *slash = strrchr(path, '/');
    size_t room = sizeof path - (slash + 1 - path);
    if ((size_t)snprintf(slash + 1, room, "%s", name) >= room) FAIL("path too long: %s", name);
    return path;
}

/* xorshift32 (Marsaglia 2003). */
uint32_t random_next(uint32_t *state)
{
    uint32_t x = *state ? *state : 0x9e3779b9;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

bool glibc_is_at_least(int minor)
{
    int have;
    return sscanf(gnu_get_libc_version(), "2.%d", &have) == 1 && have >= minor;
}
