/*
 * For how many sections of others does a thread wait? Some threads take a lock again and again, without a pause: for a
 * while for short sections, then for a few long ones, so that nobody can tell from the past how long the next will be.
 * Another wants the lock now and then; the long sections are counted that begin while it waits. A count, not a time: a
 * busy machine changes little. But every bound supposes that a thread which is woken runs, and who does not may lose
 * its turn. So a thread on each CPU looks whether the machine runs whom it wakes; a wait during which it did not, for
 * longer than a long section, is done again.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SHORT_US = 20, SHORT_MS = 4, LONG_MS = 12, LONGS = 6, TICK_US = 1000, TRIES = 20 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static bool is_rw, sleeps;
static atomic_bool over;
static atomic_long longs; /* long sections that have begun */
static atomic_long late;  /* the longest time (us) after its tick that a thread ran, since somebody wrote 0 */

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

static void lock(void)
{
    must(is_rw ? pthread_rwlock_wrlock(&rwlock) : pthread_mutex_lock(&mutex), "lock");
}

static void unlock(void)
{
    must(is_rw ? pthread_rwlock_unlock(&rwlock) : pthread_mutex_unlock(&mutex), "unlock");
}

static void compute_us(long us)
{
    for (long end = now_us() + us; now_us() < end;)
        ;
}

static void *take_again_and_again(void *unused)
{
    while (!atomic_load(&over)) {
        for (long end = now_us() + SHORT_MS * 1000; now_us() < end;) {
            lock();
            compute_us(SHORT_US);
            unlock();
        }
        for (int i = 0; i < LONGS && !atomic_load(&over); i++) {
            lock();
            atomic_fetch_add(&longs, 1);
            if (sleeps)
                nap_us(LONG_MS * 1000);
            else
                compute_us(LONG_MS * 1000);
            unlock();
        }
    }
    return unused;
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
        long by = now_us() - due, most = atomic_load(&late);
        while (by > most && !atomic_compare_exchange_weak(&late, &most, by))
            ;
    }
    return NULL;
}

int main(int count, char **arguments)
{
    if (count != 5) {
        fprintf(stderr, "usage: bound mutex|rwlock THREADS sleep|compute WAITS\n");
        return 2;
    }
    int threads = atoi(arguments[2]), waits = atoi(arguments[4]);
    pthread_t others[64], tickers[CPU_SETSIZE];
    long most = 0, longest = 0, tickers_made = 0, again = 0;
    cpu_set_t cpus;
    is_rw = strcmp(arguments[1], "rwlock") == 0;
    sleeps = strcmp(arguments[3], "sleep") == 0;
    if (threads < 1 || threads > 64 || waits < 1) return 2;
    for (int i = 0; i < threads; i++)
        must(pthread_create(&others[i], NULL, take_again_and_again, NULL), "pthread_create");
    must(pthread_getaffinity_np(pthread_self(), sizeof cpus, &cpus), "pthread_getaffinity_np");
    for (long cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &cpus))
            must(pthread_create(&tickers[tickers_made++], NULL, tick, (void *)cpu), "pthread_create");
    for (int i = 0; i < waits; i++) {
        nap_us(7000 + i % 5 * 3000);
        atomic_store(&late, 0);
        long begun = now_us(), before = atomic_load(&longs);
        lock();
        long passed = atomic_load(&longs) - before, took = now_us() - begun;
        unlock();
        if (atomic_load(&late) > LONG_MS * 1000 && again < TRIES) {
            again++, i--;
            continue;
        }
        if (passed > most) most = passed;
        if (took > longest) longest = took;
    }
    atomic_store(&over, true);
    for (int i = 0; i < threads; i++) must(pthread_join(others[i], NULL), "pthread_join");
    for (long i = 0; i < tickers_made; i++) must(pthread_join(tickers[i], NULL), "pthread_join");
    printf("threads=%d most=%ld longest_us=%ld again=%ld\n", threads, most, longest, again);
    return 0;
}
