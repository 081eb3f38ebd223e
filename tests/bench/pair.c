// SPDX-License-Identifier: MIT OR Apache-2.0
//
// pair: what an uncontended lock+unlock costs, of a mutex, a spinlock, a semaphore (sem_wait+sem_post), or a
// readers-writer lock, to read or to write. A second thread is alive (asleep) unless --single is given, because glibc
// takes a shortcut without atomics while a process has one thread, which no real multi-threaded program sees.
#include "bench.h"

#include <getopt.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *program = "pair";
const char *const usage_text =
    "usage: pair [--single] [--seconds S] [--trylock] [--count N] [--human]\n"
    "            [--kind default|recursive|errorcheck|spin|sem|read|write]\n"
    "  --single   no second thread in the process\n"
    "  --trylock  acquire with pthread_mutex_trylock, pthread_spin_trylock, sem_trywait or pthread_rwlock_try…\n"
    "  --count N  do exactly N pairs and no timing, for instruction counters\n";

enum { BATCH = 1000, MAX_BATCHES = 1 << 20 };

static pthread_mutex_t mutex;
static pthread_spinlock_t spinlock;
static sem_t sem;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;

static struct {
    bool single, trylock, human;
    double seconds;
    uint64_t count;
    const char *kind;
} opt = { .seconds = 1, .kind = "default" };

// The checks stay out of the loop: a result is looked at only once per batch.
static int lock_pairs(uint64_t n)
{
    int errors = 0;
    for (uint64_t i = 0; i < n; i++) {
        errors |= pthread_mutex_lock(&mutex);
        errors |= pthread_mutex_unlock(&mutex);
    }
    return errors;
}

static int trylock_pairs(uint64_t n)
{
    int errors = 0;
    for (uint64_t i = 0; i < n; i++) {
        errors |= pthread_mutex_trylock(&mutex);
        errors |= pthread_mutex_unlock(&mutex);
    }
    return errors;
}

static int spin_pairs(uint64_t n)
{
    int errors = 0;
    for (uint64_t i = 0; i < n; i++) {
        errors |= pthread_spin_lock(&spinlock);
        errors |= pthread_spin_unlock(&spinlock);
    }
    return errors;
}

static int spin_trylock_pairs(uint64_t n)
{
    int errors = 0;
    for (uint64_t i = 0; i < n; i++) {
        errors |= pthread_spin_trylock(&spinlock);
        errors |= pthread_spin_unlock(&spinlock);
    }
    return errors;
}

static int sem_pairs(uint64_t n)
{
    int errors = 0;
    for (uint64_t i = 0; i < n; i++) {
        errors |= sem_wait(&sem);
        errors |= sem_post(&sem);
    }
    return errors;
}

static int sem_trywait_pairs(uint64_t n)
{
    int errors = 0;
    for (uint64_t i = 0; i < n; i++) {
        errors |= sem_trywait(&sem);
        errors |= sem_post(&sem);
    }
    return errors;
}

static int read_pairs(uint64_t n)
{
    int errors = 0;
    for (uint64_t i = 0; i < n; i++) {
        errors |= opt.trylock ? pthread_rwlock_tryrdlock(&rwlock) : pthread_rwlock_rdlock(&rwlock);
        errors |= pthread_rwlock_unlock(&rwlock);
    }
    return errors;
}

static int write_pairs(uint64_t n)
{
    int errors = 0;
    for (uint64_t i = 0; i < n; i++) {
        errors |= opt.trylock ? pthread_rwlock_trywrlock(&rwlock) : pthread_rwlock_wrlock(&rwlock);
        errors |= pthread_rwlock_unlock(&rwlock);
    }
    return errors;
}

// By kind and by whether to try.
static int (*way)(uint64_t n) = lock_pairs;

static void pairs(uint64_t n)
{
    if (way(n))
        die("a pthread call failed");
}

