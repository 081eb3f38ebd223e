/* Condition variables in slow motion: signals, cancels and destruction between any two instructions of a wait. */
#include "slow_motion.h"

#include <sys/mman.h>
#include <sys/syscall.h>

/*
 * A slow waiter and a partner. After each step the waiter lets the partner try for the mutex; the partner gets it once
 * the wait has released it, lets `delay` more steps pass, and acts, once. Sweeping the delay visits every place in the
 * wait.
 */
struct stage {
    pthread_mutex_t mutex;
    pthread_cond_t *cond;
    bool go, returned, cleaned;
    int rc; /* of the wait */
    pthread_t waiter, patient;
    bool patient_waits, patient_woken;
    struct timespec deadline;
    bool shared; /* the condition variable is process-shared */
    int (*wait)(struct stage *);
    void (*act)(struct stage *); /* with the mutex; releases it, and says answered() */
    long delay, seen_free;
};

static struct stage *stage;
static struct gate ask, answer;
static atomic_bool acted;

static void answered(void)
{
    gate_open(&answer);
}

static void *partner(void *unused)
{
    for (int asked = 1; !atomic_load(&acted); asked++) {
        gate_wait(&ask, asked);
        int rc = atomic_load(&acted) ? EBUSY : pthread_mutex_trylock(&stage->mutex);
        if (rc == 0 && stage->seen_free++ >= stage->delay) {
            atomic_store(&acted, true);
            stage->act(stage);
            continue;
        }
        if (rc == 0)
            HOT_OK(pthread_mutex_unlock(&stage->mutex));
        else
            HOT_RC(rc, EBUSY);
        answered();
    }
    return unused;
}

/* The partner may have to wait for something the slow one has in hand: it is not waited for longer than this. */
static void let_partner_try(void)
{
    if (atomic_load(&acted)) {
        /* Not nap_us: a cancellation point in this handler would end the wait anywhere, with the mutex released,
         * too. */
        struct timespec moment = {0, 1000};
        syscall(SYS_nanosleep, &moment, NULL);
        return;
    }
    int asked = gate_count(&ask) + 1;
    gate_open(&ask);
    struct timespec patience = time_after_ms(CLOCK_MONOTONIC, 2);
    while (gate_count(&answer) < asked && !time_reached(CLOCK_MONOTONIC, patience)) sched_yield();
}

