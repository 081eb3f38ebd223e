/* Where a mutex may live and how it may come to be: initialisers, zeroed memory, alignments, neighbours. */
#include "conformance.h"

#include <fcntl.h>
#include <sys/mman.h>

/* Each in its own storage class. */
static pthread_mutex_t static_default = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t static_recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t static_errorcheck = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_mutex_t static_adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t in_bss;
static _Thread_local pthread_mutex_t in_tls;

static void behaves_ownerless(pthread_mutex_t *mutex)
{
    CHECK_OK(pthread_mutex_lock(mutex));
    CHECK_RC(pthread_mutex_trylock(mutex), EBUSY);
    CHECK_RC(trylock_elsewhere(mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(mutex));
    check_excludes(mutex);
}

static void behaves_recursive(pthread_mutex_t *mutex)
{
    CHECK_OK(pthread_mutex_lock(mutex));
    CHECK_OK(pthread_mutex_lock(mutex));
    CHECK_OK(pthread_mutex_unlock(mutex));
    CHECK_RC(trylock_elsewhere(mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(mutex));
    CHECK_RC(pthread_mutex_unlock(mutex), EPERM);
    check_excludes(mutex);
}

static void behaves_errorcheck(pthread_mutex_t *mutex)
{
    CHECK_OK(pthread_mutex_lock(mutex));
    CHECK_RC(pthread_mutex_lock(mutex), EDEADLK);
    CHECK_RC(trylock_elsewhere(mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(mutex));
    CHECK_RC(pthread_mutex_unlock(mutex), EPERM);
    check_excludes(mutex);
}

CHECK(mutex_static, initializer_default) { behaves_ownerless(&static_default); }

CHECK(mutex_static, initializer_recursive) { behaves_recursive(&static_recursive); }

CHECK(mutex_static, initializer_errorcheck) { behaves_errorcheck(&static_errorcheck); }

CHECK(mutex_static, initializer_adaptive) { behaves_ownerless(&static_adaptive); }

CHECK(mutex_static, zeroed_bss) { behaves_ownerless(&in_bss); }

CHECK(mutex_static, zeroed_thread_local) { behaves_ownerless(&in_tls); }

CHECK(mutex_static, zeroed_by_calloc)
{
    pthread_mutex_t *mutex = calloc(1, sizeof *mutex);
    behaves_ownerless(mutex);
    CHECK_OK(pthread_mutex_destroy(mutex));
    free(mutex);
}

CHECK(mutex_static, zeroed_by_memset_again_and_again)
{
    pthread_mutex_t mutex;
    for (int i = 0; i < 20; i++) {
        memset(&mutex, 0xff, sizeof mutex);
        memset(&mutex, 0, sizeof mutex);
        struct locker waiter;
        CHECK_OK(pthread_mutex_lock(&mutex));
        locker_start(&waiter, &mutex, NULL, NULL);
        CHECK_OK(pthread_mutex_unlock(&mutex));
        locker_join(&waiter);
    }
}

static void *map(size_t length, int flags, int fd)
{
    void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (memory == MAP_FAILED) FAIL("mmap: %s", code_name(errno));
    return memory;
}

CHECK(mutex_static, copies_of_the_initializers_in_mapped_memory)
{
    static const pthread_mutex_t models[] = {
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP,
        PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP};
    pthread_mutex_t *mutexes = map(sizeof models, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    memcpy(mutexes, models, sizeof models);
    behaves_ownerless(&mutexes[0]);
    behaves_ownerless(&mutexes[1]);
    behaves_recursive(&mutexes[2]);
    behaves_errorcheck(&mutexes[3]);
}

CHECK(mutex_static, initializer_on_the_stack)
{
    pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;
    behaves_recursive(&recursive);
    behaves_ownerless(&plain);
}

/* A private mutex in memory that happens to be mapped shared. */
CHECK(mutex_static, private_mutex_in_a_shared_file_mapping)
{
    int fd = memfd_create("mutex", MFD_CLOEXEC);
    CHECK_EQ(ftruncate(fd, 4096), 0);
    pthread_mutex_t *mutex = map(4096, MAP_SHARED, fd);
    behaves_ownerless(mutex);
}

CHECK(mutex_static, static_mutex_destroyed_and_made_anew)
{
    check_excludes(&static_recursive);
    CHECK_OK(pthread_mutex_destroy(&static_recursive));
    mutex_make(&static_recursive, PTHREAD_MUTEX_ERRORCHECK);
    behaves_errorcheck(&static_recursive);
    CHECK_OK(pthread_mutex_destroy(&static_recursive));
}

/* ---- First touch ---- */

enum { UNTOUCHED = 2000 };
static pthread_mutex_t untouched[UNTOUCHED];
static long touches[UNTOUCHED];
static struct gate touch_now;

static void *touch_all(void *unused)
{
    gate_wait(&touch_now, 1);
    for (int i = 0; i < UNTOUCHED; i++) {
        HOT_OK(pthread_mutex_lock(&untouched[i]));
        long seen = touches[i];
        if (i % 64 == 0) sched_yield();
        touches[i] = seen + 1;
        HOT_OK(pthread_mutex_unlock(&untouched[i]));
    }
    return unused;
}

CHECK(mutex_static, first_touched_by_eight_threads_at_once)
{
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) threads[i] = thread_start(touch_all, NULL);
    gate_open(&touch_now);
    for (int i = 0; i < 8; i++) thread_join(threads[i]);
    for (int i = 0; i < UNTOUCHED; i++) CHECK_EQ(touches[i], 8);
}

/* ---- Alignment and neighbours ---- */

CHECK(mutex_static, every_eight_byte_alignment)
{
    _Alignas(128) static unsigned char memory[256];
    for (int offset = 0; offset < 128; offset += 8) {
        pthread_mutex_t *mutex = (pthread_mutex_t *)(memory + offset);
        struct locker waiters[2];
        mutex_make(mutex, offset % 16 ? PTHREAD_MUTEX_RECURSIVE : KIND_DEFAULT);
        CHECK_OK(pthread_mutex_lock(mutex));
        for (int i = 0; i < 2; i++) locker_start(&waiters[i], mutex, NULL, NULL);
        CHECK_RC(trylock_elsewhere(mutex), EBUSY);
        CHECK_OK(pthread_mutex_unlock(mutex));
        for (int i = 0; i < 2; i++) locker_join(&waiters[i]);
        struct exclusion x = {.mutex = mutex,
                              .lock = {pthread_mutex_lock},
                              .unlock = {pthread_mutex_unlock},
                              .threads = 3,
                              .ms = 10};
        exclusion_run(&x);
        CHECK_OK(pthread_mutex_destroy(mutex));
    }
}

static void hammer_everything(pthread_mutex_t *mutex)
{
    struct timespec soon = time_after_ms(CLOCK_REALTIME, 2);
    CHECK_OK(pthread_mutex_lock(mutex));
    CHECK_RC(pthread_mutex_timedlock(mutex, &soon), ETIMEDOUT);
    CHECK_OK(pthread_mutex_unlock(mutex));
    check_excludes(mutex);
    CHECK_OK(pthread_mutex_destroy(mutex));
}

CHECK(mutex_static, neighbours_stay_untouched)
{
    _Alignas(64) struct {
        unsigned char before[64];
        pthread_mutex_t mutex;
        unsigned char after[64];
    } house;
    memset(&house, 0x5a, sizeof house);
    CHECK_OK(pthread_mutex_init(&house.mutex, NULL));
    hammer_everything(&house.mutex);
    for (int i = 0; i < 64; i++) {
        CHECK_EQ(house.before[i], 0x5a);
        CHECK_EQ(house.after[i], 0x5a);
    }
}

/* A byte read or written beside the mutex faults. */
CHECK(mutex_static, at_the_edges_of_mapped_memory)
{
    char *pages = map(3 * 4096, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    CHECK_EQ(mprotect(pages, 4096, PROT_NONE), 0);
    CHECK_EQ(mprotect(pages + 8192, 4096, PROT_NONE), 0);
    hammer_everything((pthread_mutex_t *)(pages + 4096));
    hammer_everything((pthread_mutex_t *)(pages + 8192 - sizeof(pthread_mutex_t)));
}

/* ---- Many ---- */

enum { MANY = 200000 };
struct cell {
    pthread_mutex_t mutex;
    long counter;
};
static struct cell *cells;
static atomic_int cell_tickets;
static atomic_long all_visits;

static void *visit_cells(void *unused)
{
    uint32_t random = 1 + atomic_fetch_add(&cell_tickets, 1);
    int visits = 0;
    for (; visits < 100000 && (visits % 64 || !time_is_short()); visits++) {
        /* Half of the visits crowd onto a few cells. */
        struct cell *cell = &cells[random_next(&random) % (visits % 2 ? MANY : 8)];
        HOT_OK(pthread_mutex_lock(&cell->mutex));
        cell->counter++;
        HOT_OK(pthread_mutex_unlock(&cell->mutex));
    }
    atomic_fetch_add(&all_visits, visits);
    return unused;
}

CHECK(mutex_static, two_hundred_thousand_in_an_array)
{
    cells = calloc(MANY, sizeof *cells);
    threads_run(8, visit_cells, NULL);
    long sum = 0;
    for (int i = 0; i < MANY; i++) {
        HOT_OK(pthread_mutex_destroy(&cells[i].mutex));
        sum += cells[i].counter;
    }
    CHECK_EQ(sum, atomic_load(&all_visits));
}

static void hold_many(int count)
{
    pthread_mutex_t *mutexes = calloc(count, sizeof *mutexes);
    int *order = calloc(count, sizeof *order);
    uint32_t random = count;
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < count; i++) {
            CHECK_OK(i % 3 ? pthread_mutex_lock(&mutexes[i]) : pthread_mutex_trylock(&mutexes[i]));
            order[i] = i;
        }
        for (int i = count - 1; i > 0; i--) {
            int j = random_next(&random) % (i + 1), kept = order[i];
            order[i] = order[j];
            order[j] = kept;
        }
        for (int i = 0; i < count; i++) {
            if (i % (count / 10) == 0) CHECK_RC(trylock_elsewhere(&mutexes[order[i]]), EBUSY);
            CHECK_OK(pthread_mutex_unlock(&mutexes[order[i]]));
            if (i % (count / 10) == 0) CHECK_OK(trylock_elsewhere(&mutexes[order[i]]));
        }
    }
    for (int i = 0; i < count; i++) CHECK_OK(pthread_mutex_destroy(&mutexes[i]));
}

CHECK(mutex_static, hundred_held_and_released_in_random_order) { hold_many(100); }

CHECK(mutex_static, ten_thousand_held_and_released_in_random_order) { hold_many(10000); }
