// SPDX-License-Identifier: MIT OR Apache-2.0
//
// hotrw: one hot readers-writer lock, mostly read. One section in W, on average, writes L shared cache lines, the
// others read them; outside a thread pauses for some cycles. Reports throughput, waiting times of readers and of
// writers, and what it cost.
#include "bench.h"

#include <getopt.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

const char *program = "hotrw";
const char *const usage_text =
    "usage: hotrw --threads N --lines L --seconds S [--write-one-in W] [--pause CYCLES] [--human]\n"
    "  --lines L         shared cache lines read, or written, in the section\n"
    "  --write-one-in W  sections that write: one in W (default 100; 0: none)\n"
    "  --pause CYCLES    outside the section (default 100)\n";

enum { MAX_THREADS = 4096, MAX_LINES = 65536, SAMPLE_EVERY = 16 };

static struct {
    int threads, lines;
    double seconds;
    uint64_t pause, write_one_in;
    bool human;
} opt = { .pause = 100, .write_one_in = 100, .lines = -1 };

struct line {
    _Alignas(CACHE_LINE) volatile uint64_t value;
};

struct thread {
    _Alignas(CACHE_LINE) uint64_t reads, writes, torn, random;
    struct histogram read_waits, write_waits;
    pthread_t id;
};

static struct {
    _Alignas(2 * CACHE_LINE) pthread_rwlock_t lock;
    _Alignas(2 * CACHE_LINE) atomic_bool stop;
    _Alignas(2 * CACHE_LINE) struct line *lines;
    atomic_int ready;
    pthread_barrier_t start;
} shared = { .lock = PTHREAD_RWLOCK_INITIALIZER };

typedef int acquire_call(pthread_rwlock_t *);

// One acquisition in sixteen is timed.
static void acquire(acquire_call *call, uint64_t before_it, struct histogram *waits)
{
    if (before_it % SAMPLE_EVERY) {
        call(&shared.lock);
        return;
    }
    uint64_t before = now_ns();
    call(&shared.lock);
    histogram_add(waits, now_ns() - before);
}

static void write_section(struct thread *t)
{
    acquire(pthread_rwlock_wrlock, t->writes++, &t->write_waits);
    for (int i = 0; i < opt.lines; i++)
        shared.lines[i].value++;
    pthread_rwlock_unlock(&shared.lock);
}

static void read_section(struct thread *t)
{
    acquire(pthread_rwlock_rdlock, t->reads++, &t->read_waits);
    uint64_t first = shared.lines[0].value;
    for (int i = 1; i < opt.lines; i++)
        t->torn += shared.lines[i].value != first;
    pthread_rwlock_unlock(&shared.lock);
}

static void *thread_main(void *arg)
{
    struct thread *t = arg;
    atomic_fetch_add(&shared.ready, 1);
    pthread_barrier_wait(&shared.start);
    while (!atomic_load_explicit(&shared.stop, memory_order_relaxed)) {
        if (opt.write_one_in && rnd(&t->random) % opt.write_one_in == 0)
            write_section(t);
        else
            read_section(t);
        work_cycles(opt.pause);
    }
    return NULL;
}

