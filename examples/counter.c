/* A pthread program with one hot mutex, to run under flashlock unchanged.
 *
 *     cc -O2 -pthread -o counter counter.c
 *     ./counter                                  with glibc's locks
 *     flashlock run -- ./counter                 with flashlock's default lock
 *     flashlock run --stats -- ./counter         with glibc's locks, and a report on what they did
 *
 * counter [THREADS [MILLISECONDS]]: each thread moves money between the accounts of one bank, which a mutex protects.
 * At the end no money may be missing. Exit status: 0 all is there, 1 some is missing, 2 wrong usage.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ACCOUNTS = 64, MONEY = 1000, MOST_THREADS = 1024 };

static pthread_mutex_t bank_lock = PTHREAD_MUTEX_INITIALIZER;
static long bank[ACCOUNTS];
static atomic_bool stop;

/* Moves money until it is told to stop; returns how often. */
static void *clerk(void *argument) {
    unsigned seed = (unsigned)(size_t)argument;
    size_t moves = 0;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        seed = seed * 1664525 + 1013904223;
        unsigned from = seed >> 8 & (ACCOUNTS - 1), to = seed >> 20 & (ACCOUNTS - 1);
        pthread_mutex_lock(&bank_lock);
        bank[from] -= 1;
        bank[to] += 1;
        pthread_mutex_unlock(&bank_lock);
        moves++;
    }
    return (void *)moves;
}

/* A number from 1 to `most`, or the end of the program. */
static long number(const char *text, long most) {
    char *end;
    long value = strtol(text, &end, 10);
    if (*end != '\0' || value < 1 || value > most) {
        fprintf(stderr, "counter: '%s' must be a number from 1 to %ld\n", text, most);
        fprintf(stderr, "usage: counter [THREADS [MILLISECONDS]]\n");
        exit(2);
    }
    return value;
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? number(argv[1], MOST_THREADS) : 4;
    long milliseconds = argc > 2 ? number(argv[2], 3600000) : 200;
    for (int i = 0; i < ACCOUNTS; i++) {
        bank[i] = MONEY;
    }
    pthread_t clerks[MOST_THREADS];
    for (long i = 0; i < threads; i++) {
        if (pthread_create(&clerks[i], NULL, clerk, (void *)(size_t)(i + 1)) != 0) {
            fprintf(stderr, "counter: cannot start thread %ld\n", i + 1);
            return 1;
        }
    }
    struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&pause, NULL);
    atomic_store(&stop, 1);
    size_t moves = 0;
    for (long i = 0; i < threads; i++) {
        void *moved;
        pthread_join(clerks[i], &moved);
        moves += (size_t)moved;
    }
    long missing = (long)ACCOUNTS * MONEY;
    for (int i = 0; i < ACCOUNTS; i++) {
        missing -= bank[i];
    }
    printf("%ld threads: %.2f moves/us, %ld missing\n", threads, (double)moves / (double)milliseconds / 1000, missing);
    return missing != 0;
}