static void init(void)
{
    if (strcmp(opt.kind, "spin") == 0) {
        way = opt.trylock ? spin_trylock_pairs : spin_pairs;
        pthread_spin_init(&spinlock, PTHREAD_PROCESS_PRIVATE);
        return;
    }
    if (strcmp(opt.kind, "sem") == 0) {
        way = opt.trylock ? sem_trywait_pairs : sem_pairs;
        sem_init(&sem, 0, 1);
        return;
    }
    if (strcmp(opt.kind, "read") == 0 || strcmp(opt.kind, "write") == 0) {
        way = *opt.kind == 'r' ? read_pairs : write_pairs;
        return;
    }
    way = opt.trylock ? trylock_pairs : lock_pairs;
    static const struct {
        const char *name;
        int type;
    } kinds[] = { { "default", PTHREAD_MUTEX_DEFAULT },
                  { "recursive", PTHREAD_MUTEX_RECURSIVE },
                  { "errorcheck", PTHREAD_MUTEX_ERRORCHECK } };
    for (int i = 0; i < 3; i++) {
        if (strcmp(opt.kind, kinds[i].name))
            continue;
        pthread_mutexattr_t attr;
        pthread_mutexattr_init(&attr);
        pthread_mutexattr_settype(&attr, kinds[i].type);
        pthread_mutex_init(&mutex, &attr);
        return;
    }
    fprintf(stderr, "pair: no kind `%s`\n", opt.kind);
    usage();
}

static void *sleeper(void *arg)
{
    for (;;)
        pause();
    return arg;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(void)
{
    double *ns = malloc(MAX_BATCHES * sizeof *ns);
    if (!ns)
        die("out of memory");
    pairs(100 * BATCH);  // warm up: clock frequency, first-call resolution
    int n = 0;
    uint64_t end = now_ns() + (uint64_t)(opt.seconds * 1e9), before = now_ns();
    while (n < MAX_BATCHES && before < end) {
        pairs(BATCH);
        uint64_t after = now_ns();
        ns[n++] = (double)(after - before) / BATCH;
        before = after;
    }
    qsort(ns, (size_t)n, sizeof *ns, ascending);
    if (opt.human)
        printf("%s %s+unlock, %s: minimum %.2f ns, median %.2f ns (%d batches of %d)\n", opt.kind,
               opt.trylock ? "trylock" : "lock", opt.single ? "single thread" : "second thread alive", ns[0], ns[n / 2],
               n, BATCH);
    else
        printf("{\"format\":\"%s\",\"bench\":\"pair\",\"kind\":\"%s\",\"call\":\"%s\",\"single\":%s,\"min_ns\":%.3f,"
               "\"median_ns\":%.3f,\"batches\":%d,\"pairs_per_batch\":%d}\n",
               BENCH_FORMAT, opt.kind, opt.trylock ? "trylock" : "lock", opt.single ? "true" : "false", ns[0],
               ns[n / 2], n, BATCH);
    free(ns);
}

static void count(void)
{
    pairs(opt.count);
    if (opt.human)
        printf("%llu pairs done\n", (unsigned long long)opt.count);
    else
        printf("{\"format\":\"%s\",\"bench\":\"pair\",\"kind\":\"%s\",\"call\":\"%s\",\"single\":%s,\"count\":%llu}\n",
               BENCH_FORMAT, opt.kind, opt.trylock ? "trylock" : "lock", opt.single ? "true" : "false",
               (unsigned long long)opt.count);
}

static void parse(int argc, char **argv)
{
    static const struct option longopts[] = {
        { "single", no_argument, NULL, '1' },     { "seconds", required_argument, NULL, 's' },
        { "kind", required_argument, NULL, 'k' }, { "trylock", no_argument, NULL, 't' },
        { "count", required_argument, NULL, 'c' }, { "human", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    int c;
    while ((c = getopt_long(argc, argv, "", longopts, NULL)) != -1) {
        switch (c) {
        case '1': opt.single = true; break;
        case 's': opt.seconds = number("seconds", optarg, 0.001, 3600); break;
        case 'k': opt.kind = optarg; break;
        case 't': opt.trylock = true; break;
        case 'c': opt.count = whole("count", optarg, 1, 1ULL << 50); break;
        case 'h': opt.human = true; break;
        default: usage();
        }
    }
    if (optind != argc)
        usage();
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    init();
    pthread_t thread;
    if (!opt.single && pthread_create(&thread, NULL, sleeper, NULL))
        die("cannot create a thread");
    if (opt.count)
        count();
    else
        measure();
    return 0;
}
