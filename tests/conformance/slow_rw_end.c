/* Readers-writer locks in slow motion: an unlock must not look back once the next owner has been let in. */
#include "doomed.h"
#include "rwlock.h"

static void make(int kind) { rw_make(doomed_page(), kind); }

static int get_to_read(void) { return pthread_rwlock_rdlock(doomed_page()); }

static int get_to_write(void) { return pthread_rwlock_wrlock(doomed_page()); }

static int try_to_read(void) { return pthread_rwlock_tryrdlock(doomed_page()); }

static int try_to_write(void) { return pthread_rwlock_trywrlock(doomed_page()); }

static int unlock(void) { return pthread_rwlock_unlock(doomed_page()); }

static void destroy(void)
{
    HOT_OK(unlock());
    HOT_OK(pthread_rwlock_destroy(doomed_page()));
}

#define DOOMED(hold_, get_)                                                                          \
    {.make = make, .hold = get_to_##hold_, .release = unlock, .get = get_to_##get_,                 \
     .try_to_get = try_to_##get_, .busy = EBUSY, .destroy = destroy}

/* A reader does not wait for a reader. The heirs of the last one are readers, who have the lock together. */
static const struct doomed doomed[] = {DOOMED(write, write), DOOMED(read, write), DOOMED(write, read)};
enum { HEIRS_ALONE = 2, DOOMED_ALL = sizeof doomed / sizeof *doomed };

#define ENDED(title, kind)                                                                          \
    CHECK(slow_motion, rw_##title##_unlock_never_looks_back)                                        \
    {                                                                                               \
        for (int i = 0; i < DOOMED_ALL; i++) doomed_by_a_passer_by(&doomed[i], kind);               \
    }                                                                                               \
    CHECK(slow_motion, rw_##title##_unlock_with_a_waiter_never_looks_back)                          \
    {                                                                                               \
        for (int i = 0; i < DOOMED_ALL; i++) doomed_by_waiters(&doomed[i], kind, 1);                \
    }
KINDS_RW(ENDED)

CHECK(slow_motion, rw_unlock_with_3_waiters_never_looks_back)
{
    for (int i = 0; i < HEIRS_ALONE; i++) doomed_by_waiters(&doomed[i], RW_STATIC, 3);
}
