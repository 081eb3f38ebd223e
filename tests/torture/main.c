// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The command line and the list of scenarios. Exit status: 0 all passed (or skipped), 1 something failed, 2 usage.
#include "torture.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct scenario scenarios[] = {
    { "counter", "unprotected counters under one mutex", run_counter },
    { "list", "a linked list and a tree under one mutex", run_list },
    { "many", "1,000 mutexes, nested 1-4 deep, released in random order", run_many },
    { "trylock", "trylock against lock", run_trylock },
    { "timed", "timedlock and clocklock with short and expired deadlines", run_timed },
    { "rw", "readers and writers of one lock, recursive readers among them", run_rw },
    { "rw-timed", "the same with trylocks, short and expired deadlines", run_rw_timed },
    { "rw-last-frees", "the last owner of a readers-writer lock destroys and unmaps it", run_rw_last_frees },
    { "recursive", "recursive mutexes: depth, owner, exclusion", run_recursive },
    { "errorcheck", "errorcheck mutexes: error codes under contention", run_errorcheck },
    { "cond", "bounded buffers with signal", run_cond },
    { "broadcast", "a barrier made of mutex and broadcast", run_broadcast },
    { "condtimed", "timed waits racing signals: no token lost", run_condtimed },
    { "condcancel", "cancellation racing signals: no signal lost, mutex held in cleanup", run_condcancel },
    { "freeze-handler", "threads frozen at random points by a signal handler that sleeps", run_freeze_handler },
    { "freeze-waiter", "one or two frozen waiters must not stop the others", run_freeze_waiter },
    { "freeze-ptrace", "threads frozen at random points by a tracer", run_freeze_ptrace },
    { "exit-waiting", "processes that end while threads wait and hold", run_exit_waiting },
    { "last-owner-frees", "the last owner unlocks, destroys and unmaps the mutex", run_last_owner_frees },
    { "cond-destroy", "broadcast, destroy and unmap while waiters are returning", run_cond_destroy },
    { "spin", "unprotected counters under one spinlock", run_spin },
    { "sem", "semaphores of three permits and of one; waits of all kinds", run_sem },
    { "sem-signals", "handlers post to the semaphore that they interrupt", run_sem_signals },
    { "sem-destroy", "the waiter destroys and unmaps the semaphore while the post returns", run_sem_destroy },
    { "tsd", "thread-specific-data destructors that lock", run_tsd },
    { "signal-locks", "locks taken in handlers that interrupt lock waits", run_signal_locks },
    { "short-threads", "many short-lived threads; memory must not grow", run_short_threads },
    { "fork", "fork in the middle of contention", run_fork },
};
enum { SCENARIOS = sizeof scenarios / sizeof scenarios[0] };

static _Noreturn void usage(void)
{
    fprintf(stderr,
            "usage: torture SCENARIO... [--threads N] [--seconds S] [--seed X] [--full]\n"
            "       torture --list\n"
            "SCENARIO is a name from --list, or `all`. Threads: 1..%d (default 8); seconds per scenario: default 1.\n"
            "--full: short-threads creates at least 100,000 threads however long it takes.\n",
            MAX_THREADS);
    exit(2);
}

static double number(const char *text, double min, double max)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= min && value <= max)) {
        fprintf(stderr, "torture: `%s` is not a number in %g..%g\n", text, min, max);
        usage();
    }
    return value;
}

static int whole(const char *text, int min, int max)
{
    double value = number(text, min, max);
    if (value != (int)value) {
        fprintf(stderr, "torture: `%s` is not a whole number\n", text);
        usage();
    }
    return (int)value;
}

static uint64_t seed_of(const char *text)
{
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 0);
    if (end == text || *end || errno || *text == '-') {
        fprintf(stderr, "torture: `%s` is not a seed (an unsigned 64-bit number)\n", text);
        usage();
    }
    return value;
}

static void list(void)
{
    for (int i = 0; i < SCENARIOS; i++)
        printf("%-18s%s\n", scenarios[i].name, scenarios[i].about);
}

// Marks in `chosen` what the words ask for.
static void choose(char **words, int n, bool *chosen)
{
    for (int w = 0; w < n; w++) {
        bool known = false;
        for (int i = 0; i < SCENARIOS; i++) {
            if (strcmp(words[w], scenarios[i].name) && strcmp(words[w], "all"))
                continue;
            chosen[i] = known = true;
        }
        if (!known) {
            fprintf(stderr, "torture: no scenario `%s`; see torture --list\n", words[w]);
            usage();
        }
    }
}

static int run_chosen(const bool *chosen, const struct run *options)
{
    int count[3] = { 0 };
    for (int i = 0; i < SCENARIOS; i++)
        if (chosen[i])
            count[run_scenario(&scenarios[i], options)]++;
    printf("%d passed, %d failed\n", count[PASSED], count[FAILED]);
    return count[FAILED] ? 1 : 0;
}

int main(int argc, char **argv)
{
    static const struct option longopts[] = {
        { "list", no_argument, NULL, 'l' },          { "threads", required_argument, NULL, 't' },
        { "seconds", required_argument, NULL, 's' }, { "seed", required_argument, NULL, 'x' },
        { "full", no_argument, NULL, 'f' },          { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    // Not for people: see exit.c.
    if (argc == 5 && !strcmp(argv[1], "--exit-child"))
        return exit_child_main(atoi(argv[2]), atoi(argv[3]), strtoull(argv[4], NULL, 10));

    struct run options = { .threads = 8, .seconds = 1, .seed = mix(now_ns(CLOCK_REALTIME), (uint64_t)getpid()) };
    int c;
    while ((c = getopt_long(argc, argv, "", longopts, NULL)) != -1) {
        switch (c) {
        case 'l': list(); return 0;
        case 't': options.threads = whole(optarg, 1, MAX_THREADS); break;
        case 's': options.seconds = number(optarg, 0.01, 86400); break;
        case 'x': options.seed = seed_of(optarg); break;
        case 'f': options.full = true; break;
        default: usage();
        }
    }
    if (optind == argc)
        usage();
    bool chosen[SCENARIOS] = { false };
    choose(argv + optind, argc - optind, chosen);
    return run_chosen(chosen, &options);
}
