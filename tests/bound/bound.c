/*
 * For how many sections of others does a thread wait? Some threads take a lock again and again, without a pause: for a
 * while for sections of one length, then of another, drawn anew, so that nobody can tell from the past how long the
 * next will be. Another wants the lock now and then; counted is what begins while it waits: the lengths that sections
 * are meant to have, not the time that they take. So a holder without a CPU counts for nothing.
 *
 * Every bound supposes that a thread which is woken runs, and who does not may lose its turn. So each thread looks for
 * how long it was ready to run, and had no CPU, since it last held the lock; and a thread on each CPU looks how late it
 * is woken. A wait during which the machine was late is left out.
 *
 * `interrupted`: the others sleep in their sections, and a timer sends the waiting thread a signal every few
 * milliseconds, as profilers do. Its handler does nothing. Who sleeps in the kernel loses its place there each time.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A hundredth of the bound of a millisecond, to a hundred times as long. */
enum { SHORTEST_US = 10, LONGEST_US = 100000, WHILE_US = 4000, SECTIONS = 6, TICK_US = 1000, SIGNALS_US = 7000 };
/* A machine that is later than this is late. */
enum { LATE_US = 12000 };
/* Waits in vain, for each that is wanted: then those that could be judged are enough, if there is one. If there is none
 * after the last time, the machine is not fit for this. */
enum { TRIES = 4, LAST_S = 900 };
/* The control: so many sections of others that far more time than is ever allowed passes. It counts even if the machine
 * was late, as it always is in a wait of seconds beside other programs. */
enum { PASSED_OVER = 1000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static int (*lock_it)(void), (*want_it)(void), (*unlock_it)(void);
static bool sleeps, is_interrupted;
static uint32_t seed = 1;
static atomic_bool over;
/* Since somebody wrote 0: */
static atomic_long begun;   /* the lengths (us) of all sections that have begun, */
static atomic_long count;   /* how many they are, */
static atomic_long longest; /* that of the longest one, */
static atomic_long late;    /* and for how long (us) a thread had no CPU while it waited for the lock, or woke up */

static void must(int rc, const char *what)
{
    if (rc == 0) return;
    fprintf(stderr, "bound: %s: %s\n", what, strerror(rc));
    _exit(2);
}

static long now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000L + time.tv_nsec / 1000;
}

static void nap_us(long us)
{
    struct timespec left = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    while (nanosleep(&left, &left) == -1 && errno == EINTR)
        ;
}

static void at_least(atomic_long *most, long value)
{
    for (long seen = atomic_load(most); value > seen && !atomic_compare_exchange_weak(most, &seen, value);)
        ;
}

/* ---- Without a CPU ---- */

static _Thread_local int schedstat = -1;

/* For how long (us) this thread has been ready to run without a CPU, in its life; 0 if the kernel does not count that,
 * and all that is known is what tickers find. */
static long without_cpu_us(void)
{
    char text[64];
    long long ran, waited;
    if (schedstat < 0) schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t length = schedstat < 0 ? -1 : pread(schedstat, text, sizeof text - 1, 0);
    if (length <= 0) return 0;
    text[length] = 0;
    return sscanf(text, "%lld %lld", &ran, &waited) == 2 ? waited / 1000 : 0;
}

static void *tick(void *cpu)
{
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET((long)cpu, &only);
    must(pthread_setaffinity_np(pthread_self(), sizeof only, &only), "pthread_setaffinity_np");
    while (!atomic_load(&over)) {
        long due = now_us() + TICK_US;
        nap_us(TICK_US);
        at_least(&late, now_us() - due);
    }
    return NULL;
}

/* ---- Those who take it again and again ---- */

static int lock_mutex(void)
{
    return pthread_mutex_lock(&mutex);
}

static int unlock_mutex(void)
{
    return pthread_mutex_unlock(&mutex);
}

static int lock_to_write(void)
{
    return pthread_rwlock_wrlock(&rwlock);
}

static int lock_to_read(void)
{
    return pthread_rwlock_rdlock(&rwlock);
}

static int unlock_rw(void)
{
    return pthread_rwlock_unlock(&rwlock);
}

static void compute_us(long us)
{
    for (long end = now_us() + us; now_us() < end;)
        ;
}

