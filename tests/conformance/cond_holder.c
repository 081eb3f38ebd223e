/*
 * Signals by the thread that holds the waiters' mutex. Nobody can go on before it is released, so an implementation may
 * leave the wake-up to the release, or move the waiter to the mutex. Whatever it does: a waiter goes on however the
 * mutex is released, and the condition variable can be destroyed before, because nobody is blocked on it any more.
 */
#include "conformance.h"

struct scene {
    pthread_mutex_t mutex;
    pthread_cond_t cond, other;
    int waiting, tokens, left; /* with the mutex */
    bool acknowledges;
};

static void *take_a_token(void *argument)
{
    struct scene *s = argument;
    CHECK_OK(pthread_mutex_lock(&s->mutex));
    s->waiting++;
    while (s->tokens == 0) CHECK_OK(pthread_cond_wait(&s->cond, &s->mutex));
    s->tokens--;
    s->left++;
    if (s->acknowledges) CHECK_OK(pthread_cond_signal(&s->other));
    CHECK_OK(pthread_mutex_unlock(&s->mutex));
    return NULL;
}

/* Starts waiters. When this returns, the mutex is held, and all of them wait. */
static void start_with(struct scene *s, int kind, pthread_t *threads, int count, void *(*body)(void *))
{
    mutex_make(&s->mutex, kind);
    CHECK_OK(pthread_cond_init(&s->cond, NULL));
    for (int i = 0; i < count; i++) threads[i] = thread_start(body, s);
    for (;;) {
        CHECK_OK(pthread_mutex_lock(&s->mutex));
        if (s->waiting == count) return;
        CHECK_OK(pthread_mutex_unlock(&s->mutex));
        nap_us(100);
    }
}

static void start(struct scene *s, int kind, pthread_t *threads, int count)
{
    start_with(s, kind, threads, count, take_a_token);
}

typedef int wake_up(pthread_cond_t *);

static void end(struct scene *s, pthread_t *threads, int count)
{
    for (int i = 0; i < count; i++) thread_join(threads[i]);
    CHECK_EQ(s->left, count);
    CHECK_OK(pthread_mutex_destroy(&s->mutex));
}

static void destroy(struct scene *s)
{
    CHECK_OK(pthread_cond_destroy(&s->cond));
    memset(&s->cond, 0xA5, sizeof s->cond); /* nobody may look there again */
}

static void *destroy_elsewhere(void *scene)
{
    destroy(scene);
    return NULL;
}

static void destroyed_by_the_holder(int kind, wake_up *wake)
{
    static struct scene s;
    pthread_t waiter;
    start(&s, kind, &waiter, 1);
    s.tokens = 1;
    CHECK_OK(wake(&s.cond));
    destroy(&s);
    CHECK_OK(pthread_mutex_unlock(&s.mutex));
    end(&s, &waiter, 1);
}

/* The holder even waits for that. */
static void destroyed_while_held(int kind, wake_up *wake)
{
    static struct scene s;
    pthread_t waiter;
    start(&s, kind, &waiter, 1);
    s.tokens = 1;
    CHECK_OK(wake(&s.cond));
    thread_join(thread_start(destroy_elsewhere, &s));
    CHECK_OK(pthread_mutex_unlock(&s.mutex));
    end(&s, &waiter, 1);
}

enum { SOME = 5 };

static void all_woken(int kind, int calls, wake_up *wake)
{
    static struct scene s;
    pthread_t waiters[SOME];
    start(&s, kind, waiters, SOME);
    s.tokens = SOME;
    for (int i = 0; i < calls; i++) CHECK_OK(wake(&s.cond));
    destroy(&s);
    CHECK_OK(pthread_mutex_unlock(&s.mutex));
    end(&s, waiters, SOME);
}

/* The release that wakes is that of a wait: at a condition variable of this process, or at one that processes share. */
static void released_by_a_wait(int kind, int shared)
{
    static struct scene s = {.acknowledges = true};
    pthread_t waiter;
    pthread_condattr_t attr;
    CHECK_OK(pthread_condattr_init(&attr));
    CHECK_OK(pthread_condattr_setpshared(&attr, shared));
    CHECK_OK(pthread_cond_init(&s.other, &attr));
    start(&s, kind, &waiter, 1);
    s.tokens = 1;
    CHECK_OK(pthread_cond_signal(&s.cond));
    while (s.left == 0) CHECK_OK(pthread_cond_wait(&s.other, &s.mutex));
    CHECK_OK(pthread_mutex_unlock(&s.mutex));
    end(&s, &waiter, 1);
    destroy(&s);
    CHECK_OK(pthread_cond_destroy(&s.other));
}

