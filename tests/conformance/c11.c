/* C11 <threads.h>: mtx_t, cnd_t, and call_once, which must keep working beside them. */
#include "conformance.h"

#include <threads.h>

static const char *result_name(int result)
{
    switch (result) {
    case thrd_success: return "thrd_success";
    case thrd_busy: return "thrd_busy";
    case thrd_error: return "thrd_error";
    case thrd_nomem: return "thrd_nomem";
    case thrd_timedout: return "thrd_timedout";
    default: return "an unknown result";
    }
}

#define CHECK_THRD(call, expected)                                                                  \
    do {                                                                                            \
        int got_ = (call);                                                                          \
        CHECK_TRUE(got_ == (expected), "%s returned %s, expected %s", #call, result_name(got_),     \
                   #expected);                                                                      \
    } while (0)

static struct timespec utc_after_ms(long ms)
{
    return time_after_ms(CLOCK_REALTIME, ms);
}

static int try_body(void *mutex)
{
    int result = mtx_trylock(mutex);
    if (result == thrd_success) mtx_unlock(mutex);
    return result;
}

static int try_elsewhere(mtx_t *mutex)
{
    thrd_t thread;
    int result;
    CHECK_THRD(thrd_create(&thread, try_body, mutex), thrd_success);
    CHECK_THRD(thrd_join(thread, &result), thrd_success);
    return result;
}

static int timed_body(void *mutex)
{
    struct timespec deadline = utc_after_ms(20);
    int result = mtx_timedlock(mutex, &deadline);
    if (result == thrd_timedout) CHECK_REACHED(CLOCK_REALTIME, deadline);
    return result;
}

/* ---- mtx_t ---- */

static void basics(int type)
{
    mtx_t mutex;
    CHECK_THRD(mtx_init(&mutex, type), thrd_success);
    for (int i = 0; i < 3; i++) {
        CHECK_THRD(mtx_lock(&mutex), thrd_success);
        CHECK_THRD(try_elsewhere(&mutex), thrd_busy);
        CHECK_THRD(mtx_unlock(&mutex), thrd_success);
        CHECK_THRD(mtx_trylock(&mutex), thrd_success);
        CHECK_THRD(mtx_unlock(&mutex), thrd_success);
        CHECK_THRD(try_elsewhere(&mutex), thrd_success);
    }
    mtx_destroy(&mutex);
}

CHECK(c11, mtx_plain_basics) { basics(mtx_plain); }

CHECK(c11, mtx_timed_basics) { basics(mtx_timed); }

CHECK(c11, mtx_recursive_basics) { basics(mtx_plain | mtx_recursive); }

CHECK(c11, mtx_timed_recursive_basics) { basics(mtx_timed | mtx_recursive); }

CHECK(c11, mtx_plain_own_trylock_is_busy)
{
    mtx_t mutex;
    CHECK_THRD(mtx_init(&mutex, mtx_plain), thrd_success);
    CHECK_THRD(mtx_lock(&mutex), thrd_success);
    CHECK_THRD(mtx_trylock(&mutex), thrd_busy);
    CHECK_THRD(mtx_unlock(&mutex), thrd_success);
    CHECK_THRD(try_elsewhere(&mutex), thrd_success);
}

static void recursion(int type)
{
    mtx_t mutex;
    struct timespec passed = {1, 0};
    CHECK_THRD(mtx_init(&mutex, type), thrd_success);
    CHECK_THRD(mtx_lock(&mutex), thrd_success);
    CHECK_THRD(mtx_lock(&mutex), thrd_success);
    CHECK_THRD(mtx_trylock(&mutex), thrd_success);
    CHECK_THRD(mtx_timedlock(&mutex, &passed), thrd_success);
    for (int i = 0; i < 4; i++) {
        CHECK_THRD(try_elsewhere(&mutex), thrd_busy);
        CHECK_THRD(mtx_unlock(&mutex), thrd_success);
    }
    CHECK_THRD(try_elsewhere(&mutex), thrd_success);
    CHECK_THRD(mtx_unlock(&mutex), thrd_error);
    mtx_destroy(&mutex);
}

CHECK(c11, mtx_recursive_counts) { recursion(mtx_plain | mtx_recursive); }

CHECK(c11, mtx_timed_recursive_counts) { recursion(mtx_timed | mtx_recursive); }

CHECK(c11, mtx_timedlock_times_out)
{
    mtx_t mutex;
    thrd_t thread;
    int result;
    CHECK_THRD(mtx_init(&mutex, mtx_timed), thrd_success);
    CHECK_THRD(mtx_lock(&mutex), thrd_success);
    CHECK_THRD(thrd_create(&thread, timed_body, &mutex), thrd_success);
    CHECK_THRD(thrd_join(thread, &result), thrd_success);
    CHECK_THRD(result, thrd_timedout);
    CHECK_THRD(timed_body(&mutex), thrd_timedout); /* by the owner */
    CHECK_THRD(mtx_unlock(&mutex), thrd_success);
}

CHECK(c11, mtx_timedlock_of_a_free_mutex_ignores_the_deadline)
{
    static const struct timespec deadlines[] = {{1, 0}, {-1, 0}, {1, -1}, {1, 1000000000}};
    mtx_t mutex;
    CHECK_THRD(mtx_init(&mutex, mtx_timed), thrd_success);
    for (int i = 0; i < 4; i++) {
        CHECK_THRD(mtx_timedlock(&mutex, &deadlines[i]), thrd_success);
        CHECK_THRD(mtx_unlock(&mutex), thrd_success);
    }
}

CHECK(c11, mtx_timedlock_bad_nanoseconds_are_an_error)
{
    mtx_t mutex;
    struct timespec deadline = utc_after_ms(1000);
    deadline.tv_nsec = 1000000000;
    CHECK_THRD(mtx_init(&mutex, mtx_timed), thrd_success);
    CHECK_THRD(mtx_lock(&mutex), thrd_success);
    CHECK_THRD(mtx_timedlock(&mutex, &deadline), thrd_error);
    CHECK_THRD(mtx_unlock(&mutex), thrd_success);
}

struct sum {
    mtx_t mutex;
    volatile long value;
    atomic_long made;
};

static int add(void *argument)
{
    struct sum *sum = argument;
    int made = 0;
    for (; made < 20000 && (made % 64 || !time_is_short()); made++) {
        struct timespec far = time_far(CLOCK_REALTIME);
        int result = made % 3 == 0 ? mtx_timedlock(&sum->mutex, &far) : mtx_lock(&sum->mutex);
        if (result != thrd_success) FAIL("locking returned %s", result_name(result));
        long seen = sum->value;
        if (made % 128 == 0) thrd_yield();
        sum->value = seen + 1;
        if (mtx_unlock(&sum->mutex) != thrd_success) FAIL("mtx_unlock failed");
    }
    atomic_fetch_add(&sum->made, made);
    return 0;
}

static void *add_by_pthread(void *argument)
{
    add(argument);
    return NULL;
}

static void sum_up(int type)
{
    struct sum sum = {.value = 0};
    thrd_t threads[2];
    CHECK_THRD(mtx_init(&sum.mutex, type), thrd_success);
    for (int i = 0; i < 2; i++) CHECK_THRD(thrd_create(&threads[i], add, &sum), thrd_success);
    threads_run(2, add_by_pthread, &sum); /* both sorts of threads, one mutex */
    for (int i = 0; i < 2; i++) CHECK_THRD(thrd_join(threads[i], NULL), thrd_success);
    CHECK_EQ(sum.value, atomic_load(&sum.made));
    mtx_destroy(&sum.mutex);
}

CHECK(c11, mtx_plain_excludes) { sum_up(mtx_plain); }

CHECK(c11, mtx_timed_recursive_excludes) { sum_up(mtx_timed | mtx_recursive); }

/* ---- cnd_t ---- */

struct relay {
    mtx_t mutex;
    cnd_t cond;
    int turn, parties;
    bool broadcast;
    atomic_int tickets;
};

static int run_relay(void *argument)
{
    struct relay *r = argument;
    int me = atomic_fetch_add(&r->tickets, 1);
    for (int i = 0; i < 1500; i++) {
        if (mtx_lock(&r->mutex) != thrd_success) FAIL("mtx_lock failed");
        while (r->turn % r->parties != me) {
            struct timespec far = time_far(CLOCK_REALTIME);
            int result = i % 2 ? cnd_wait(&r->cond, &r->mutex) : cnd_timedwait(&r->cond, &r->mutex, &far);
            if (result != thrd_success) FAIL("waiting returned %s", result_name(result));
        }
        r->turn++;
        int result = r->broadcast ? cnd_broadcast(&r->cond) : cnd_signal(&r->cond);
        if (result != thrd_success) FAIL("signalling returned %s", result_name(result));
        if (mtx_unlock(&r->mutex) != thrd_success) FAIL("mtx_unlock failed");
    }
    return 0;
}

static void relay(int parties, bool broadcast)
{
    struct relay r = {.parties = parties, .broadcast = broadcast};
    thrd_t threads[4];
    CHECK_THRD(mtx_init(&r.mutex, mtx_plain), thrd_success);
    CHECK_THRD(cnd_init(&r.cond), thrd_success);
    for (int i = 0; i < parties; i++) CHECK_THRD(thrd_create(&threads[i], run_relay, &r), thrd_success);
    for (int i = 0; i < parties; i++) CHECK_THRD(thrd_join(threads[i], NULL), thrd_success);
    CHECK_EQ(r.turn, parties * 1500);
    cnd_destroy(&r.cond);
    mtx_destroy(&r.mutex);
}

CHECK(c11, cnd_signal_between_two) { relay(2, false); }

CHECK(c11, cnd_broadcast_among_four) { relay(4, true); }

CHECK(c11, cnd_timedwait_times_out_holding_the_mutex)
{
    mtx_t mutex;
    cnd_t cond;
    CHECK_THRD(mtx_init(&mutex, mtx_plain), thrd_success);
    CHECK_THRD(cnd_init(&cond), thrd_success);
    CHECK_THRD(mtx_lock(&mutex), thrd_success);
    for (int ms = 0; ms <= 20; ms += 10) {
        struct timespec deadline = utc_after_ms(ms);
        int result;
        while ((result = cnd_timedwait(&cond, &mutex, &deadline)) == thrd_success)
            ;
        CHECK_THRD(result, thrd_timedout);
        CHECK_REACHED(CLOCK_REALTIME, deadline);
        CHECK_THRD(try_elsewhere(&mutex), thrd_busy);
    }
    CHECK_THRD(mtx_unlock(&mutex), thrd_success);
    cnd_destroy(&cond);
}

CHECK(c11, cnd_timedwait_bad_nanoseconds_are_an_error)
{
    mtx_t mutex;
    cnd_t cond;
    struct timespec deadline = {1, -1};
    CHECK_THRD(mtx_init(&mutex, mtx_plain), thrd_success);
    CHECK_THRD(cnd_init(&cond), thrd_success);
    CHECK_THRD(mtx_lock(&mutex), thrd_success);
    CHECK_THRD(cnd_timedwait(&cond, &mutex, &deadline), thrd_error);
    CHECK_THRD(try_elsewhere(&mutex), thrd_busy);
    CHECK_THRD(mtx_unlock(&mutex), thrd_success);
    CHECK_THRD(cnd_signal(&cond), thrd_success);
    CHECK_THRD(cnd_broadcast(&cond), thrd_success);
}

/* ---- call_once ---- */

static once_flag once = ONCE_FLAG_INIT;
static mtx_t once_mutex;
static int once_calls;

static void initialise(void)
{
    if (mtx_init(&once_mutex, mtx_plain) != thrd_success) FAIL("mtx_init failed");
    mtx_lock(&once_mutex);
    nap_ms(5);
    once_calls++;
    mtx_unlock(&once_mutex);
}

static void *use_once(void *unused)
{
    call_once(&once, initialise);
    if (mtx_lock(&once_mutex) != thrd_success) FAIL("mtx_lock failed");
    if (once_calls != 1) FAIL("initialised %d times", once_calls);
    mtx_unlock(&once_mutex);
    return unused;
}

CHECK(c11, call_once_makes_a_mutex)
{
    threads_run(8, use_once, NULL);
    CHECK_EQ(once_calls, 1);
}
