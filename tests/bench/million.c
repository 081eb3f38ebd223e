// SPDX-License-Identifier: MIT OR Apache-2.0
//
// million: what many mutexes cost in memory. Every mutex of a large array is locked once, or, with --everywhere, once
// by each thread; then, unless --calm is given, threads lock random ones, every fourth from a hot few so that there is
// contention too.
#include "bench.h"

#include <getopt.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *program = "million";
const char *const usage_text = "usage: million [--mutexes N] [--threads N] [--seconds S] [--everywhere] [--calm] "
                               "[--human]\n"
                               "  defaults: 1000000 mutexes, 64 threads, 1 second of random locking\n"
                               "  --everywhere  each mutex is locked by each thread at first, not by one\n"
                               "  --calm        no random locking\n";

enum { MAX_THREADS = 4096, HOT = 64, HOT_EVERY = 4 };

static struct {
    uint64_t mutexes;
    int threads;
    double seconds;
    bool everywhere, calm, human;
} opt = { .mutexes = 1000000, .threads = 64, .seconds = 1 };

static pthread_mutex_t *mutexes;
static atomic_bool stop;
static pthread_barrier_t start, touched, measured;

struct thread {
    pthread_t id;
    int number;
    uint64_t ops;
};

struct memory {
    long rss, hwm, size;  // KiB
};

static void touch(uint64_t i, uint64_t spin)
{
    if (pthread_mutex_lock(&mutexes[i]))
        die("locking mutex %llu failed", (unsigned long long)i);
    work_cycles(spin);
    if (pthread_mutex_unlock(&mutexes[i]))
        die("unlocking mutex %llu failed", (unsigned long long)i);
}

static void *thread_main(void *arg)
{
    struct thread *t = arg;
    uint64_t rng = 0x9e3779b97f4a7c15ULL * (uint64_t)(t->number + 1);
    uint64_t hot = opt.mutexes < HOT ? opt.mutexes : HOT;
    pthread_barrier_wait(&start);
    // All of them, beginning elsewhere than the others; or those that are this thread's.
    uint64_t step = opt.everywhere ? 1 : (uint64_t)opt.threads;
    uint64_t first = (uint64_t)t->number * (opt.everywhere ? opt.mutexes / (uint64_t)opt.threads : 1);
    for (uint64_t i = first; i < (opt.everywhere ? first + opt.mutexes : opt.mutexes); i += step, t->ops++)
        touch(i % opt.mutexes, 0);
    pthread_barrier_wait(&touched);
    while (!opt.calm && !atomic_load_explicit(&stop, memory_order_relaxed)) {
        uint64_t r = rnd(&rng) >> 16;
        if (r % HOT_EVERY == 0)
            touch(r / HOT_EVERY % hot, 200);
        else
            touch(r / HOT_EVERY % opt.mutexes, 0);
        t->ops++;
    }
    pthread_barrier_wait(&measured);
    return NULL;
}

static struct memory memory_now(void)
{
    struct memory m = { -1, -1, -1 };
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    if (!file)
        die("cannot read /proc/self/status");
    while (fgets(line, sizeof line, file)) {
        sscanf(line, "VmRSS: %ld", &m.rss);
        sscanf(line, "VmHWM: %ld", &m.hwm);
        sscanf(line, "VmSize: %ld", &m.size);
    }
    fclose(file);
    return m;
}

static void print(const struct memory *before, const struct memory *after, uint64_t ops)
{
    // Above the bare array: threads, and whatever the lock keeps elsewhere.
    double extra = (double)(after->rss - before->rss) * 1024 / (double)opt.mutexes;
    if (opt.human)
        printf("%llu mutexes, %d threads, %llu acquisitions: VmRSS %ld KiB (%ld before the first lock, %+.1f bytes per "
               "mutex), VmHWM %ld KiB, VmSize %ld KiB\n",
               (unsigned long long)opt.mutexes, opt.threads, (unsigned long long)ops, after->rss, before->rss, extra,
               after->hwm, after->size);
    else
        printf("{\"format\":\"%s\",\"bench\":\"million\",\"mutexes\":%llu,\"threads\":%d,\"seconds\":%g,\"ops\":%llu,"
               "\"rss_before_kib\":%ld,\"vm_rss_kib\":%ld,\"vm_hwm_kib\":%ld,\"vm_size_kib\":%ld,"
               "\"extra_bytes_per_mutex\":%.2f}\n",
               BENCH_FORMAT, (unsigned long long)opt.mutexes, opt.threads, opt.seconds, (unsigned long long)ops,
               before->rss, after->rss, after->hwm, after->size, extra);
}

static void parse(int argc, char **argv)
{
    static const struct option longopts[] = {
        { "mutexes", required_argument, NULL, 'm' }, { "threads", required_argument, NULL, 't' },
        { "seconds", required_argument, NULL, 's' }, { "human", no_argument, NULL, 'h' },
        { "everywhere", no_argument, NULL, 'e' }, { "calm", no_argument, NULL, 'c' },
        { NULL, 0, NULL, 0 },
    };
    int c;
    while ((c = getopt_long(argc, argv, "", longopts, NULL)) != -1) {
        switch (c) {
        case 'm': opt.mutexes = whole("mutexes", optarg, 1, 1000000000); break;
        case 't': opt.threads = (int)whole("threads", optarg, 1, MAX_THREADS); break;
        case 's': opt.seconds = number("seconds", optarg, 0, 3600); break;
        case 'h': opt.human = true; break;
        case 'e': opt.everywhere = true; break;
        case 'c': opt.calm = true; break;
        default: usage();
        }
    }
    if (optind != argc)
        usage();
}

int main(int argc, char **argv)
{
    static struct thread threads[MAX_THREADS];
    parse(argc, argv);
    mutexes = malloc(opt.mutexes * sizeof *mutexes);
    if (!mutexes)
        die("out of memory");
    // As by PTHREAD_MUTEX_INITIALIZER; really written (a compiler makes calloc of malloc and memset, which writes
    // nothing), so that the array's own pages are in the figure before.
    __asm__ volatile("" : "+r"(mutexes));
    memset(mutexes, 0, opt.mutexes * sizeof *mutexes);
    struct memory before = memory_now();
    pthread_barrier_t *barriers[] = { &start, &touched, &measured };
    for (size_t i = 0; i < sizeof barriers / sizeof *barriers; i++)
        pthread_barrier_init(barriers[i], NULL, (unsigned)opt.threads + 1);
    for (int i = 0; i < opt.threads; i++) {
        threads[i].number = i;
        if (pthread_create(&threads[i].id, NULL, thread_main, &threads[i]))
            die("cannot create thread %d", i + 1);
    }
    pthread_barrier_wait(&start);
    pthread_barrier_wait(&touched);
    if (!opt.calm)
        sleep_seconds(opt.seconds);
    atomic_store(&stop, true);
    uint64_t ops = 0;
    // Before the threads go, with all they keep.
    struct memory after = memory_now();
    pthread_barrier_wait(&measured);
    for (int i = 0; i < opt.threads; i++) {
        pthread_join(threads[i].id, NULL);
        ops += threads[i].ops;
    }
    print(&before, &after, ops);
    return 0;
}
