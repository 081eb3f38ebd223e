// SPDX-License-Identifier: MIT OR Apache-2.0
#include "bench.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", program);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

void usage(void)
{
    fputs(usage_text, stderr);
    exit(2);
}

double number(const char *option, const char *text, double min, double max)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= min && value <= max)) {
        fprintf(stderr, "%s: --%s: `%s` is not a number in %g..%g\n", program, option, text, min, max);
        usage();
    }
    return value;
}

uint64_t whole(const char *option, const char *text, uint64_t min, uint64_t max)
{
    double value = number(option, text, (double)min, (double)max);
    if (value != (double)(uint64_t)value) {
        fprintf(stderr, "%s: --%s: `%s` is not a whole number\n", program, option, text);
        usage();
    }
    return (uint64_t)value;
}

void sleep_seconds(double seconds)
{
    struct timespec t = { .tv_sec = (time_t)seconds };
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    while (nanosleep(&t, &t) && errno == EINTR)
        ;
}

double cycles_per_ns(void)
{
    enum { CYCLES = 1000000, RUNS = 15 };
    uint64_t best = UINT64_MAX;
    // The fastest run is the one nobody interrupted.
    for (int i = 0; i < RUNS; i++) {
        uint64_t start = now_ns();
        work_cycles(CYCLES);
        uint64_t ns = now_ns() - start;
        best = ns < best ? ns : best;
    }
    return (double)CYCLES / (double)best;
}

static unsigned bucket_of(uint64_t value)
{
    if (value < 1u << SUB_BITS)
        return (unsigned)value;
    unsigned shift = 63 - (unsigned)__builtin_clzll(value) - SUB_BITS;
    return ((shift + 1) << SUB_BITS) + (unsigned)((value >> shift) & ((1u << SUB_BITS) - 1));
}

// The largest value of a bucket; inverse of `bucket_of`.
static uint64_t upper_bound(unsigned bucket)
{
    if (bucket < 1u << SUB_BITS)
        return bucket;
    unsigned shift = (bucket >> SUB_BITS) - 1;
    uint64_t base = (1u << SUB_BITS) + (bucket & ((1u << SUB_BITS) - 1));
    return ((base + 1) << shift) - 1;
}

void histogram_add(struct histogram *h, uint64_t value)
{
    h->count[bucket_of(value)]++;
    h->samples++;
    h->max = value > h->max ? value : h->max;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    for (int i = 0; i < BUCKETS; i++)
        into->count[i] += from->count[i];
    into->samples += from->samples;
    into->max = from->max > into->max ? from->max : into->max;
}

uint64_t histogram_quantile(const struct histogram *h, double share)
{
    uint64_t wanted = (uint64_t)(share * (double)h->samples), seen = 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += h->count[i];
        if (seen > wanted)
            return upper_bound(i) < h->max ? upper_bound(i) : h->max;
    }
    return h->max;
}
