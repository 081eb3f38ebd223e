// SPDX-License-Identifier: MIT OR Apache-2.0
//
// hotlock: one hot mutex. The section reads and writes L shared cache lines; outside it a thread pauses for some cycles
// or works privately for some ns. Reports throughput, fairness, waiting times and what it cost.
#include "bench.h"

#include <getopt.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

const char *program = "hotlock";
const char *const usage_text =
    "usage: hotlock --threads N --lines L --seconds S [--pause CYCLES] [--cs-extra NS] [--out NS] [--human]\n"
    "  --lines L      shared cache lines read and written in the section\n"
    "  --pause CYCLES outside the section (default 100)\n"
    "  --cs-extra NS  more work inside the section\n"
    "  --out NS       thread-private work outside, instead of the pause\n";

enum { MAX_THREADS = 4096, MAX_LINES = 65536, SAMPLE_EVERY = 16 };

static struct {
    int threads, lines;
    double seconds, cs_extra_ns, out_ns;
    uint64_t pause;
    bool human;
} opt = { .pause = 100, .out_ns = -1 };

struct line {
    _Alignas(CACHE_LINE) volatile uint64_t value;
};

struct thread {
    _Alignas(CACHE_LINE) uint64_t ops;
    struct histogram waits;
    pthread_t id;
};

// Each on lines of its own: the mutex must not share one with what the section touches.
static struct {
    _Alignas(2 * CACHE_LINE) pthread_mutex_t mutex;
    _Alignas(2 * CACHE_LINE) atomic_bool stop;
    _Alignas(2 * CACHE_LINE) struct line *lines;
    uint64_t cs_extra, outside;  // cycles
    atomic_int ready;
    pthread_barrier_t start;
} shared = { .mutex = PTHREAD_MUTEX_INITIALIZER };

// One acquisition in sixteen is timed: reading the clock twice costs more than an uncontended lock. Returns how long it
// took (with the clock's own 20 ns or so), or NOT_TIMED.
#define NOT_TIMED UINT64_MAX
static uint64_t acquire(const struct thread *t)
{
    if (t->ops % SAMPLE_EVERY) {
        pthread_mutex_lock(&shared.mutex);
        return NOT_TIMED;
    }
    uint64_t before = now_ns();
    pthread_mutex_lock(&shared.mutex);
    return now_ns() - before;
}

static void *thread_main(void *arg)
{
    struct thread *t = arg;
    const int lines = opt.lines;
    const uint64_t cs_extra = shared.cs_extra, outside = shared.outside;
    atomic_fetch_add(&shared.ready, 1);
    pthread_barrier_wait(&shared.start);
    while (!atomic_load_explicit(&shared.stop, memory_order_relaxed)) {
        uint64_t wait = acquire(t);
        for (int i = 0; i < lines; i++)
            shared.lines[i].value++;
        work_cycles(cs_extra);
        pthread_mutex_unlock(&shared.mutex);
        t->ops++;
        if (wait != NOT_TIMED)
            histogram_add(&t->waits, wait);
        work_cycles(outside);
    }
    return NULL;
}

static int descending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

struct result {
    double elapsed_ms, fairness, cpu_seconds;
    uint64_t ops, min_ops, max_ops;
    long voluntary, involuntary;
    struct histogram waits;
};

static void *aligned(size_t bytes)
{
    void *memory = aligned_alloc(2 * CACHE_LINE, (bytes + 2 * CACHE_LINE - 1) & ~(size_t)(2 * CACHE_LINE - 1));
    if (!memory)
        die("out of memory");
    memset(memory, 0, bytes);
    return memory;
}

static double cpu_seconds(const struct rusage *u)
{
    double seconds = (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec);
    return seconds + (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec) / 1e6;
}

// The share of operations done by the busier half of the threads: 0.5 is fair, 1 is one half starving the other. With
// an odd number the thread in the middle counts half for each side.
static double fairness(uint64_t *ops, int n, uint64_t total)
{
    qsort(ops, (size_t)n, sizeof *ops, descending);
    double half = n % 2 ? (double)ops[n / 2] / 2 : 0;
    for (int i = 0; i < n / 2; i++)
        half += (double)ops[i];
    return total ? half / (double)total : 0.5;
}

static void collect(struct thread *threads, struct result *r)
{
    static uint64_t ops[MAX_THREADS];
    r->min_ops = UINT64_MAX;
    for (int i = 0; i < opt.threads; i++) {
        ops[i] = threads[i].ops;
        r->ops += ops[i];
        r->min_ops = ops[i] < r->min_ops ? ops[i] : r->min_ops;
        r->max_ops = ops[i] > r->max_ops ? ops[i] : r->max_ops;
        histogram_merge(&r->waits, &threads[i].waits);
    }
    r->fairness = fairness(ops, opt.threads, r->ops);
    // The section counts too, and unlike the threads it does so without a lock of its own.
    if (opt.lines && shared.lines[0].value != r->ops)
        die("the lock does not exclude: %llu sections, %llu counted in the first line", (unsigned long long)r->ops,
            (unsigned long long)shared.lines[0].value);
}

