#include "lost.h"

#include <sys/mman.h>

enum { PAGE = 4096, THREADS = 40, ENDED = 3 };

static const struct lost *kind;
static unsigned char *object;

static void *wait_for_ever(void *me)
{
    CHECK_OK(kind->wait(object, *(int *)me));
    return NULL;
}

static void lose(const struct lost *it, int count, bool unmap)
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
    if (unmap)
        CHECK_EQ(munmap(object, PAGE), 0);
    else
        memset(object, 0, PAGE);
    nap_ms(1500);
    for (int i = 0; i < PAGE && !unmap; i++)
        if (object[i]) FAIL("byte %d of memory that was the object has become %#x", i, object[i]);
    exit(ENDED);
}

/* In a process of its own, which ends with the threads. */
static void lose_apart(const struct lost *it, int count, bool unmap)
{
    if (count > THREADS) FAIL("%d threads: %d at most", count, THREADS);
    pid_t pid = fork();
    if (pid == 0) lose(it, count, unmap);
    CHECK_EQ(process_status(pid), ENDED);
}

void lost_and_gone(const struct lost *it, int count)
{
    lose_apart(it, count, true);
}

void lost_and_reused(const struct lost *it, int count)
{
    lose_apart(it, count, false);
}
