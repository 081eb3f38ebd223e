/*
 * A condition variable in slow motion: two threads, each stopped at any instruction of a wait, a time-out, a signal or
 * a broadcast, while others sleep. The one that stopped first goes on, then the other. As many tokens are put down as
 * threads wait, with a signal for each: every thread must take one, whatever the two were doing.
 */
#include "slow_motion.h"

#include <stdio.h>

enum { SLEEPERS = 3, SHARE = 23 };

static struct table {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int tokens;
    struct gate round;
    atomic_int taken;
    atomic_bool over;
    pthread_t threads[SLEEPERS];
    _Atomic pid_t tids[SLEEPERS];
} table;

/* ---- What threads do ---- */

static void take(const struct timespec *until)
{
    HOT_OK(pthread_mutex_lock(&table.mutex));
    while (table.tokens == 0)
        HOT_OK(until ? pthread_cond_timedwait(&table.cond, &table.mutex, until)
                     : pthread_cond_wait(&table.cond, &table.mutex));
    table.tokens--;
    HOT_OK(pthread_mutex_unlock(&table.mutex));
    atomic_fetch_add(&table.taken, 1);
}

static void wait(void)
{
    take(NULL);
}

static void timed_wait(void)
{
    struct timespec far = time_far(CLOCK_REALTIME);
    take(&far);
}

/* Takes no token: a signal that it was given it passes on. */
static void time_out(void)
{
    struct timespec past = {1, 0};
    HOT_OK(pthread_mutex_lock(&table.mutex));
    int rc = pthread_cond_timedwait(&table.cond, &table.mutex, &past);
    if (rc == 0)
        HOT_OK(pthread_cond_signal(&table.cond));
    else
        HOT_RC(rc, ETIMEDOUT);
    HOT_OK(pthread_mutex_unlock(&table.mutex));
}

static void put(int (*call)(pthread_cond_t *), bool inside)
{
    HOT_OK(pthread_mutex_lock(&table.mutex));
    table.tokens++;
    if (inside) HOT_OK(call(&table.cond));
    HOT_OK(pthread_mutex_unlock(&table.mutex));
    if (!inside) HOT_OK(call(&table.cond));
}

static void signal_inside(void)
{
    put(pthread_cond_signal, true);
}

static void signal_outside(void)
{
    put(pthread_cond_signal, false);
}

static void broadcast_inside(void)
{
    put(pthread_cond_broadcast, true);
}

static void broadcast_outside(void)
{
    put(pthread_cond_broadcast, false);
}

static const struct deed {
    const char *name;
    void (*perform)(void);
    int takes, puts;
} deeds[] = {
    {"a wait", wait, 1, 0},
    {"a timed wait", timed_wait, 1, 0},
    {"a time-out", time_out, 0, 0},
    {"a signal", signal_inside, 0, 1},
    {"a signal outside", signal_outside, 0, 1},
    {"a broadcast", broadcast_inside, 0, 1},
    {"a broadcast outside", broadcast_outside, 0, 1},
};
enum { DEEDS = sizeof deeds / sizeof *deeds };

static void *take_in_each_round(void *argument)
{
    long me = (long)argument;
    atomic_store(&table.tids[me], gettid());
    for (int round = 1;; round++) {
        gate_wait(&table.round, round);
        if (atomic_load(&table.over)) return NULL;
        wait();
    }
}

static void lay_the_table(void)
{
    mutex_make(&table.mutex, KIND_DEFAULT);
    CHECK_OK(pthread_cond_init(&table.cond, NULL));
    for (long i = 0; i < SLEEPERS; i++) {
        table.threads[i] = thread_start(take_in_each_round, (void *)i);
        while (atomic_load(&table.tids[i]) == 0) sched_yield();
    }
    time_out(); /* lazy binding */
    broadcast_inside();
    signal_inside();
    wait();
    timed_wait();
}

static void clear_the_table(void)
{
    atomic_store(&table.over, true);
    gate_open(&table.round);
    for (int i = 0; i < SLEEPERS; i++) thread_join(table.threads[i]);
    CHECK_OK(pthread_cond_destroy(&table.cond));
    CHECK_OK(pthread_mutex_destroy(&table.mutex));
}

