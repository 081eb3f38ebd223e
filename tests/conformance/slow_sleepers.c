/*
 * Many sleepers, and one thread, or two, stopped at any instruction of a wait for a semaphore, or of a post. n posts
 * must let n sleepers go on, wherever a thread is stopped: no permit lies beside a sleeper.
 */
#include "sem.h"
#include "slow_motion.h"

#include <stdio.h>

enum { MOST = 320 };

/* ---- Sleepers: each waits once in a round, and then for the next round ---- */

static struct crowd {
    sem_t sem;
    int count;
    struct gate round;
    atomic_int returned;
    atomic_bool over;
    pthread_t threads[MOST];
    _Atomic pid_t tids[MOST];
} crowd;

static void *sleep_in_each_round(void *argument)
{
    long me = (long)argument;
    atomic_store(&crowd.tids[me], gettid());
    for (int round = 1;; round++) {
        gate_wait(&crowd.round, round);
        if (atomic_load(&crowd.over)) return NULL;
        HOT_OK(sem_code(sem_wait(&crowd.sem)));
        atomic_fetch_add(&crowd.returned, 1);
    }
}

static void crowd_gather(int count)
{
    crowd.count = count;
    crowd.round = (struct gate){0};
    atomic_store(&crowd.over, false);
    CHECK_OK(sem_init(&crowd.sem, 0, 0));
    for (long i = 0; i < count; i++) {
        atomic_store(&crowd.tids[i], 0);
        crowd.threads[i] = thread_start(sleep_in_each_round, (void *)i);
        while (atomic_load(&crowd.tids[i]) == 0) sched_yield();
    }
}

static void crowd_dismiss(void)
{
    atomic_store(&crowd.over, true);
    gate_open(&crowd.round);
    for (int i = 0; i < crowd.count; i++) thread_join(crowd.threads[i]);
    CHECK_OK(sem_destroy(&crowd.sem));
}

static void crowd_sleeps(void)
{
    atomic_store(&crowd.returned, 0);
    gate_open(&crowd.round);
    for (int i = 0; i < crowd.count; i++) settle(crowd.tids[i]);
}

/* Posts once for each, and for so many others that sleep as well, and waits until all have gone on. */
static void crowd_goes_on(const char *what, int others)
{
    for (int i = 0; i < crowd.count + others; i++) CHECK_OK(sem_post(&crowd.sem));
    struct patience patience = {0};
    for (int now; (now = atomic_load(&crowd.returned)) < crowd.count;)
        if (!patience_lasts(&patience, now))
            FAIL("%s: %d of %d sleep beside %d permits", what, crowd.count - now, crowd.count, sem_value(&crowd.sem));
}

/* ---- What slow threads do ---- */

static void post(void)
{
    HOT_OK(sem_code(sem_post(&crowd.sem)));
}

static void wait(void)
{
    int rc;
    while ((rc = sem_code(sem_wait(&crowd.sem))) == EINTR)
        ;
    HOT_OK(rc);
}

static void wait_until_far(void)
{
    struct timespec far = time_far(CLOCK_REALTIME);
    int rc;
    while ((rc = sem_code(sem_timedwait(&crowd.sem, &far))) == EINTR)
        ;
    HOT_OK(rc);
}

static void time_out(void)
{
    struct timespec past = {1, 0};
    (void)sem_timedwait(&crowd.sem, &past);
}

static const struct deed {
    const char *name;
    void (*perform)(void);
    bool waits; /* until another thread posts */
    bool late;  /* begins when the others sleep already, and not before */
} deeds[] = {
    {"sem_wait", wait, true, false},
    {"sem_timedwait", wait_until_far, true, false},
    {"a time-out before others", time_out, false, false},
    {"a time-out behind others", time_out, false, true},
    {"sem_post", post, false, true},
};
enum { DEEDS = sizeof deeds / sizeof *deeds };

/* ---- A round ---- */

struct slow_one {
    int which;
    const struct deed *deed;
    long step;
    bool stopped;
    pthread_t thread;
    atomic_bool done;
};

static void *perform_slowly(void *argument)
{
    struct slow_one *one = argument;
    slow_is(one->which);
    slow_begin(slow_stop);
    one->deed->perform();
    slow_end();
    atomic_store(&one->done, true);
    return NULL;
}

static void begin(struct slow_one *one)
{
    atomic_store(&one->done, false);
    slow_stop_at_of(one->which, one->step);
    one->thread = thread_start(perform_slowly, one);
    one->stopped = slow_await_stop_of(one->which);
}

/* A thread that waits, and sleeps by now, is first in the list: one post, and it goes on to where it stops. */
static void wake(struct slow_one *one)
{
    if (!one->deed->waits || one->stopped || atomic_load(&one->done)) return;
    CHECK_OK(sem_post(&crowd.sem));
    one->stopped = slow_await_stop_of(one->which);
}

