/* Condition variables with deadlines: both clocks, both calls, and no signal lost to a waiter that gives up. */
#include "conformance.h"

/* How a check waits with a deadline. */
struct way {
    clockid_t attribute; /* the clock the condition variable was made with */
    bool clockwait;
    clockid_t clock; /* the clock of the deadline */
};

static const struct way ways[] = {
    {CLOCK_REALTIME, false, CLOCK_REALTIME},   {CLOCK_MONOTONIC, false, CLOCK_MONOTONIC},
    {CLOCK_REALTIME, true, CLOCK_REALTIME},    {CLOCK_REALTIME, true, CLOCK_MONOTONIC},
    {CLOCK_MONOTONIC, true, CLOCK_REALTIME},   {CLOCK_MONOTONIC, true, CLOCK_MONOTONIC},
};
enum { WAYS = 6 };

struct fixture {
    const struct way *way;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
};

static struct fixture make(const struct way *way)
{
    struct fixture f = {.way = way, .mutex = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP};
    pthread_condattr_t attributes;
    CHECK_OK(pthread_condattr_init(&attributes));
    CHECK_OK(pthread_condattr_setclock(&attributes, way->attribute));
    CHECK_OK(pthread_cond_init(&f.cond, &attributes));
    CHECK_OK(pthread_condattr_destroy(&attributes));
    return f;
}

static int wait_until(struct fixture *f, struct timespec deadline)
{
    return f->way->clockwait ? pthread_cond_clockwait(&f->cond, &f->mutex, f->way->clock, &deadline)
                             : pthread_cond_timedwait(&f->cond, &f->mutex, &deadline);
}

/* Error-checking mutexes tell whether the caller owns them. */
static void must_own(struct fixture *f)
{
    CHECK_RC(pthread_mutex_lock(&f->mutex), EDEADLK);
    CHECK_RC(trylock_elsewhere(&f->mutex), EBUSY);
}

static void must_time_out(struct fixture *f, struct timespec deadline)
{
    int rc;
    while ((rc = wait_until(f, deadline)) == 0)
        ; /* spurious */
    CHECK_RC(rc, ETIMEDOUT);
    CHECK_REACHED(f->way->clock, deadline);
    must_own(f);
}

/* ---- For each way ---- */

static void *set_flag_and_signal(void *argument)
{
    struct fixture *f = ((void **)argument)[0];
    bool *flag = ((void **)argument)[1];
    nap_ms(5);
    CHECK_OK(pthread_mutex_lock(&f->mutex));
    *flag = true;
    CHECK_OK(pthread_cond_signal(&f->cond));
    CHECK_OK(pthread_mutex_unlock(&f->mutex));
    return NULL;
}

static void way_times_out(const struct way *way)
{
    struct fixture f = make(way);
    CHECK_OK(pthread_mutex_lock(&f.mutex));
    for (int ms = 0; ms <= 30; ms += 10) must_time_out(&f, time_after_ms(way->clock, ms));
    must_time_out(&f, (struct timespec){0, 0});
    must_time_out(&f, (struct timespec){1, 999999999});
    must_time_out(&f, (struct timespec){-1, 0});
    must_time_out(&f, (struct timespec){-1000000000, 999999999});
    CHECK_OK(pthread_mutex_unlock(&f.mutex));
    CHECK_OK(trylock_elsewhere(&f.mutex));
    CHECK_OK(pthread_cond_destroy(&f.cond));
}

static void way_is_signalled(const struct way *way)
{
    struct fixture f = make(way);
    for (int i = 0; i < 5; i++) {
        bool flag = false;
        CHECK_OK(pthread_mutex_lock(&f.mutex));
        pthread_t thread = thread_start(set_flag_and_signal, (void *[]){&f, &flag});
        while (!flag) CHECK_OK(wait_until(&f, time_far(way->clock)));
        must_own(&f);
        CHECK_OK(pthread_mutex_unlock(&f.mutex));
        thread_join(thread);
    }
    CHECK_OK(pthread_cond_destroy(&f.cond));
}