static void clean(void *argument)
{
    struct stage *s = argument;
    slow_end(); /* a trap while pthread_create blocks all signals would kill us */
    s->cleaned = true;
    CHECK_RC(trylock_elsewhere(&s->mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(&s->mutex));
}

static void *wait_slowly(void *argument)
{
    struct stage *s = argument;
    s->waiter = pthread_self(); /* the partner may need it before our creator has stored it */
    HOT_OK(pthread_mutex_lock(&s->mutex));
    pthread_cleanup_push(clean, s);
    slow_begin(let_partner_try);
    s->rc = s->wait(s);
    slow_end();
    s->returned = true;
    pthread_cleanup_pop(0);
    HOT_OK(pthread_mutex_unlock(&s->mutex));
    return NULL;
}

static void *wait_patiently(void *argument)
{
    struct stage *s = argument;
    HOT_OK(pthread_mutex_lock(&s->mutex));
    s->patient_waits = true;
    HOT_OK(pthread_cond_wait(s->cond, &s->mutex));
    s->patient_woken = true;
    HOT_OK(pthread_mutex_unlock(&s->mutex));
    return NULL;
}

/* Until the wait is over, or asleep before the delay was: then the partner is made to act, and the sweep is done. */
static bool play_to_the_end(struct stage *s)
{
    long seen = -1;
    bool in_time = true;
    for (int quiet_ms = 0; !atomic_load(&acted); quiet_ms++) {
        nap_us(500);
        if (slow_steps() != seen) quiet_ms = 0;
        seen = slow_steps();
        if (quiet_ms < 30) continue;
        in_time = false;
        s->delay = 0;
        for (; !atomic_load(&acted); nap_us(100)) gate_open(&ask);
    }
    return in_time;
}

/* One wait; true if the partner acted while it was under way. */
static bool perform(struct stage *s, bool with_patient)
{
    stage = s;
    ask = answer = (struct gate){0};
    atomic_store(&acted, false);
    if (with_patient) {
        s->patient = thread_start(wait_patiently, s);
        for (bool waits = false; !waits; sched_yield()) {
            HOT_OK(pthread_mutex_lock(&s->mutex));
            waits = s->patient_waits;
            HOT_OK(pthread_mutex_unlock(&s->mutex));
        }
    }
    pthread_t thread = thread_start(partner, NULL);
    s->waiter = thread_start(wait_slowly, s);
    bool in_time = play_to_the_end(s);
    thread_join(s->waiter);
    thread_join(thread);
    return in_time;
}

static void make_condition(pthread_cond_t *cond, bool shared)
{
    pthread_condattr_t attr;
    CHECK_OK(pthread_condattr_init(&attr));
    CHECK_OK(pthread_condattr_setpshared(&attr, shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE));
    CHECK_OK(pthread_cond_init(cond, &attr));
    CHECK_OK(pthread_condattr_destroy(&attr));
}

/* Performs with longer and longer delays until the wait is asleep before. `judge` looks at each end. */
static void sweep(struct stage model, bool with_patient, void (*judge)(struct stage *))
{
    static char *page;
    bool in_time = true;
    for (long delay = 0; in_time && !time_is_short(); delay += 1 + delay / 16) {
        struct stage s = model;
        if (!page) page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK_EQ(mprotect(page, 4096, PROT_READ | PROT_WRITE), 0);
        CHECK_OK(pthread_mutex_init(&s.mutex, NULL));
        s.cond = (pthread_cond_t *)page;
        make_condition(s.cond, s.shared);
        s.deadline = (struct timespec){1, 0};
        CHECK_OK(pthread_mutex_lock(&s.mutex)); /* a dry run at full speed: lazy binding */
        CHECK_RC(pthread_cond_timedwait(s.cond, &s.mutex, &s.deadline), ETIMEDOUT);
        CHECK_OK(pthread_mutex_unlock(&s.mutex));
        s.delay = delay;
        in_time = perform(&s, with_patient);
        judge(&s);
    }
}

/* ---- Ways to wait ---- */

static int wait_for_go(struct stage *s)
{
    int rc = 0;
    while (!s->go && rc == 0) rc = pthread_cond_wait(s->cond, &s->mutex);
    return rc;
}

static int timedwait_for_go(struct stage *s)
{
    struct timespec far = time_far(CLOCK_REALTIME);
    int rc = 0;
    while (!s->go && rc == 0) rc = pthread_cond_timedwait(s->cond, &s->mutex, &far);
    return rc;
}

/* Shows which thread consumed the signal. */
static int wait_once(struct stage *s)
{
    return pthread_cond_wait(s->cond, &s->mutex);
}

static int time_out(struct stage *s)
{
    return pthread_cond_timedwait(s->cond, &s->mutex, &s->deadline);
}

/* ---- Ways to act ---- */

static void signal_inside(struct stage *s)
{
    s->go = true;
    HOT_OK(pthread_cond_signal(s->cond));
    HOT_OK(pthread_mutex_unlock(&s->mutex));
    answered();
}

static void signal_outside(struct stage *s)
{
    s->go = true;
    HOT_OK(pthread_mutex_unlock(&s->mutex));
    HOT_OK(pthread_cond_signal(s->cond));
    answered();
}

static void broadcast_and_destroy(struct stage *s)
{
    s->go = true;
    HOT_OK(pthread_cond_broadcast(s->cond));
    HOT_OK(pthread_mutex_unlock(&s->mutex));
    answered(); /* destroying may wait for the waiter to leave */
    HOT_OK(pthread_cond_destroy(s->cond));
    HOT_OK(mprotect(s->cond, 4096, PROT_NONE));
}

static void cancel(struct stage *s)
{
    HOT_OK(pthread_cancel(s->waiter));
    slow_let_go();
    HOT_OK(pthread_mutex_unlock(&s->mutex));
    answered();
}

static void signal_and_cancel(struct stage *s)
{
    HOT_OK(pthread_cond_signal(s->cond));
    cancel(s);
}

static void cancel_and_signal(struct stage *s)
{
    HOT_OK(pthread_cancel(s->waiter));
    slow_let_go();
    HOT_OK(pthread_cond_signal(s->cond));
    HOT_OK(pthread_mutex_unlock(&s->mutex));
    answered();
}

/* ---- Judges ---- */

static void must_have_woken(struct stage *s)
{
    CHECK_TRUE(s->returned && s->go, "the wait returned without its reason");
    CHECK_OK(s->rc);
    CHECK_OK(trylock_elsewhere(&s->mutex));
}

/* One signal, two waiters. Unless the slow one returned 0 it had no part in it, and the patient one wakes. */
static void patient_must_wake(struct stage *s)
{
    HOT_OK(pthread_mutex_lock(&s->mutex));
    if (s->returned && s->rc == 0) HOT_OK(pthread_cond_signal(s->cond));
    HOT_OK(pthread_mutex_unlock(&s->mutex));
    thread_join(s->patient); /* or hangs */
    if (s->returned && s->rc != 0) CHECK_RC(s->rc, ETIMEDOUT);
    CHECK_TRUE(s->returned != s->cleaned, "cancelled and returned, or neither");
    CHECK_OK(trylock_elsewhere(&s->mutex));
    CHECK_OK(pthread_cond_destroy(s->cond));
}

static void must_be_cancelled(struct stage *s)
{
    CHECK_TRUE(s->cleaned && !s->returned, "the wait was not cancelled");
    CHECK_OK(trylock_elsewhere(&s->mutex));
    CHECK_OK(pthread_cond_destroy(s->cond));
}

/* ---- The checks ---- */

CHECK(slow_motion, signal_at_any_point_of_a_wait)
{
    sweep((struct stage){.wait = wait_for_go, .act = signal_inside}, false, must_have_woken);
}

CHECK(slow_motion, signal_outside_at_any_point_of_a_wait)
{
    sweep((struct stage){.wait = wait_for_go, .act = signal_outside}, false, must_have_woken);
}

CHECK(slow_motion, signal_at_any_point_of_a_timedwait)
{
    sweep((struct stage){.wait = timedwait_for_go, .act = signal_inside}, false, must_have_woken);
}

CHECK(slow_motion, broadcast_and_destruction_at_any_point_of_a_wait)
{
    sweep((struct stage){.wait = wait_for_go, .act = broadcast_and_destroy}, false, must_have_woken);
}

CHECK(slow_motion, broadcast_and_destruction_at_any_point_of_a_timedwait)
{
    sweep((struct stage){.wait = timedwait_for_go, .act = broadcast_and_destroy}, false, must_have_woken);
}

/* A private mutex, and a condition variable that processes share. */

CHECK(slow_motion, signal_at_any_point_of_a_wait_on_a_shared_condition)
{
    sweep((struct stage){.shared = true, .wait = wait_for_go, .act = signal_inside}, false, must_have_woken);
}

CHECK(slow_motion, broadcast_and_destruction_at_any_point_of_a_wait_on_a_shared_condition)
{
    sweep((struct stage){.shared = true, .wait = wait_for_go, .act = broadcast_and_destroy}, false, must_have_woken);
}

CHECK(slow_motion, cancel_at_any_point_of_a_wait_on_a_shared_condition)
{
    sweep((struct stage){.shared = true, .wait = wait_for_go, .act = cancel}, false, must_be_cancelled);
}

CHECK(slow_motion, signal_at_any_point_of_a_time_out_is_not_swallowed)
{
    sweep((struct stage){.wait = time_out, .act = signal_inside}, true, patient_must_wake);
}

CHECK(slow_motion, signal_outside_at_any_point_of_a_time_out_is_not_swallowed)
{
    sweep((struct stage){.wait = time_out, .act = signal_outside}, true, patient_must_wake);
}

CHECK(slow_motion, cancel_at_any_point_of_a_wait)
{
    sweep((struct stage){.wait = wait_for_go, .act = cancel}, false, must_be_cancelled);
}

CHECK(slow_motion, signal_and_cancel_at_any_point_of_a_wait)
{
    sweep((struct stage){.wait = wait_once, .act = signal_and_cancel}, true, patient_must_wake);
}

CHECK(slow_motion, cancel_and_signal_at_any_point_of_a_wait)
{
    sweep((struct stage){.wait = wait_once, .act = cancel_and_signal}, true, patient_must_wake);
}
