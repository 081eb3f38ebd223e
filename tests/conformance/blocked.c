/* Threads that block, on a mutex or on a condition variable, for the checks to look at: see conformance.h. */
#include "conformance.h"

#include <sys/syscall.h>

/* ---- On a mutex ---- */

static void *lock_and_unlock(void *argument)
{
    struct locker *locker = argument;
    atomic_store(&locker->tid, syscall(SYS_gettid));
    CHECK_OK(locker->lock(locker->mutex));
    gate_open(&locker->got);
    CHECK_OK(locker->unlock(locker->mutex));
    return NULL;
}

void locker_start(struct locker *locker, pthread_mutex_t *mutex, mutex_call *lock, mutex_call *unlock)
{
    memset(locker, 0, sizeof *locker);
    locker->mutex = mutex;
    locker->lock = lock ? lock : pthread_mutex_lock;
    locker->unlock = unlock ? unlock : pthread_mutex_unlock;
    locker->thread = thread_start(lock_and_unlock, locker);
    while (atomic_load(&locker->tid) == 0) sched_yield();
    settle(atomic_load(&locker->tid));
}

bool locker_got_it(struct locker *locker)
{
    return gate_count(&locker->got) > 0;
}

void locker_join(struct locker *locker)
{
    thread_join(locker->thread);
}

/* ---- On a condition variable ---- */

static void *take_a_token(void *argument)
{
    struct sleepers *s = argument;
    CHECK_OK(pthread_mutex_lock(&s->mutex));
    s->waiting++;
    while (s->tokens == 0) CHECK_OK(pthread_cond_wait(&s->cond, &s->mutex));
    s->tokens--;
    s->woken++;
    CHECK_OK(pthread_mutex_unlock(&s->mutex));
    return NULL;
}

/* Having the mutex after a sleeper counted itself proves that it waits: only its wait released the mutex. */
static void await(struct sleepers *s, int *counter, int value)
{
    for (;;) {
        CHECK_OK(pthread_mutex_lock(&s->mutex));
        int now = *counter;
        CHECK_OK(pthread_mutex_unlock(&s->mutex));
        if (now >= value) return;
        nap_us(100);
    }
}

void sleepers_start(struct sleepers *s, int count)
{
    for (int i = 0; i < count; i++) s->thread[s->count++] = thread_start(take_a_token, s);
    await(s, &s->waiting, s->count);
}

void sleepers_give(struct sleepers *s, int tokens)
{
    CHECK_OK(pthread_mutex_lock(&s->mutex));
    s->tokens += tokens;
    CHECK_OK(pthread_mutex_unlock(&s->mutex));
}

void sleepers_await(struct sleepers *s, int woken)
{
    await(s, &s->woken, woken);
}

void sleepers_join(struct sleepers *s)
{
    for (int i = 0; i < s->count; i++) thread_join(s->thread[i]);
    CHECK_EQ(s->woken, s->count);
    CHECK_EQ(s->tokens, 0);
}

void sleepers_use_inherited(struct sleepers *s)
{
    CHECK_OK(pthread_mutex_init(&s->mutex, NULL));
    for (int round = 0; round < 2; round++) {
        s->count = s->waiting = s->woken = s->tokens = 0;
        sleepers_start(s, 3);
        sleepers_give(s, 3);
        if (round) CHECK_OK(pthread_cond_broadcast(&s->cond));
        for (int i = 0; i < 3 && !round; i++) CHECK_OK(pthread_cond_signal(&s->cond));
        sleepers_join(s);
    }
    CHECK_OK(pthread_cond_destroy(&s->cond));
}

/* ---- Kinds ---- */

void mutex_make(pthread_mutex_t *mutex, int kind)
{
    if (kind == KIND_DEFAULT) {
        CHECK_OK(pthread_mutex_init(mutex, NULL));
        return;
    }
    pthread_mutexattr_t attributes;
    CHECK_OK(pthread_mutexattr_init(&attributes));
    CHECK_OK(pthread_mutexattr_settype(&attributes, kind));
    CHECK_OK(pthread_mutex_init(mutex, &attributes));
    CHECK_OK(pthread_mutexattr_destroy(&attributes));
}

/* ---- Waits with mutexes that know their owner ---- */

static void time_out_with(int type, int protocol, int cond_shared)
{
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    pthread_mutexattr_t mutex_attr;
    pthread_condattr_t cond_attr;
    CHECK_OK(pthread_mutexattr_init(&mutex_attr));
    CHECK_OK(pthread_mutexattr_settype(&mutex_attr, type));
    CHECK_OK(pthread_mutexattr_setprotocol(&mutex_attr, protocol));
    CHECK_OK(pthread_mutex_init(&mutex, &mutex_attr));
    CHECK_OK(pthread_condattr_init(&cond_attr));
    CHECK_OK(pthread_condattr_setpshared(&cond_attr, cond_shared));
    CHECK_OK(pthread_cond_init(&cond, &cond_attr));
    struct timespec deadline = time_after_ms(CLOCK_REALTIME, 5);
    int rc;
    CHECK_OK(pthread_mutex_lock(&mutex));
    while ((rc = pthread_cond_timedwait(&cond, &mutex, &deadline)) == 0)
        ;
    if (rc != ETIMEDOUT)
        FAIL("the wait returned %s: mutex of type %d, protocol %d; condition variable %s", code_name(rc), type,
             protocol, cond_shared ? "shared" : "private");
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_OK(pthread_cond_destroy(&cond));
    CHECK_OK(pthread_mutex_destroy(&mutex));
}

void check_waits_with_owners(void)
{
    static const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK};
    static const int protocols[] = {PTHREAD_PRIO_NONE, PTHREAD_PRIO_INHERIT};
    for (int i = 0; i < 12; i++) time_out_with(types[i % 3], protocols[i / 6], i / 3 % 2);
}
