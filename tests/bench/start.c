// SPDX-License-Identifier: MIT OR Apache-2.0
//
// start: what it takes to start a program that does nothing (`true`) and to see it end. It inherits what is preloaded
// into this one.
#include "bench.h"

#include <getopt.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

const char *program = "start";
const char *const usage_text = "usage: start [--seconds S] [--human] [PROGRAM]\n";

enum { MOST = 1 << 20 };

extern char **environ;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double once(char *const command[])
{
    uint64_t before = now_ns();
    pid_t child;
    int status;
    if (posix_spawnp(&child, command[0], NULL, NULL, command, environ))
        die("cannot start %s", command[0]);
    if (waitpid(child, &status, 0) != child || status)
        die("%s ended with status %d", command[0], status);
    return (double)(now_ns() - before) / 1000;
}

int main(int argc, char **argv)
{
    static const struct option longopts[] = {
        { "seconds", required_argument, NULL, 's' },
        { "human", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    double seconds = 1;
    bool human = false;
    int c;
    while ((c = getopt_long(argc, argv, "", longopts, NULL)) != -1) {
        switch (c) {
        case 's': seconds = number("seconds", optarg, 0.001, 3600); break;
        case 'h': human = true; break;
        default: usage();
        }
    }
    if (argc - optind > 1)
        usage();
    char *command[] = { optind < argc ? argv[optind] : "true", NULL };
    double *us = malloc(MOST * sizeof *us);
    if (!us)
        die("out of memory");
    once(command);  // warm up: files in memory
    int n = 0;
    uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
    do
        us[n++] = once(command);
    while (n < MOST && now_ns() < end);
    qsort(us, (size_t)n, sizeof *us, ascending);
    if (human)
        printf("%s: minimum %.0f us, median %.0f us (%d starts)\n", command[0], us[0], us[n / 2], n);
    else
        printf("{\"format\":\"%s\",\"bench\":\"start\",\"program\":\"%s\",\"min_us\":%.1f,\"median_us\":%.1f,"
               "\"starts\":%d}\n",
               BENCH_FORMAT, command[0], us[0], us[n / 2], n);
    free(us);
    return 0;
}
