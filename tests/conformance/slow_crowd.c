/* The machinery of slow_crowd.h. */
#include "slow_crowd.h"

#include <stdio.h>

enum { TURNS = 6 };

static struct crowd {
    const struct slow_scene *scene;
    int count, present; /* of these so many take part in the round */
    struct gate round;
    atomic_int done;
    atomic_bool over;
    pthread_t threads[SLOW_CROWD];
    _Atomic pid_t tids[SLOW_CROWD];
} crowd;

static void *take_in_each_round(void *argument)
{
    long me = (long)argument;
    atomic_store(&crowd.tids[me], gettid());
    for (int round = 1;; round++) {
        gate_wait(&crowd.round, round);
        if (atomic_load(&crowd.over)) return NULL;
        if (me < crowd.present) crowd.scene->take[me]();
        atomic_fetch_add(&crowd.done, 1);
    }
}

static void gather(const struct slow_scene *scene)
{
    crowd.scene = scene;
    scene->make();
    for (int i = 0; i < scene->count; i++) { /* lazy binding is none of our business */
        const struct slow_deed *deed = &scene->deeds[i];
        if (deed->prepare) deed->prepare();
        deed->perform();
        if (deed->finish) deed->finish();
    }
    for (; crowd.count < SLOW_CROWD && scene->take[crowd.count]; crowd.count++) {
        crowd.threads[crowd.count] = thread_start(take_in_each_round, (void *)(long)crowd.count);
        while (atomic_load(&crowd.tids[crowd.count]) == 0) sched_yield();
    }
}

static void dismiss(void)
{
    atomic_store(&crowd.over, true);
    gate_open(&crowd.round);
    for (int i = 0; i < crowd.count; i++) thread_join(crowd.threads[i]);
}

/* ---- A round ---- */

struct slow_one {
    int which;
    const struct slow_deed *deed;
    long step;
    pthread_t thread;
    struct gate ready, act;
};

static void *perform_slowly(void *argument)
{
    struct slow_one *one = argument;
    slow_is(one->which);
    if (one->deed->prepare) one->deed->prepare();
    gate_open(&one->ready);
    gate_wait(&one->act, 1);
    slow_begin(slow_stop);
    one->deed->perform();
    slow_end();
    if (one->deed->finish) one->deed->finish();
    atomic_fetch_add(&crowd.done, 1);
    return NULL;
}

static void describe(char *what, size_t room, const struct slow_one *ones, int count)
{
    *what = 0;
    for (int i = 0; i < count; i++) {
        size_t used = strlen(what);
        snprintf(what + used, room - used, "%s%s at %ld", i ? ", " : "", ones[i].deed->name, ones[i].step);
    }
}

/* Each of the crowd goes on, or all sleep. (One that naps may be taken for one that sleeps: the round goes on earlier.)
 */
static void go_on_or_sleep(const char *what, int others)
{
    struct patience patience = {0};
    for (int asleep = 0; asleep < 3 && atomic_load(&crowd.done) < others;) {
        if (!patience_lasts(&patience, atomic_load(&crowd.done))) FAIL("%s: others neither go on nor sleep", what);
        asleep = others_look().awake ? 0 : asleep + 1;
    }
}

static void all_go_on(const char *what, int all)
{
    struct patience patience = {0};
    for (int now; (now = atomic_load(&crowd.done)) < all;)
        if (!patience_lasts(&patience, now)) FAIL("%s: %d of %d never have the lock", what, all - now, all);
}

/* Holds the lock while the others come. A thread of its own, since its release may have to wait for a slow one. */
struct holder {
    void (*hold)(void);
    pthread_t thread;
    struct gate holds, let_go;
};

static void *hold_and_let_go(void *argument)
{
    struct holder *holder = argument;
    if (holder->hold) holder->hold();
    gate_open(&holder->holds);
    gate_wait(&holder->let_go, 1);
    if (holder->hold) crowd.scene->let_go();
    atomic_fetch_add(&crowd.done, 1);
    return NULL;
}

/* By turns, the lock is held in the one way and in the other, with the crowd and without it: a crowd that is woken may
 * wake the thread that was overlooked. Without it, the holder lets go before the slow ones go on, or after. */