/* A child of a holder that has signalled: the waiter is not there. Mutex and condition variable can be used. */
static void forked(int kind)
{
    static struct scene s;
    pthread_t waiter, childs[SOME];
    start(&s, kind, &waiter, 1);
    s.tokens = 1;
    CHECK_OK(pthread_cond_signal(&s.cond));
    pid_t child = fork();
    if (child == 0) {
        s.tokens = s.waiting = 0;
        if (kind == PTHREAD_MUTEX_RECURSIVE || kind == PTHREAD_MUTEX_ERRORCHECK)
            mutex_make(&s.mutex, kind); /* the owner is another thread now, says POSIX */
        else
            CHECK_OK(pthread_mutex_unlock(&s.mutex));
        start(&s, kind, childs, SOME);
        s.tokens = SOME;
        for (int i = 0; i < SOME; i++) CHECK_OK(pthread_cond_signal(&s.cond));
        CHECK_OK(pthread_mutex_unlock(&s.mutex));
        end(&s, childs, SOME);
        _exit(0);
    }
    CHECK_EQ(process_status(child), 0);
    CHECK_OK(pthread_mutex_unlock(&s.mutex));
    end(&s, &waiter, 1);
    destroy(&s);
}

#define HOLDER_CHECKS(title, kind)                                                                                   \
    CHECK(cond_holder, a_##title##_mutexs_holder_signals_and_destroys)                                               \
    {                                                                                                                \
        destroyed_by_the_holder(kind, pthread_cond_signal);                                                          \
    }                                                                                                                \
    CHECK(cond_holder, a_##title##_mutexs_holder_broadcasts_and_destroys)                                            \
    {                                                                                                                \
        destroyed_by_the_holder(kind, pthread_cond_broadcast);                                                       \
    }                                                                                                                \
    CHECK(cond_holder, a_##title##_mutexs_holder_signals_and_another_destroys)                                       \
    {                                                                                                                \
        destroyed_while_held(kind, pthread_cond_signal);                                                             \
    }                                                                                                                \
    CHECK(cond_holder, a_##title##_mutexs_holder_signals_each)                                                       \
    {                                                                                                                \
        all_woken(kind, SOME, pthread_cond_signal);                                                                  \
    }                                                                                                                \
    CHECK(cond_holder, a_##title##_mutexs_holder_broadcasts_to_some)                                                 \
    {                                                                                                                \
        all_woken(kind, 1, pthread_cond_broadcast);                                                                  \
    }                                                                                                                \
    CHECK(cond_holder, a_##title##_mutexs_holder_signals_and_waits)                                                  \
    {                                                                                                                \
        released_by_a_wait(kind, PTHREAD_PROCESS_PRIVATE);                                                           \
    }                                                                                                                \
    CHECK(cond_holder, a_##title##_mutexs_holder_signals_and_waits_at_a_shared_condition)                            \
    {                                                                                                                \
        released_by_a_wait(kind, PTHREAD_PROCESS_SHARED);                                                            \
    }                                                                                                                \
    CHECK(cond_holder, a_##title##_mutexs_holder_signals_and_forks) { forked(kind); }

KINDS(HOLDER_CHECKS)

/* Another thread releases the mutex. */
#define OWNERLESS_CHECKS(title, kind)                                                                                \
    CHECK(cond_holder, a_##title##_mutexs_holder_signals_and_another_unlocks)                                        \
    {                                                                                                                \
        static struct scene s;                                                                                       \
        pthread_t waiter;                                                                                            \
        start(&s, kind, &waiter, 1);                                                                                 \
        s.tokens = 1;                                                                                                \
        CHECK_OK(pthread_cond_signal(&s.cond));                                                                      \
        CHECK_OK(unlock_elsewhere(&s.mutex));                                                                        \
        end(&s, &waiter, 1);                                                                                         \
        destroy(&s);                                                                                                 \
    }

OWNERLESS_KINDS(OWNERLESS_CHECKS)

static void unlock_it(void *mutex)
{
    CHECK_OK(pthread_mutex_unlock(mutex));
}

static void *take_a_token_or_be_cancelled(void *argument)
{
    struct scene *s = argument;
    CHECK_OK(pthread_mutex_lock(&s->mutex));
    s->waiting++;
    pthread_cleanup_push(unlock_it, &s->mutex);
    while (s->tokens == 0) CHECK_OK(pthread_cond_wait(&s->cond, &s->mutex));
    s->tokens--;
    pthread_cleanup_pop(1);
    return NULL;
}

/* One of two waiters is cancelled after the signal, which may have been for it. Then the other one must not miss it. */
CHECK(cond_holder, signals_and_a_waiter_is_cancelled)
{
    static struct scene s;
    pthread_t waiters[2];
    void *result;
    start_with(&s, KIND_DEFAULT, waiters, 2, take_a_token_or_be_cancelled);
    s.tokens = 1;
    CHECK_OK(pthread_cond_signal(&s.cond));
    CHECK_OK(pthread_cancel(waiters[0]));
    CHECK_OK(pthread_mutex_unlock(&s.mutex));
    CHECK_OK(pthread_join(waiters[0], &result));
    if (result != PTHREAD_CANCELED) {
        CHECK_OK(pthread_mutex_lock(&s.mutex));
        s.tokens = 1;
        CHECK_OK(pthread_cond_signal(&s.cond));
        CHECK_OK(pthread_mutex_unlock(&s.mutex));
    }
    thread_join(waiters[1]);
    destroy(&s);
}

/* Another thread releases the mutex at about the moment of the signal. */
static struct gate go, unlocked, gone;
enum { ROUNDS = 20000 };

static void *unlock_again_and_again(void *mutex)
{
    for (int i = 1;; i++) {
        gate_wait(&go, i);
        HOT_OK(pthread_mutex_unlock(mutex));
        gate_open(&unlocked);
    }
    return NULL;
}

static void *take_tokens(void *argument)
{
    struct scene *s = argument;
    for (;;) {
        HOT_OK(pthread_mutex_lock(&s->mutex));
        s->waiting = 1;
        while (s->tokens == 0) HOT_OK(pthread_cond_wait(&s->cond, &s->mutex));
        s->tokens = 0;
        HOT_OK(pthread_mutex_unlock(&s->mutex));
        gate_open(&gone);
    }
    return NULL;
}

static void unlocked_meanwhile(wake_up *wake)
{
    static struct scene s;
    pthread_t waiter;
    start_with(&s, KIND_DEFAULT, &waiter, 1, take_tokens);
    thread_start(unlock_again_and_again, &s.mutex);
    for (int i = 1; i < ROUNDS && !time_is_short(); i++) {
        s.waiting = 0;
        s.tokens = 1;
        gate_open(&go);
        HOT_OK(wake(&s.cond));
        gate_wait(&unlocked, i);
        gate_wait(&gone, i);
        for (;;) {
            HOT_OK(pthread_mutex_lock(&s.mutex));
            if (s.waiting) break;
            HOT_OK(pthread_mutex_unlock(&s.mutex));
            nap_us(10);
        }
    }
}

CHECK(cond_holder, signals_while_another_unlocks) { unlocked_meanwhile(pthread_cond_signal); }
CHECK(cond_holder, broadcasts_while_another_unlocks) { unlocked_meanwhile(pthread_cond_broadcast); }

/* A waiter that was signalled forks in a signal handler. The child has no other thread. The wait ends there, too. */
static struct scene forked_scene;
static pid_t child_of_handler;
static struct gate handled;

static void fork_there(int signal)
{
    (void)signal;
    child_of_handler = raw_fork();
    if (child_of_handler == 0)
        CHECK_OK(pthread_mutex_unlock(&forked_scene.mutex));
    else
        gate_open(&handled);
}

static void *wait_and_end(void *argument)
{
    take_a_token(argument);
    if (child_of_handler == 0) _exit(0);
    return NULL;
}

CHECK(cond_holder, signals_and_the_waiter_forks_in_a_handler)
{
    pthread_t waiter;
    struct sigaction action = {.sa_handler = fork_there};
    CHECK_OK(sigaction(SIGUSR1, &action, NULL));
    start_with(&forked_scene, KIND_DEFAULT, &waiter, 1, wait_and_end);
    others_sleep();
    forked_scene.tokens = 1;
    CHECK_OK(pthread_cond_signal(&forked_scene.cond));
    CHECK_OK(pthread_kill(waiter, SIGUSR1));
    gate_wait(&handled, 1);
    CHECK_EQ(process_status(child_of_handler), 0);
    CHECK_OK(pthread_mutex_unlock(&forked_scene.mutex));
    end(&forked_scene, &waiter, 1);
    destroy(&forked_scene);
}

/* A waiter that is woken while the mutex is held takes a CPU for nothing. */
CHECK(cond_holder, signals_and_wakes_nobody_before_it_unlocks)
{
#if defined __x86_64__
    GLIBC_CANNOT("glibc wakes the waiter at once");
    if (!glibc_is_at_least(34)) SKIP("it does not say where a thread's id is");
    static struct scene s;
    pthread_t waiter;
    start(&s, KIND_DEFAULT, &waiter, 1);
    others_sleep();
    long before = others_look().switches;
    s.tokens = 1;
    CHECK_OK(pthread_cond_signal(&s.cond));
    nap_ms(20);
    CHECK_EQ(others_look().switches, before);
    CHECK_OK(pthread_mutex_unlock(&s.mutex));
    end(&s, &waiter, 1);
    destroy(&s);
#else
    SKIP("a thread's id is not at hand on this architecture");
#endif
}