/* xorshift32 (Marsaglia 2003). */
static uint32_t draw(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

/* Twice as long is as likely as half as long. */
static long draw_length_us(uint32_t *state)
{
    return SHORTEST_US * pow((double)LONGEST_US / SHORTEST_US, draw(state) / 4294967296.0);
}

static void *take_again_and_again(void *number)
{
    uint32_t state = seed + 0x9e3779b9 * (uint32_t)(intptr_t)number;
    long unlucky_us = without_cpu_us();
    draw(&state);
    while (!atomic_load(&over)) {
        long length = draw_length_us(&state), end = now_us() + WHILE_US;
        for (int i = 0; (i < SECTIONS || now_us() < end) && !atomic_load(&over); i++) {
            must(lock_it(), "lock");
            atomic_fetch_add(&begun, length);
            atomic_fetch_add(&count, 1);
            at_least(&longest, length);
            at_least(&late, without_cpu_us() - unlucky_us);
            if (sleeps)
                nap_us(length);
            else
                compute_us(length);
            unlucky_us = without_cpu_us(); /* while it holds the lock it may have no CPU for as long as it likes */
            must(unlock_it(), "unlock");
        }
    }
    return NULL;
}

/* ---- The one who waits ---- */

static void do_nothing(int signal)
{
    (void)signal;
}

/* From now on this thread is interrupted again and again. */
static void be_interrupted(void)
{
    struct sigaction action = {.sa_handler = do_nothing, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    struct itimerspec when = {.it_value.tv_nsec = SIGNALS_US * 1000, .it_interval.tv_nsec = SIGNALS_US * 1000};
    timer_t timer;
    event._sigev_un._tid = syscall(SYS_gettid);
    must(sigaction(SIGUSR1, &action, NULL) ? errno : 0, "sigaction");
    must(timer_create(CLOCK_MONOTONIC, &event, &timer) ? errno : 0, "timer_create");
    must(timer_settime(timer, 0, &when, NULL) ? errno : 0, "timer_settime");
}

/* As under a lock that lets others pass: what must be found. */
static int lock_passed_over(void)
{
    for (long until = atomic_load(&count) + PASSED_OVER; atomic_load(&count) < until;) nap_us(TICK_US);
    return lock_mutex();
}

/* One wait. False if the machine was late. */
static bool want_once(int round)
{
    nap_us(7000 + round % 5 * 3000);
    long unlucky_us = without_cpu_us();
    atomic_store(&late, 0);
    atomic_store(&longest, 0);
    long began_us = now_us(), before = atomic_load(&begun);
    must(want_it(), "lock");
    long passed = atomic_load(&begun) - before, most = atomic_load(&longest), took = now_us() - began_us;
    at_least(&late, without_cpu_us() - unlucky_us);
    must(unlock_it(), "unlock");
    if (atomic_load(&late) > LATE_US && want_it != lock_passed_over) return false;
    printf("passed_us=%ld longest_us=%ld took_us=%ld\n", passed, most, took);
    return true;
}

static int usage(void)
{
    fprintf(stderr, "usage: bound mutex|passed-over|writer|reader THREADS sleep|compute|interrupted WAITS [SEED]\n");
    return 2;
}

static bool understood(int count, char **arguments)
{
    if (count != 5 && count != 6) return false;
    bool passed_over = strcmp(arguments[1], "passed-over") == 0, reads = strcmp(arguments[1], "reader") == 0;
    bool is_mutex = passed_over || strcmp(arguments[1], "mutex") == 0;
    if (!is_mutex && !reads && strcmp(arguments[1], "writer") != 0) return false;
    lock_it = is_mutex ? lock_mutex : lock_to_write;
    want_it = reads ? lock_to_read : passed_over ? lock_passed_over : lock_it;
    unlock_it = is_mutex ? unlock_mutex : unlock_rw;
    is_interrupted = strcmp(arguments[3], "interrupted") == 0;
    sleeps = is_interrupted || strcmp(arguments[3], "sleep") == 0;
    seed = count == 6 ? strtoul(arguments[5], NULL, 0) : (uint32_t)now_us();
    return sleeps || strcmp(arguments[3], "compute") == 0;
}

int main(int count, char **arguments)
{
    if (!understood(count, arguments)) return usage();
    long threads = atoi(arguments[2]), waits = atoi(arguments[4]), tickers_made = 0, judged = 0, left_out = 0;
    pthread_t others[64], tickers[CPU_SETSIZE];
    cpu_set_t cpus;
    if (threads < 1 || threads > 64 || waits < 1) return usage();
    printf("seed=%u threads=%ld\n", seed, threads);
    for (long i = 0; i < threads; i++)
        must(pthread_create(&others[i], NULL, take_again_and_again, (void *)(i + 1)), "pthread_create");
    must(pthread_getaffinity_np(pthread_self(), sizeof cpus, &cpus), "pthread_getaffinity_np");
    for (long cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &cpus))
            must(pthread_create(&tickers[tickers_made++], NULL, tick, (void *)cpu), "pthread_create");
    if (is_interrupted) be_interrupted();
    for (long last_us = now_us() + LAST_S * 1000000L; judged < waits && now_us() < last_us;) {
        if (want_once(judged + left_out))
            judged++;
        else if (++left_out > TRIES * waits && judged > 0)
            break;
    }
    atomic_store(&over, true);
    for (int i = 0; i < threads; i++) must(pthread_join(others[i], NULL), "pthread_join");
    for (long i = 0; i < tickers_made; i++) must(pthread_join(tickers[i], NULL), "pthread_join");
    printf("judged=%ld left_out=%ld\n", judged, left_out);
    return 0;
}
