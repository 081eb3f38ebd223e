#include "lost.h"

#include <signal.h>
#include <sys/mman.h>

enum { PAGE = 4096, THREADS = 40, ENDED = 3, UNMAPPED = -1 };

static const struct lost *kind;
static unsigned char *object;

static void *wait_for_ever(void *me)
{
    CHECK_OK(kind->wait(object, *(int *)me));
    return NULL;
}

/* What the memory becomes: for each eight bytes, zero (0), two small numbers (n), or an address (p). No small number is
 * that of a waiter's queue node: what names a waiter of this very lock looks like the lock. */
static const char *const BECOMES[] = { "0", "n", "p", "pn", "np", "0p", "p0", "0n", "n0" };
enum { USES = sizeof BECOMES / sizeof *BECOMES };

static void become(unsigned char *memory, int use)
{
    const char *pattern = BECOMES[use];
    size_t length = strlen(pattern);
    for (size_t i = 0; i < PAGE / 8; i++) {
        uint64_t small = 1000 + i, value = 0;
        if (pattern[i % length] == 'n') value = small | (small + 1) << 32;
        if (pattern[i % length] == 'p') value = (uintptr_t)memory + 8 * i;
        memcpy(memory + 8 * i, &value, 8);
    }
}

static void do_nothing(int number)
{
    (void)number;
}

static void interrupt(const pthread_t *threads, int count)
{
    for (int round = 0; round < 50; round++) {
        for (int i = 1; i < count; i++) CHECK_OK(pthread_kill(threads[i], SIGUSR1));
        nap_ms(10);
    }
}

static void lose(const struct lost *it, int count, int use, bool interrupted)
{
    static int numbers[THREADS];
    pthread_t threads[THREADS];
    struct sigaction action = {.sa_handler = do_nothing};
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    kind = it;
    object = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_TRUE(object != MAP_FAILED, "no memory");
    it->hold(object);
    for (int i = 0; i < count; i++) {
        numbers[i] = i;
        threads[i] = thread_start(wait_for_ever, &numbers[i]);
        if (interrupted) others_sleep(); /* so that the first in the queue is the first of them */
    }
    others_sleep();
    if (it->then) {
        it->then(object);
        others_sleep();
    }
    unsigned char now[PAGE];
    if (use == UNMAPPED) {
        CHECK_EQ(munmap(object, PAGE), 0);
    } else {
        become(object, use);
        memcpy(now, object, PAGE);
    }
    if (interrupted) interrupt(threads, count);
    nap_ms(1500);
    for (int i = 0; i < PAGE && use != UNMAPPED; i++)
        if (object[i] != now[i])
            FAIL("as \"%s\": byte %d of memory that was the object was %#x, and has become %#x", BECOMES[use], i,
                 now[i], object[i]);
    exit(ENDED);
}

/* In a process of its own, which ends with the threads. */
static pid_t lose_apart(const struct lost *it, int count, int use, bool interrupted)
{
    if (count > THREADS) FAIL("%d threads: %d at most", count, THREADS);
    pid_t pid = fork();
    if (pid == 0) lose(it, count, use, interrupted);
    return pid;
}

void lost_and_gone(const struct lost *it, int count)
{
    CHECK_EQ(process_status(lose_apart(it, count, UNMAPPED, false)), ENDED);
}

static void lost_to_each_use(const struct lost *it, int count, bool interrupted)
{
    pid_t pids[USES];
    for (int use = 0; use < USES; use++) pids[use] = lose_apart(it, count, use, interrupted);
    for (int use = 0; use < USES; use++) CHECK_EQ(process_status(pids[use]), ENDED);
}

void lost_and_reused(const struct lost *it, int count)
{
    lost_to_each_use(it, count, false);
}

void lost_and_interrupted(const struct lost *it, int count)
{
    lost_to_each_use(it, count, true);
}