static void play(struct slow_one *ones, int count, int turn)
{
    char what[160];
    bool prepared = false;
    struct holder holder = {0};
    describe(what, sizeof what, ones, count);
    bool has_company = turn / 2 % 3 == 0, lets_go_last = turn / 2 % 3 == 2;
    crowd.present = has_company ? crowd.count : 0;
    atomic_store(&crowd.done, 0);
    for (int i = 0; i < count; i++) {
        slow_stop_at_of(ones[i].which, ones[i].step);
        ones[i].thread = thread_start(perform_slowly, &ones[i]);
        gate_wait(&ones[i].ready, 1);
        prepared |= ones[i].deed->prepare != NULL;
    }
    if (!prepared) holder.hold = crowd.scene->hold[turn % 2];
    holder.thread = thread_start(hold_and_let_go, &holder);
    gate_wait(&holder.holds, 1);
    gate_open(&crowd.round);
    for (int i = 0; i < crowd.count; i++) settle(crowd.tids[i]);
    for (int i = 0; i < count; i++) {
        gate_open(&ones[i].act);
        (void)slow_await_stop_of(ones[i].which); /* or it sleeps, or has ended */
    }
    if (!lets_go_last) gate_open(&holder.let_go);
    go_on_or_sleep(what, crowd.count + 1);
    for (int i = 0; i < count; i++) {
        slow_let_go_of(ones[i].which);
        slow_go_on_of(ones[i].which);
        slow_settle_of(ones[i].which);
    }
    if (lets_go_last) gate_open(&holder.let_go);
    all_go_on(what, crowd.count + 1 + count);
    thread_join(holder.thread);
    for (int i = 0; i < count; i++) thread_join(ones[i].thread);
    crowd.scene->must_be_free();
}

/* How many instructions it takes up to where it sleeps, if it does. */
static long length_of(const struct slow_deed *deed)
{
    enum { LONGEST = 4000 }; /* a thread that polls for longer is stopped before */
    struct slow_one one = {.deed = deed, .step = LONGEST};
    play(&one, 1, 0);
    long steps = slow_steps_of(0);
    return steps < LONGEST ? steps : LONGEST;
}

static long gcd(long a, long b)
{
    return b ? gcd(b, a % b) : a;
}

void slow_one_stopped(const struct slow_scene *scene, int deed)
{
    gather(scene);
    long length = length_of(&scene->deeds[deed]), stride = length * 5 / 13 | 1;
    while (gcd(stride, length) != 1) stride++;
    for (long i = 0; i < TURNS * length && (slow_everything() || !time_is_short()); i++) {
        struct slow_one one = {.deed = &scene->deeds[deed], .step = 1 + i * stride % length};
        play(&one, 1, i / length + i);
    }
    dismiss();
}

/* One of its instructions; or none, so that it is asleep, if it sleeps. */
static long draw_step(uint32_t *random, long steps)
{
    return 1 + random_next(random) % (steps + 1 + steps / 3);
}

static void play_both(const struct slow_deed *one, long step, const struct slow_deed *other, long other_step, int turn)
{
    struct slow_one both[] = {
        {.which = 0, .deed = one, .step = step},
        {.which = 1, .deed = other, .step = other_step},
    };
    if (one->prepare && other->prepare && (one->alone || other->alone)) return;
    play(both, 2, turn);
}

void slow_two_stopped(const struct slow_scene *scene, int first, int last)
{
    long steps[scene->count];
    gather(scene);
    for (int i = 0; i < scene->count; i++) steps[i] = length_of(&scene->deeds[i]);
    uint32_t random = 1 + first;
    if (slow_everything()) {
        for (int one = first; one <= last; one++)
            for (int other = 0; other < scene->count; other++)
                for (long a = 1; a <= steps[one]; a++) {
                    long b = draw_step(&random, steps[other]);
                    play_both(&scene->deeds[one], a, &scene->deeds[other], b, random_next(&random) % TURNS);
                }
    } else {
        for (int turn = 0; !time_is_short(); turn++) {
            int one = first + turn % (last - first + 1), other = random_next(&random) % scene->count;
            long a = draw_step(&random, steps[one]), b = draw_step(&random, steps[other]);
            play_both(&scene->deeds[one], a, &scene->deeds[other], b, random_next(&random) % TURNS);
        }
    }
    dismiss();
}