static void way_rejects_bad_nanoseconds(const struct way *way)
{
    static const long nanoseconds[] = {-1, 1000000000, LONG_MAX, LONG_MIN};
    struct fixture f = make(way);
    CHECK_OK(pthread_mutex_lock(&f.mutex));
    for (int i = 0; i < 4; i++) {
        struct timespec deadline = time_far(way->clock), passed = {1, nanoseconds[i]};
        deadline.tv_nsec = nanoseconds[i];
        CHECK_RC(wait_until(&f, deadline), EINVAL);
        CHECK_RC(wait_until(&f, passed), EINVAL);
        must_own(&f);
    }
    must_time_out(&f, time_after_ms(way->clock, 5));
    CHECK_OK(pthread_mutex_unlock(&f.mutex));
    CHECK_OK(pthread_cond_destroy(&f.cond));
}

#define WAY(title, index)                                                                           \
    CHECK(cond_timed, title##_times_out_owning_the_mutex) { way_times_out(&ways[index]); }          \
    CHECK(cond_timed, title##_wakes_before_a_far_deadline) { way_is_signalled(&ways[index]); }      \
    CHECK(cond_timed, title##_bad_nanoseconds_are_einval) { way_rejects_bad_nanoseconds(&ways[index]); }

WAY(timedwait_realtime, 0)
WAY(timedwait_monotonic, 1)
WAY(clockwait_realtime, 2)
WAY(clockwait_monotonic, 3)
WAY(clockwait_realtime_on_monotonic_cond, 4)
WAY(clockwait_monotonic_on_monotonic_cond, 5)

CHECK(cond_timed, unknown_clock_is_einval)
{
    static const clockid_t clocks[] = {CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID, CLOCK_BOOTTIME, -1, 1000};
    struct fixture f = make(&ways[0]);
    struct timespec deadline = time_after_ms(CLOCK_REALTIME, 1);
    CHECK_OK(pthread_mutex_lock(&f.mutex));
    for (int i = 0; i < 5; i++) {
        CHECK_RC(pthread_cond_clockwait(&f.cond, &f.mutex, clocks[i], &deadline), EINVAL);
        must_own(&f);
    }
}

/* ---- Deadlines ---- */

CHECK(cond_timed, huge_deadlines_wait_for_the_signal)
{
    static const time_t seconds[] = {INT32_MAX, 1L << 40, INT64_MAX / 1000000000, INT64_MAX};
    for (int i = 0; i < WAYS * 4; i++) {
        struct fixture f = make(&ways[i % WAYS]);
        bool flag = false;
        CHECK_OK(pthread_mutex_lock(&f.mutex));
        pthread_t thread = thread_start(set_flag_and_signal, (void *[]){&f, &flag});
        while (!flag) CHECK_OK(wait_until(&f, (struct timespec){seconds[i / WAYS], 999999999}));
        CHECK_OK(pthread_mutex_unlock(&f.mutex));
        thread_join(thread);
    }
}

CHECK(cond_timed, passed_deadlines_time_out_at_once)
{
    static const time_t seconds[] = {0, -1, INT32_MIN, INT64_MIN};
    enum { TRIES = 20, SOON_US = 10000 };
    for (int i = 0; i < WAYS * 4; i++) {
        struct fixture f = make(&ways[i % WAYS]);
        struct timespec deadline = {seconds[i / WAYS], 999};
        long took_us = LONG_MAX;
        CHECK_OK(pthread_mutex_lock(&f.mutex));
        for (int try = 0; try < TRIES && took_us > SOON_US; try++) {
            struct timespec begun = time_after_ms(CLOCK_MONOTONIC, 0);
            must_time_out(&f, deadline);
            took_us = -time_missing_us(CLOCK_MONOTONIC, begun);
        }
        CHECK_TRUE(took_us <= SOON_US, "a wait until second %lld takes %ld us", (long long)deadline.tv_sec, took_us);
        CHECK_OK(pthread_mutex_unlock(&f.mutex));
    }
}

struct staggered {
    struct fixture f;
    atomic_int tickets;
};

static void *wait_for_own_deadline(void *argument)
{
    struct staggered *s = argument;
    int me = atomic_fetch_add(&s->tickets, 1);
    CHECK_OK(pthread_mutex_lock(&s->f.mutex));
    struct timespec deadline = time_after_ms(s->f.way->clock, 10 + me * 37 % 60);
    int rc;
    while ((rc = wait_until(&s->f, deadline)) == 0)
        ;
    CHECK_RC(rc, ETIMEDOUT);
    CHECK_REACHED(s->f.way->clock, deadline);
    CHECK_OK(pthread_mutex_unlock(&s->f.mutex));
    return NULL;
}

CHECK(cond_timed, waiters_time_out_each_at_its_deadline)
{
    for (int i = 0; i < WAYS; i++) {
        struct staggered s = {.f = make(&ways[i])};
        threads_run(8, wait_for_own_deadline, &s);
        CHECK_OK(pthread_cond_destroy(&s.f.cond));
    }
}

struct late {
    struct fixture f;
    struct timespec deadline;
    struct gate holds;
};

static void *wait_and_be_late(void *argument)
{
    struct late *l = argument;
    int rc = 0;
    CHECK_OK(pthread_mutex_lock(&l->f.mutex));
    gate_open(&l->holds);
    while (rc == 0) rc = wait_until(&l->f, l->deadline);
    CHECK_RC(rc, ETIMEDOUT);
    must_own(&l->f);
    CHECK_OK(pthread_mutex_unlock(&l->f.mutex));
    return NULL;
}

/* The deadline passes, but the mutex is not to be had: the wait returns only when it is. */
CHECK(cond_timed, timed_out_wait_still_waits_for_the_mutex)
{
    bool in_time = false;
    for (long ms = 20; !in_time; ms *= 2) {
        struct late l = {.f = make(&ways[1]), .deadline = time_after_ms(CLOCK_MONOTONIC, ms)};
        pthread_t waiter = thread_start(wait_and_be_late, &l);
        gate_wait(&l.holds, 1);
        CHECK_OK(pthread_mutex_lock(&l.f.mutex));
        in_time = !time_reached(CLOCK_MONOTONIC, l.deadline); /* or try again with more */
        nap_ms(ms + 10);
        if (in_time) CHECK_RC(pthread_tryjoin_np(waiter, NULL), EBUSY);
        CHECK_OK(pthread_mutex_unlock(&l.f.mutex));
        thread_join(waiter);
    }
}

CHECK(cond_timed, recursive_mutex_keeps_its_depth)
{
    pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    struct timespec deadline = time_after_ms(CLOCK_REALTIME, 10);
    int rc;
    CHECK_OK(pthread_mutex_lock(&mutex));
    while ((rc = pthread_cond_timedwait(&cond, &mutex, &deadline)) == 0)
        ;
    CHECK_RC(rc, ETIMEDOUT);
    CHECK_RC(trylock_elsewhere(&mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_RC(pthread_mutex_unlock(&mutex), EPERM);
}

/* ---- No signal is lost to a waiter that gives up ---- */

enum { RACES = 300 };

struct race {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    struct gate begin, done;
    struct timespec deadline;
    int waiting, patient_woken;
    int impatient_rc;
    bool over;
};

static void *patient(void *argument)
{
    struct race *r = argument;
    for (int i = 1;; i++) {
        gate_wait(&r->begin, i);
        if (r->over) return NULL;
        HOT_OK(pthread_mutex_lock(&r->mutex));
        r->waiting++;
        HOT_OK(pthread_cond_wait(&r->cond, &r->mutex));
        r->patient_woken = i;
        HOT_OK(pthread_mutex_unlock(&r->mutex));
        gate_open(&r->done);
    }
}

static void *impatient(void *argument)
{
    struct race *r = argument;
    for (int i = 1;; i++) {
        gate_wait(&r->begin, i);
        if (r->over) return NULL;
        HOT_OK(pthread_mutex_lock(&r->mutex));
        r->waiting++;
        r->deadline = time_after_ms(CLOCK_MONOTONIC, 1);
        r->impatient_rc = pthread_cond_clockwait(&r->cond, &r->mutex, CLOCK_MONOTONIC, &r->deadline);
        HOT_OK(pthread_mutex_unlock(&r->mutex));
        gate_open(&r->done);
    }
}

/* One signal at about the deadline. If the timed waiter says it timed out, the signal belongs to the other one. */
CHECK(cond_timed, signal_at_the_deadline_is_not_swallowed)
{
    struct race r = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    pthread_t threads[] = {thread_start(patient, &r), thread_start(impatient, &r)};
    for (int i = 1; i <= RACES && !time_is_short(); i++) {
        HOT_OK(pthread_mutex_lock(&r.mutex));
        r.waiting = 0;
        HOT_OK(pthread_mutex_unlock(&r.mutex));
        gate_open(&r.begin);
        for (int waiting = 0; waiting < 2;) {
            HOT_OK(pthread_mutex_lock(&r.mutex));
            waiting = r.waiting;
            HOT_OK(pthread_mutex_unlock(&r.mutex));
        }
        while (time_missing_us(CLOCK_MONOTONIC, r.deadline) > 60 - i % 120)
            ;
        HOT_OK(pthread_cond_signal(&r.cond));
        gate_wait(&r.done, 2 * i - 1); /* at least one is back; the impatient one will be */
        for (int done = 0; !done;) {
            HOT_OK(pthread_mutex_lock(&r.mutex));
            bool patient_is_back = r.patient_woken == i;
            /* Answered with 0, the impatient one may have had the signal: the patient one gets another. */
            if (!patient_is_back && r.impatient_rc == 0) HOT_OK(pthread_cond_signal(&r.cond));
            HOT_OK(pthread_mutex_unlock(&r.mutex));
            done = gate_count(&r.done) == 2 * i;
        }
    }
    r.over = true;
    gate_open(&r.begin);
    for (int i = 0; i < 2; i++) thread_join(threads[i]);
}

struct bank {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int tokens, taken, patient_left;
    atomic_int tickets;
};

static void *take_with_patience(void *argument)
{
    struct bank *b = argument;
    for (int i = 0; i < 200; i++) {
        HOT_OK(pthread_mutex_lock(&b->mutex));
        while (b->tokens == 0) HOT_OK(pthread_cond_wait(&b->cond, &b->mutex));
        b->tokens--;
        b->taken++;
        HOT_OK(pthread_mutex_unlock(&b->mutex));
    }
    HOT_OK(pthread_mutex_lock(&b->mutex));
    b->patient_left--;
    HOT_OK(pthread_mutex_unlock(&b->mutex));
    return NULL;
}

/* Takes nothing, ever. Woken, it passes its signal on; after a time-out it had none to pass on. */
static void *wait_without_patience(void *argument)
{
    struct bank *b = argument;
    uint32_t random = atomic_fetch_add(&b->tickets, 1) + 1;
    HOT_OK(pthread_mutex_lock(&b->mutex));
    while (b->patient_left > 0) {
        struct timespec deadline = time_after_ms(CLOCK_REALTIME, 0);
        deadline.tv_nsec = (deadline.tv_nsec + random_next(&random) % 200000) % 1000000000;
        int rc = b->tokens ? ETIMEDOUT : pthread_cond_timedwait(&b->cond, &b->mutex, &deadline);
        if (rc != ETIMEDOUT) {
            HOT_OK(rc);
            HOT_OK(pthread_cond_signal(&b->cond));
        }
        HOT_OK(pthread_mutex_unlock(&b->mutex));
        sched_yield();
        HOT_OK(pthread_mutex_lock(&b->mutex));
    }
    HOT_OK(pthread_mutex_unlock(&b->mutex));
    return NULL;
}

CHECK(cond_timed, tokens_survive_a_crowd_that_times_out)
{
    struct bank b = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER, .patient_left = 3};
    pthread_t threads[6];
    for (int i = 0; i < 6; i++) threads[i] = thread_start(i < 3 ? take_with_patience : wait_without_patience, &b);
    for (int i = 0; i < 600; i++) {
        HOT_OK(pthread_mutex_lock(&b.mutex));
        b.tokens++;
        HOT_OK(pthread_cond_signal(&b.cond));
        HOT_OK(pthread_mutex_unlock(&b.mutex));
        if (i % 8 == 0) nap_us(50);
    }
    for (int i = 0; i < 6; i++) thread_join(threads[i]);
    CHECK_EQ(b.taken, 600);
    CHECK_EQ(b.tokens, 0);
}
