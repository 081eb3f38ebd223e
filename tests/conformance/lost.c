#include "lost.h"

#include <signal.h>
#include <sys/mman.h>

enum { PAGE = 4096, THREADS = 40, ENDED = 3, UNMAPPED = -1, TRIES = 100 };

static const struct lost *kind;
static unsigned char *object;

/* How far it is: the memory is about to change; it has changed, while all threads slept. A thread that had just got up,
 * and had asked the kernel about the memory, may access it in vain: then the try shows nothing. */
enum progress { BEFORE, LOSING, LOST_QUIETLY };

/* One loss, in a process of its own. */
struct try {
    pid_t pid;
    _Atomic enum progress *progress; /* shared with that process */
};

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
        for (int i = 0; i < count; i++) CHECK_OK(pthread_kill(threads[i], SIGUSR1));
        nap_ms(10);
    }
}

static bool slept_from(struct others before)
{
    struct others now = others_look();
    return !before.awake && !now.awake && before.switches == now.switches;
}

static void lose(const struct lost *it, int count, int use, bool interrupted,
                 _Atomic enum progress *progress)
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
    }
    others_sleep();
    if (it->then) {
        it->then(object);
        others_sleep();
    }
    unsigned char now[PAGE];
    struct others before = others_look();
    atomic_store(progress, LOSING);
    if (use == UNMAPPED) {
        CHECK_EQ(munmap(object, PAGE), 0);
    } else {
        become(object, use);
        memcpy(now, object, PAGE);
    }
    if (!slept_from(before)) exit(ENDED);
    atomic_store(progress, LOST_QUIETLY);
    if (interrupted) interrupt(threads, count);
    nap_ms(1500);
    for (int i = 0; i < PAGE && use != UNMAPPED; i++)
        if (object[i] != now[i])
            FAIL("as \"%s\": byte %d of memory that was the object was %#x, and has become %#x", BECOMES[use], i,
                 now[i], object[i]);
    exit(ENDED);
}

/* In a process of its own, which ends with the threads. */
static struct try lose_apart(const struct lost *it, int count, int use, bool interrupted)
{
    if (count > THREADS) FAIL("%d threads: %d at most", count, THREADS);
    void *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK_TRUE(shared != MAP_FAILED, "no memory");
    struct try try = {.progress = shared};
    try.pid = fork();
    if (try.pid == 0) lose(it, count, use, interrupted, try.progress);
    return try;
}

/* Whether the try has shown something. Then it has shown that nothing was accessed. */
static bool has_shown(struct try try)
{
    int status = process_status(try.pid);
    enum progress progress = atomic_load(try.progress);
    CHECK_EQ(munmap(try.progress, PAGE), 0);
    if (progress != LOSING) CHECK_EQ(status, ENDED);
    return progress == LOST_QUIETLY;
}

static void lost_as(const struct lost *it, int count, int first_use, int uses, bool interrupted)
{
    struct try tries[USES];
    bool shown[USES] = {false};
    for (int left = uses, t = 0; left > 0; t++) {
        if (t == TRIES) FAIL("in %d tries, threads that should sleep were awake", TRIES);
        for (int i = 0; i < uses; i++)
            if (!shown[i]) tries[i] = lose_apart(it, count, first_use + i, interrupted);
        for (int i = 0; i < uses; i++)
            if (!shown[i] && has_shown(tries[i])) shown[i] = (left--, true);
    }
}

void lost_and_gone(const struct lost *it, int count)
{
    lost_as(it, count, UNMAPPED, 1, false);
}

void lost_and_reused(const struct lost *it, int count)
{
    lost_as(it, count, 0, USES, false);
}

void lost_and_interrupted(const struct lost *it, int count)
{
    lost_as(it, count, 0, USES, true);
}
