/*
 * Cancellation. The waits are cancellation points which own the mutex again before cleanup handlers run, and a
 * cancelled waiter takes no signal with it. Locking is no cancellation point.
 */
#include "conformance.h"

#include <dlfcn.h>

enum call { WAIT, TIMEDWAIT, CLOCKWAIT };

struct scene {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    enum call call;
    bool waiting, cleaned;
    int owner_seen, stranger_seen; /* what the cleanup handler learnt about the mutex */
    struct gate step;
};

static int wait_far(struct scene *s)
{
    struct timespec far = time_far(s->call == CLOCKWAIT ? CLOCK_MONOTONIC : CLOCK_REALTIME);
    switch (s->call) {
    case WAIT: return pthread_cond_wait(&s->cond, &s->mutex);
    case TIMEDWAIT: return pthread_cond_timedwait(&s->cond, &s->mutex, &far);
    default: return pthread_cond_clockwait(&s->cond, &s->mutex, CLOCK_MONOTONIC, &far);
    }
}

static void clean(void *argument)
{
    struct scene *s = argument;
    s->cleaned = true;
    s->owner_seen = pthread_mutex_trylock(&s->mutex);
    if (s->owner_seen == 0) pthread_mutex_unlock(&s->mutex); /* recursive */
    s->stranger_seen = trylock_elsewhere(&s->mutex);
    CHECK_OK(pthread_mutex_unlock(&s->mutex));
}

static void *wait_to_be_cancelled(void *argument)
{
    struct scene *s = argument;
    CHECK_OK(pthread_mutex_lock(&s->mutex));
    s->waiting = true;
    pthread_cleanup_push(clean, s);
    for (;;) CHECK_OK(wait_far(s));
    pthread_cleanup_pop(0);
    return NULL;
}

/* With the mutex in hand after this, the waiter waits. */
static void lock_when_waiting(struct scene *s)
{
    for (;;) {
        CHECK_OK(pthread_mutex_lock(&s->mutex));
        if (s->waiting) return;
        CHECK_OK(pthread_mutex_unlock(&s->mutex));
        sched_yield();
    }
}

static void cancelled_while_waiting(enum call call, int kind, int owner_sees)
{
    for (int i = 0; i < 10; i++) {
        struct scene s = {.cond = PTHREAD_COND_INITIALIZER, .call = call};
        mutex_make(&s.mutex, kind);
        pthread_t thread = thread_start(wait_to_be_cancelled, &s);
        lock_when_waiting(&s);
        CHECK_OK(pthread_cancel(thread));
        if (i % 2) nap_ms(2);
        CHECK_TRUE(!s.cleaned, "the cleanup handler ran without the mutex");
        CHECK_OK(pthread_mutex_unlock(&s.mutex));
        CHECK_TRUE(thread_join(thread) == PTHREAD_CANCELED, "the thread was not cancelled");
        CHECK_TRUE(s.cleaned, "the cleanup handler did not run");
        CHECK_RC(s.owner_seen, owner_sees);
        CHECK_RC(s.stranger_seen, EBUSY);
        CHECK_OK(trylock_elsewhere(&s.mutex));
        CHECK_OK(pthread_cond_destroy(&s.cond));
        CHECK_OK(pthread_mutex_destroy(&s.mutex));
    }
}

CHECK(cond_cancel, wait_cancelled) { cancelled_while_waiting(WAIT, KIND_DEFAULT, EBUSY); }

CHECK(cond_cancel, timedwait_cancelled) { cancelled_while_waiting(TIMEDWAIT, KIND_DEFAULT, EBUSY); }

CHECK(cond_cancel, clockwait_cancelled) { cancelled_while_waiting(CLOCKWAIT, KIND_DEFAULT, EBUSY); }

CHECK(cond_cancel, wait_cancelled_with_recursive_mutex) { cancelled_while_waiting(WAIT, PTHREAD_MUTEX_RECURSIVE, 0); }

CHECK(cond_cancel, wait_cancelled_with_errorcheck_mutex)
{
    cancelled_while_waiting(WAIT, PTHREAD_MUTEX_ERRORCHECK, EBUSY);
}

CHECK(cond_cancel, wait_cancelled_with_adaptive_mutex)
{
    cancelled_while_waiting(WAIT, PTHREAD_MUTEX_ADAPTIVE_NP, EBUSY);
}

/* ---- Pending, disabled ---- */

static void *enter_with_pending_cancel(void *argument)
{
    struct scene *s = argument;
    int old;
    CHECK_OK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old));
    CHECK_OK(pthread_cancel(pthread_self()));
    CHECK_OK(pthread_mutex_lock(&s->mutex));
    CHECK_OK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old));
    pthread_cleanup_push(clean, s);
    for (;;) CHECK_OK(wait_far(s));
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancelled_at_entry(enum call call)
{
    struct scene s = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER, .call = call};
    CHECK_TRUE(thread_join(thread_start(enter_with_pending_cancel, &s)) == PTHREAD_CANCELED, "not cancelled");
    CHECK_TRUE(s.cleaned, "the cleanup handler did not run");
    CHECK_RC(s.stranger_seen, EBUSY);
    CHECK_OK(trylock_elsewhere(&s.mutex));
    CHECK_OK(pthread_cond_destroy(&s.cond));
}