/* ---- A round ---- */

struct slow_one {
    int which;
    const struct deed *deed;
    long step;
    pthread_t thread;
};

static void *perform_slowly(void *argument)
{
    struct slow_one *one = argument;
    slow_is(one->which);
    slow_begin(slow_stop);
    one->deed->perform();
    slow_end();
    return NULL;
}

static void begin(struct slow_one *one)
{
    slow_stop_at_of(one->which, one->step);
    one->thread = thread_start(perform_slowly, one);
    (void)slow_await_stop_of(one->which); /* or it sleeps, or has ended */
}

static void all_take(const char *what, int takers)
{
    struct patience patience = {0};
    for (int now; (now = atomic_load(&table.taken)) < takers;)
        if (!patience_lasts(&patience, now)) FAIL("%s: %d of %d sleep beside tokens", what, takers - now, takers);
}

static void play(struct slow_one *ones, int count)
{
    char what[160] = "";
    int takers = SLEEPERS, tokens = 0;
    for (int i = 0; i < count; i++) {
        size_t used = strlen(what);
        snprintf(what + used, sizeof what - used, "%s%s at %ld", i ? ", " : "", ones[i].deed->name, ones[i].step);
        takers += ones[i].deed->takes;
        tokens += ones[i].deed->puts;
    }
    atomic_store(&table.taken, 0);
    gate_open(&table.round);
    for (int i = 0; i < SLEEPERS; i++) settle(table.tids[i]);
    for (int i = 0; i < count; i++) begin(&ones[i]);
    for (int i = 0; i < count; i++) {
        slow_let_go_of(ones[i].which);
        slow_go_on_of(ones[i].which);
    }
    for (; tokens < takers; tokens++) signal_inside();
    all_take(what, takers);
    for (int i = 0; i < count; i++) thread_join(ones[i].thread);
    CHECK_EQ(table.tokens, tokens - takers);
    table.tokens = 0;
}

/* How many instructions it takes up to where it sleeps, if it does. */
static long length_of(const struct deed *deed)
{
    struct slow_one one = {.deed = deed, .step = 1000000};
    play(&one, 1);
    return slow_steps_of(0);
}

static void play_both(const struct deed *one, long step, const struct deed *other, long other_step)
{
    struct slow_one both[] = {
        {.which = 0, .deed = one, .step = step},
        {.which = 1, .deed = other, .step = other_step},
    };
    play(both, 2);
}

/*
 * Pairs are drawn, the same in each run. With FLASHLOCK_FULL, which takes about an hour for a lock: each instruction of
 * the one, with one of SHARE of the other's, so that each of them has its turn. All pairs would take a day for a lock.
 */
static void two_stopped(int first, int last)
{
    long steps[DEEDS];
    lay_the_table();
    for (int i = 0; i < DEEDS; i++) steps[i] = length_of(&deeds[i]);
    if (slow_everything()) {
        for (int one = first; one <= last; one++)
            for (int other = 0; other < DEEDS; other++)
                for (long a = 1; a <= steps[one]; a++)
                    for (long b = 1 + a % SHARE; b <= steps[other]; b += SHARE)
                        play_both(&deeds[one], a, &deeds[other], b);
    } else {
        uint32_t random = 1 + first;
        for (int turn = 0; !time_is_short(); turn++) {
            int one = first + turn % (last - first + 1), other = turn / (last - first + 1) % DEEDS;
            long a = 1 + random_next(&random) % steps[one], b = 1 + random_next(&random) % steps[other];
            play_both(&deeds[one], a, &deeds[other], b);
        }
    }
    clear_the_table();
}

CHECK(slow_motion, cond_waits_and_another_stopped_anywhere) { two_stopped(0, 1); }
CHECK(slow_motion, cond_time_out_and_another_stopped_anywhere) { two_stopped(2, 2); }
CHECK(slow_motion, cond_signals_and_another_stopped_anywhere) { two_stopped(3, 6); }
