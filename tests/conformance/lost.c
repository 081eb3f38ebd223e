#include "lost.h"

#include <sys/mman.h>

enum { PAGE = 4096, THREADS = 40, ENDED = 3, UNMAPPED = -1 };

static const struct lost *kind;
static unsigned char *object;

static void *wait_for_ever(void *me)
{
    CHECK_OK(kind->wait(object, *(int *)me));
    return NULL;
}

/* What the memory becomes: for each eight bytes, zero, two small numbers, or an address. No number is that of a queue
 * node of a waiter, and none is so large that a lock could take it for a time. */
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

static void lose(const struct lost *it, int count, int use)
{
    static int numbers[THREADS];
    kind = it;
    object = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_TRUE(object != MAP_FAILED, "no memory");
    it->hold(object);
    for (int i = 0; i < count; i++) {
        numbers[i] = i;
        thread_start(wait_for_ever, &numbers[i]);
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
    nap_ms(1500);
    for (int i = 0; i < PAGE && use != UNMAPPED; i++)
        if (object[i] != now[i])
            FAIL("as \"%s\": byte %d of memory that was the object was %#x, and has become %#x", BECOMES[use], i,
                 now[i], object[i]);
    exit(ENDED);
}

/* In a process of its own, which ends with the threads. */
static pid_t lose_apart(const struct lost *it, int count, int use)
{
    if (count > THREADS) FAIL("%d threads: %d at most", count, THREADS);
    pid_t pid = fork();
    if (pid == 0) lose(it, count, use);
    return pid;
}

void lost_and_gone(const struct lost *it, int count)
{
    CHECK_EQ(process_status(lose_apart(it, count, UNMAPPED)), ENDED);
}

void lost_and_reused(const struct lost *it, int count)
{
    pid_t pids[USES];
    for (int use = 0; use < USES; use++) pids[use] = lose_apart(it, count, use);
    for (int use = 0; use < USES; use++) CHECK_EQ(process_status(pids[use]), ENDED);
}