CHECK(cond_cancel, pending_cancel_acts_at_entry_of_wait) { cancelled_at_entry(WAIT); }

CHECK(cond_cancel, pending_cancel_acts_at_entry_of_timedwait) { cancelled_at_entry(TIMEDWAIT); }

CHECK(cond_cancel, pending_cancel_acts_at_entry_of_clockwait) { cancelled_at_entry(CLOCKWAIT); }

static void *wait_with_cancel_disabled(void *argument)
{
    struct scene *s = argument;
    int old;
    CHECK_OK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old));
    CHECK_OK(pthread_mutex_lock(&s->mutex));
    s->waiting = true;
    while (gate_count(&s->step) == 0) CHECK_OK(wait_far(s));
    CHECK_OK(pthread_mutex_unlock(&s->mutex));
    s->cleaned = true;
    CHECK_OK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old));
    pthread_testcancel();
    return NULL;
}

CHECK(cond_cancel, disabled_cancel_waits_until_enabled)
{
    for (enum call call = WAIT; call <= CLOCKWAIT; call++) {
        struct scene s = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER, .call = call};
        pthread_t thread = thread_start(wait_with_cancel_disabled, &s);
        lock_when_waiting(&s);
        CHECK_OK(pthread_mutex_unlock(&s.mutex));
        CHECK_OK(pthread_cancel(thread));
        nap_ms(10);
        CHECK_RC(pthread_tryjoin_np(thread, NULL), EBUSY);
        gate_open(&s.step);
        CHECK_OK(pthread_mutex_lock(&s.mutex));
        CHECK_OK(pthread_cond_signal(&s.cond));
        CHECK_OK(pthread_mutex_unlock(&s.mutex));
        CHECK_TRUE(thread_join(thread) == PTHREAD_CANCELED, "the cancel was lost");
        CHECK_TRUE(s.cleaned, "the thread was cancelled while it had disabled that");
    }
}

/* ---- What is no cancellation point ---- */

static void *lock_with_pending_cancel(void *argument)
{
    struct scene *s = argument;
    struct timespec far = time_far(CLOCK_REALTIME), passed = {1, 0};
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    gate_open(&s->step);
    CHECK_OK(pthread_mutex_lock(&s->mutex)); /* blocks; the cancel arrives meanwhile */
    CHECK_OK(pthread_mutex_unlock(&s->mutex));
    CHECK_OK(pthread_mutex_timedlock(&s->mutex, &far));
    CHECK_RC(pthread_mutex_trylock(&s->mutex), EBUSY);
    CHECK_RC(pthread_mutex_timedlock(&s->mutex, &passed), ETIMEDOUT);
    CHECK_OK(pthread_cond_signal(&cond));
    CHECK_OK(pthread_cond_broadcast(&cond));
    CHECK_OK(pthread_mutex_unlock(&s->mutex));
    s->cleaned = true;
    pthread_testcancel();
    return NULL;
}

CHECK(cond_cancel, locking_is_no_cancellation_point)
{
    struct scene s = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    for (int i = 0; i < 10; i++) {
        s.cleaned = false;
        CHECK_OK(pthread_mutex_lock(&s.mutex));
        pthread_t thread = thread_start(lock_with_pending_cancel, &s);
        gate_wait(&s.step, i + 1);
        if (i % 2) nap_ms(5);
        CHECK_OK(pthread_cancel(thread));
        nap_ms(2);
        CHECK_OK(pthread_mutex_unlock(&s.mutex));
        CHECK_TRUE(thread_join(thread) == PTHREAD_CANCELED, "the cancel was lost");
        CHECK_TRUE(s.cleaned, "a lock, trylock, timedlock, unlock or signal acted on the cancel");
        CHECK_OK(trylock_elsewhere(&s.mutex));
    }
}

/* A waiter that was signalled and now queues for the mutex is past its cancellation point, or not: both end well. */
CHECK(cond_cancel, cancelled_while_queueing_for_the_mutex)
{
    for (int i = 0; i < 100 && !time_is_short(); i++) {
        struct scene s = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
        pthread_t thread = thread_start(wait_to_be_cancelled, &s);
        lock_when_waiting(&s);
        CHECK_OK(pthread_cond_signal(&s.cond));
        if (i % 4) nap_us(i * 4);
        CHECK_OK(pthread_cancel(thread));
        CHECK_OK(pthread_mutex_unlock(&s.mutex));
        CHECK_TRUE(thread_join(thread) == PTHREAD_CANCELED, "the cancel was lost");
        CHECK_RC(s.stranger_seen, EBUSY);
        CHECK_OK(trylock_elsewhere(&s.mutex));
        CHECK_OK(pthread_cond_destroy(&s.cond));
    }
}