static void measure(struct result *r)
{
    struct thread *threads = aligned((size_t)opt.threads * sizeof *threads);
    shared.lines = aligned((size_t)(opt.lines + 1) * sizeof *shared.lines);  // never empty
    pthread_barrier_init(&shared.start, NULL, (unsigned)opt.threads + 1);
    for (int i = 0; i < opt.threads; i++)
        if (pthread_create(&threads[i].id, NULL, thread_main, &threads[i]))
            die("cannot create thread %d", i + 1);
    // The clock starts when all have come: neither their creation nor a late wake-up of this thread is to count.
    while (atomic_load(&shared.ready) < opt.threads)
        sleep_seconds(0.0001);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    uint64_t start = now_ns();
    pthread_barrier_wait(&shared.start);
    sleep_seconds(opt.seconds);
    atomic_store(&shared.stop, true);
    for (int i = 0; i < opt.threads; i++)
        pthread_join(threads[i].id, NULL);
    // Until the last thread is out: what is done after the flag counts with its time, also where hand-overs are slow.
    r->elapsed_ms = (double)(now_ns() - start) / 1e6;
    getrusage(RUSAGE_SELF, &after);
    r->cpu_seconds = cpu_seconds(&after) - cpu_seconds(&before);
    r->voluntary = after.ru_nvcsw - before.ru_nvcsw;
    r->involuntary = after.ru_nivcsw - before.ru_nivcsw;
    collect(threads, r);
    free(threads);
    free(shared.lines);
}

static void print_json(const struct result *r, double ghz)
{
    printf("{\"format\":\"%s\",\"bench\":\"hotlock\",\"threads\":%d,\"lines\":%d,\"seconds\":%g,\"pause_cycles\":%llu,"
           "\"cs_extra_ns\":%g,\"out_ns\":%g,\"cycles_per_ns\":%.3f,",
           BENCH_FORMAT, opt.threads, opt.lines, opt.seconds, (unsigned long long)(opt.out_ns < 0 ? opt.pause : 0),
           opt.cs_extra_ns, opt.out_ns < 0 ? 0 : opt.out_ns, ghz);
    printf("\"elapsed_ms\":%.3f,\"ops\":%llu,\"ops_per_ms\":%.3f,\"min_ops\":%llu,\"max_ops\":%llu,\"fairness\":%.4f,",
           r->elapsed_ms, (unsigned long long)r->ops, (double)r->ops / r->elapsed_ms, (unsigned long long)r->min_ops,
           (unsigned long long)r->max_ops, r->fairness);
    printf("\"wait_samples\":%llu,\"wait_p50_ns\":%llu,\"wait_p99_ns\":%llu,\"wait_max_ns\":%llu,"
           "\"voluntary_switches\":%ld,\"involuntary_switches\":%ld,\"cpu_seconds\":%.4f}\n",
           (unsigned long long)r->waits.samples, (unsigned long long)histogram_quantile(&r->waits, 0.5),
           (unsigned long long)histogram_quantile(&r->waits, 0.99), (unsigned long long)r->waits.max, r->voluntary,
           r->involuntary, r->cpu_seconds);
}

static void print_human(const struct result *r)
{
    printf("%d threads, %d lines: %.0f ops/ms in %.2f s (per thread %llu to %llu, fairness factor %.2f)\n", opt.threads,
           opt.lines, (double)r->ops / r->elapsed_ms, r->elapsed_ms / 1e3, (unsigned long long)r->min_ops,
           (unsigned long long)r->max_ops, r->fairness);
    printf("wait: median %llu ns, p99 %llu ns, longest seen %llu ns (1 in %d timed)\n",
           (unsigned long long)histogram_quantile(&r->waits, 0.5),
           (unsigned long long)histogram_quantile(&r->waits, 0.99), (unsigned long long)r->waits.max, SAMPLE_EVERY);
    printf("cost: %.2f CPU-seconds, %ld voluntary and %ld involuntary context switches\n", r->cpu_seconds, r->voluntary,
           r->involuntary);
}

static void parse(int argc, char **argv)
{
    static const struct option longopts[] = {
        { "threads", required_argument, NULL, 't' }, { "lines", required_argument, NULL, 'l' },
        { "seconds", required_argument, NULL, 's' }, { "pause", required_argument, NULL, 'p' },
        { "cs-extra", required_argument, NULL, 'c' }, { "out", required_argument, NULL, 'o' },
        { "human", no_argument, NULL, 'h' },         { NULL, 0, NULL, 0 },
    };
    int c;
    opt.lines = -1;
    while ((c = getopt_long(argc, argv, "", longopts, NULL)) != -1) {
        switch (c) {
        case 't': opt.threads = (int)whole("threads", optarg, 1, MAX_THREADS); break;
        case 'l': opt.lines = (int)whole("lines", optarg, 0, MAX_LINES); break;
        case 's': opt.seconds = number("seconds", optarg, 0.001, 3600); break;
        case 'p': opt.pause = whole("pause", optarg, 0, 1000000000); break;
        case 'c': opt.cs_extra_ns = number("cs-extra", optarg, 0, 1e9); break;
        case 'o': opt.out_ns = number("out", optarg, 0, 1e9); break;
        case 'h': opt.human = true; break;
        default: usage();
        }
    }
    if (optind != argc || !opt.threads || opt.lines < 0 || opt.seconds <= 0)
        usage();
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    double ghz = cycles_per_ns();
    shared.cs_extra = (uint64_t)(opt.cs_extra_ns * ghz);
    shared.outside = opt.out_ns < 0 ? opt.pause : (uint64_t)(opt.out_ns * ghz);
    static struct result result;
    measure(&result);
    if (opt.human)
        print_human(&result);
    else
        print_json(&result, ghz);
    return 0;
}