struct result {
    double elapsed_ms, cpu_seconds;
    uint64_t reads, writes, min_ops, max_ops;
    long voluntary, involuntary;
    struct histogram read_waits, write_waits;
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

static void collect(struct thread *threads, struct result *r)
{
    uint64_t torn = 0;
    r->min_ops = UINT64_MAX;
    for (int i = 0; i < opt.threads; i++) {
        uint64_t ops = threads[i].reads + threads[i].writes;
        r->reads += threads[i].reads;
        r->writes += threads[i].writes;
        torn += threads[i].torn;
        r->min_ops = ops < r->min_ops ? ops : r->min_ops;
        r->max_ops = ops > r->max_ops ? ops : r->max_ops;
        histogram_merge(&r->read_waits, &threads[i].read_waits);
        histogram_merge(&r->write_waits, &threads[i].write_waits);
    }
    // The sections count, too, and unlike the threads they do so without a counter of their own.
    if (opt.lines && (torn || shared.lines[0].value != r->writes))
        die("the lock does not exclude: %llu lines torn, %llu writes, %llu counted in the first line",
            (unsigned long long)torn, (unsigned long long)r->writes, (unsigned long long)shared.lines[0].value);
}

static void measure(struct result *r)
{
    struct thread *threads = aligned((size_t)opt.threads * sizeof *threads);
    shared.lines = aligned((size_t)(opt.lines + 1) * sizeof *shared.lines);  // never empty
    pthread_barrier_init(&shared.start, NULL, (unsigned)opt.threads + 1);
    for (int i = 0; i < opt.threads; i++) {
        threads[i].random = 0x9e3779b97f4a7c15ULL * (uint64_t)(i + 1);
        if (pthread_create(&threads[i].id, NULL, thread_main, &threads[i]))
            die("cannot create thread %d", i + 1);
    }
    // The clock starts when all have come.
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
    r->elapsed_ms = (double)(now_ns() - start) / 1e6;
    getrusage(RUSAGE_SELF, &after);
    r->cpu_seconds = cpu_seconds(&after) - cpu_seconds(&before);
    r->voluntary = after.ru_nvcsw - before.ru_nvcsw;
    r->involuntary = after.ru_nivcsw - before.ru_nivcsw;
    collect(threads, r);
    free(threads);
    free(shared.lines);
}

static void print_json(const struct result *r)
{
    printf("{\"format\":\"%s\",\"bench\":\"hotrw\",\"threads\":%d,\"lines\":%d,\"seconds\":%g,\"pause_cycles\":%llu,"
           "\"write_one_in\":%llu,",
           BENCH_FORMAT, opt.threads, opt.lines, opt.seconds, (unsigned long long)opt.pause,
           (unsigned long long)opt.write_one_in);
    printf("\"elapsed_ms\":%.3f,\"ops\":%llu,\"ops_per_ms\":%.3f,\"reads\":%llu,\"writes\":%llu,\"min_ops\":%llu,"
           "\"max_ops\":%llu,",
           r->elapsed_ms, (unsigned long long)(r->reads + r->writes), (double)(r->reads + r->writes) / r->elapsed_ms,
           (unsigned long long)r->reads, (unsigned long long)r->writes, (unsigned long long)r->min_ops,
           (unsigned long long)r->max_ops);
    printf("\"read_wait_p50_ns\":%llu,\"read_wait_p99_ns\":%llu,\"read_wait_max_ns\":%llu,\"write_wait_p50_ns\":%llu,"
           "\"write_wait_p99_ns\":%llu,\"write_wait_max_ns\":%llu,",
           (unsigned long long)histogram_quantile(&r->read_waits, 0.5),
           (unsigned long long)histogram_quantile(&r->read_waits, 0.99), (unsigned long long)r->read_waits.max,
           (unsigned long long)histogram_quantile(&r->write_waits, 0.5),
           (unsigned long long)histogram_quantile(&r->write_waits, 0.99), (unsigned long long)r->write_waits.max);
    printf("\"voluntary_switches\":%ld,\"involuntary_switches\":%ld,\"cpu_seconds\":%.4f}\n", r->voluntary,
           r->involuntary, r->cpu_seconds);
}

static void print_human(const struct result *r)
{
    printf("%d threads, %d lines: %.0f ops/ms in %.2f s, %llu reads, %llu writes\n", opt.threads, opt.lines,
           (double)(r->reads + r->writes) / r->elapsed_ms, r->elapsed_ms / 1e3, (unsigned long long)r->reads,
           (unsigned long long)r->writes);
    printf("waits, ns: readers p99 %llu, longest %llu; writers p99 %llu, longest %llu (1 in %d timed)\n",
           (unsigned long long)histogram_quantile(&r->read_waits, 0.99), (unsigned long long)r->read_waits.max,
           (unsigned long long)histogram_quantile(&r->write_waits, 0.99), (unsigned long long)r->write_waits.max,
           SAMPLE_EVERY);
    printf("cost: %.2f CPU-seconds, %ld voluntary and %ld involuntary context switches\n", r->cpu_seconds, r->voluntary,
           r->involuntary);
}

static void parse(int argc, char **argv)
{
    static const struct option longopts[] = {
        { "threads", required_argument, NULL, 't' },      { "lines", required_argument, NULL, 'l' },
        { "seconds", required_argument, NULL, 's' },      { "pause", required_argument, NULL, 'p' },
        { "write-one-in", required_argument, NULL, 'w' }, { "human", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    int c;
    while ((c = getopt_long(argc, argv, "", longopts, NULL)) != -1) {
        switch (c) {
        case 't': opt.threads = (int)whole("threads", optarg, 1, MAX_THREADS); break;
        case 'l': opt.lines = (int)whole("lines", optarg, 0, MAX_LINES); break;
        case 's': opt.seconds = number("seconds", optarg, 0.001, 3600); break;
        case 'p': opt.pause = whole("pause", optarg, 0, 1000000000); break;
        case 'w': opt.write_one_in = whole("write-one-in", optarg, 0, 1000000000); break;
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
    static struct result result;
    measure(&result);
    if (opt.human)
        print_human(&result);
    else
        print_json(&result);
    return 0;
}