/* ---- A cancelled waiter swallows no signal ---- */

struct duel {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int waiting, returned; /* returned: from the wait, uncancelled */
};

static void unlock(void *mutex)
{
    HOT_OK(pthread_mutex_unlock(mutex));
}

static void *wait_once(void *argument)
{
    struct duel *d = argument;
    HOT_OK(pthread_mutex_lock(&d->mutex));
    d->waiting++;
    pthread_cleanup_push(unlock, &d->mutex);
    HOT_OK(pthread_cond_wait(&d->cond, &d->mutex));
    d->returned++;
    pthread_cleanup_pop(1);
    return NULL;
}

/* Two wait; one signal, and one of them is cancelled. If its wait did not return, the signal is the other one's. */
static void signal_and_cancel(bool cancel_first)
{
    for (int i = 0; i < 800 && !time_is_short(); i++) {
        struct duel d = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
        pthread_t victim, survivor;
        if (i % 2) victim = thread_start(wait_once, &d);
        survivor = thread_start(wait_once, &d);
        if (i % 2 == 0) victim = thread_start(wait_once, &d);
        for (int waiting = 0; waiting < 2; sched_yield()) {
            HOT_OK(pthread_mutex_lock(&d.mutex));
            waiting = d.waiting;
            HOT_OK(pthread_mutex_unlock(&d.mutex));
        }
        if (cancel_first) HOT_OK(pthread_cancel(victim));
        HOT_OK(pthread_cond_signal(&d.cond));
        if (!cancel_first) {
            int result = pthread_cancel(victim);
            /* The signal may have ended it; glibc before 2.34 then says so. */
            if (result != ESRCH) HOT_OK(result);
        }
        /* The result of the join does not tell: a late cancel shows there even if the wait had returned. */
        thread_join(victim);
        HOT_OK(pthread_mutex_lock(&d.mutex));
        if (d.returned > 0) HOT_OK(pthread_cond_signal(&d.cond));
        HOT_OK(pthread_mutex_unlock(&d.mutex));
        thread_join(survivor); /* or hangs */
        CHECK_OK(pthread_cond_destroy(&d.cond));
    }
}

CHECK(cond_cancel, signal_then_cancel_swallows_nothing) { signal_and_cancel(false); }

CHECK(cond_cancel, cancel_then_signal_swallows_nothing) { signal_and_cancel(true); }

CHECK(cond_cancel, cancelled_half_of_the_waiters_and_broadcast)
{
    for (int i = 0; i < 40 && !time_is_short(); i++) {
        struct duel d = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
        pthread_t threads[12];
        for (int t = 0; t < 12; t++) threads[t] = thread_start(wait_once, &d);
        for (int waiting = 0; waiting < 12; sched_yield()) {
            HOT_OK(pthread_mutex_lock(&d.mutex));
            waiting = d.waiting;
            HOT_OK(pthread_mutex_unlock(&d.mutex));
        }
        for (int t = 0; t < 12; t += 2) CHECK_OK(pthread_cancel(threads[t]));
        CHECK_OK(pthread_cond_broadcast(&d.cond));
        for (int t = 0; t < 12; t++) thread_join(threads[t]);
        CHECK_OK(trylock_elsewhere(&d.mutex));
        CHECK_OK(pthread_cond_destroy(&d.cond));
    }
}

/* ---- C++ ---- */

/* Runs one of the plug-in's checks; it answers NULL or what went wrong. */
static void run_cxx(const char *name)
{
    const char *path = beside_program("plugin_cxx.so");
    if (access(path, F_OK) != 0) SKIP("plugin_cxx.so was not built (no C++ compiler)");
    void *plugin = dlopen(path, RTLD_NOW);
    if (!plugin) FAIL("%s", dlerror());
    const char *(*check)(void) = (const char *(*)(void))dlsym(plugin, name);
    if (!check) FAIL("%s", dlerror());
    const char *problem = check();
    CHECK_TRUE(!problem, "%s: %s", name, problem);
}

CHECK(cond_cancel, cxx_destructors_run_through_pthread_cond_wait) { run_cxx("cxx_pthread_wait"); }

CHECK(cond_cancel, cxx_destructors_run_through_condition_variable)
{
    /* Before, std::condition_variable::wait was noexcept, and a cancellation through it terminates the program. */
    void *cxx = dlopen("libstdc++.so.6", RTLD_NOW);
    if (cxx && !dlvsym(cxx, "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE", "GLIBCXX_3.4.30"))
        SKIP("std::condition_variable of a libstdc++ before GCC 12 cannot be cancelled");
    run_cxx("cxx_condition_variable");
}

CHECK(cond_cancel, cxx_condition_variable_wait_for_and_until) { run_cxx("cxx_timed_waits"); }
