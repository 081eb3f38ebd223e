// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the bench programs share: options, clocks, calibrated work, a waiting-time histogram. They lock plain pthread
// mutexes, so that any lock can be measured by preloading it.
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum { CACHE_LINE = 64 };

// Bumped when a field of any program's JSON changes its meaning or goes; new fields may come at any time.
#define BENCH_FORMAT "flashlock-bench/1"

extern const char *program;

_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Exit status 2, with the program's own usage text.
_Noreturn void usage(void);
extern const char *const usage_text;

// A number in min..max, or usage.
double number(const char *option, const char *text, double min, double max);
uint64_t whole(const char *option, const char *text, uint64_t min, uint64_t max);

static inline uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void sleep_seconds(double seconds);

static inline uint64_t rnd(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

// A chain of `cycles` dependent additions. One addition takes one cycle on every processor of interest, so this needs
// no time stamp counter (which ticks at another rate than the core) and touches no memory.
static inline void work_cycles(uint64_t cycles)
{
    uint64_t x = 0;
    for (uint64_t i = 0; i < cycles; i++) {
        x += 1;
        __asm__ volatile("" : "+r"(x));
    }
}

// Cycles of `work_cycles` in a ns, measured now.
double cycles_per_ns(void);

// ---- Waiting times --------------------------------------------------------------------------------------------------

// Log-linear: 16 buckets to a power of two, so a value is known to about 6 %; never allocates.
enum { SUB_BITS = 4, BUCKETS = 64 << SUB_BITS };

struct histogram {
    uint64_t count[BUCKETS];
    uint64_t samples, max;
};

void histogram_add(struct histogram *h, uint64_t value);
void histogram_merge(struct histogram *into, const struct histogram *from);
// The upper bound of the bucket in which the given share (0..1) of the samples is reached, at most the maximum.
uint64_t histogram_quantile(const struct histogram *h, double share);