static void end(struct slow_one *one)
{
    slow_let_go_of(one->which);
    slow_go_on_of(one->which);
    if (one->deed->waits) CHECK_OK(sem_post(&crowd.sem)); /* the earlier one may have gone to another thread */
    thread_join(one->thread);
}

/* With these stopped, all others must get on. */
static void play(struct slow_one *ones, int count)
{
    char what[160] = "";
    for (int i = 0; i < count; i++) {
        size_t used = strlen(what);
        snprintf(what + used, sizeof what - used, "%s%s at %ld", i ? ", " : "", ones[i].deed->name, ones[i].step);
    }
    for (int i = 0; i < count; i++)
        if (!ones[i].deed->late) begin(&ones[i]);
    for (int i = 0; i < count; i++)
        if (!ones[i].deed->late) wake(&ones[i]);
    crowd_sleeps();
    for (int i = 0; i < count; i++)
        if (ones[i].deed->late) begin(&ones[i]);
    int others = 0;
    for (int i = 0; i < count; i++) others += ones[i].deed->waits && !ones[i].stopped && !atomic_load(&ones[i].done);
    crowd_goes_on(what, others);
    for (int i = 0; i < count; i++) end(&ones[i]);
    while (sem_trywait(&crowd.sem) == 0)
        ;
}

static long gcd(long a, long b)
{
    return b ? gcd(b, a % b) : a;
}

/* Lazy binding is none of our business. */
static void bind_all(void)
{
    for (int i = 0; i < DEEDS; i++) {
        CHECK_OK(sem_post(&crowd.sem));
        deeds[i].perform();
    }
    while (sem_trywait(&crowd.sem) == 0)
        ;
}

/* How many instructions it takes, with so many others. */
static long length_of(const struct deed *deed)
{
    struct slow_one one = {.deed = deed, .step = 1000000};
    play(&one, 1);
    return slow_steps_of(0);
}

/* Stopped at one instruction after another: at each if there is time, else at some that are spread evenly. */
static void one_stopped(const struct deed *deed, int count)
{
    crowd_gather(count);
    bind_all();
    long length = length_of(deed), stride = length * 5 / 13 | 1;
    while (gcd(stride, length) != 1) stride++;
    for (long i = 0; i < length && (slow_everything() || !time_is_short()); i++) {
        struct slow_one one = {.deed = deed, .step = 1 + i * stride % length};
        play(&one, 1);
    }
    crowd_dismiss();
}

#define STOPPED(title, index, count) \
    CHECK(slow_motion, title) { one_stopped(&deeds[index], count); }

STOPPED(sem_wait_stopped_anywhere_before_48, 0, 48)
STOPPED(sem_timedwait_stopped_anywhere_before_48, 1, 48)
STOPPED(sem_time_out_stopped_anywhere_before_48, 2, 48)
STOPPED(sem_time_out_stopped_anywhere_behind_48, 3, 48)
STOPPED(sem_post_stopped_anywhere_with_48_asleep, 4, 48)
STOPPED(sem_wait_stopped_anywhere_before_hundreds, 0, MOST)
STOPPED(sem_time_out_stopped_anywhere_behind_hundreds, 3, MOST)
STOPPED(sem_post_stopped_anywhere_with_hundreds_asleep, 4, MOST)

static void play_both(int one, long step, int other, long other_step)
{
    struct slow_one both[] = {
        {.which = 0, .deed = &deeds[one], .step = step},
        {.which = 1, .deed = &deeds[other], .step = other_step},
    };
    play(both, 2);
}

/* Two stopped, at any two instructions. Pairs are drawn, the same in each run; with FLASHLOCK_FULL each pair has its
 * turn. */
static void two_stopped(int index)
{
    enum { SOME = 6 };
    long steps[DEEDS];
    crowd_gather(SOME);
    bind_all();
    for (int i = 0; i < DEEDS; i++) steps[i] = length_of(&deeds[i]);
    if (slow_everything()) {
        for (int other = index; other < DEEDS; other++)
            for (long a = 1; a <= steps[index]; a++)
                for (long b = 1; b <= steps[other]; b++) {
                    play_both(index, a, other, b);
                }
    } else {
        uint32_t random = 1 + index;
        for (int other = 0; !time_is_short(); other = (other + 1) % DEEDS) {
            long a = 1 + random_next(&random) % steps[index], b = 1 + random_next(&random) % steps[other];
            play_both(index, a, other, b);
        }
    }
    crowd_dismiss();
}

CHECK(slow_motion, sem_wait_and_another_stopped_anywhere) { two_stopped(0); }
CHECK(slow_motion, sem_timedwait_and_another_stopped_anywhere) { two_stopped(1); }
CHECK(slow_motion, sem_time_out_before_others_and_another_stopped_anywhere) { two_stopped(2); }
CHECK(slow_motion, sem_time_out_behind_others_and_another_stopped_anywhere) { two_stopped(3); }
CHECK(slow_motion, sem_post_and_another_stopped_anywhere) { two_stopped(4); }
