/* The vocabulary of the readers-writer checks: see rwlock.h. */
#include "rwlock.h"

static void *read_once(void *lock)
{
    CHECK_OK(pthread_rwlock_rdlock(lock));
    CHECK_OK(pthread_rwlock_unlock(lock));
    return NULL;
}

/* Two readers meet: a lock may take that for a reason to count its readers otherwise (cst-rw:meetings=1), once they are
 * gone. */
static void meet(pthread_rwlock_t *lock)
{
    CHECK_OK(pthread_rwlock_rdlock(lock));
    pthread_t other = thread_start(read_once, lock);
    nap_us(300);
    CHECK_OK(pthread_rwlock_unlock(lock));
    thread_join(other);
}

static void initialise(pthread_rwlock_t *lock, int kind)
{
    static const pthread_rwlock_t fresh = PTHREAD_RWLOCK_INITIALIZER;
    pthread_rwlockattr_t attr;
    if (kind == RW_STATIC) {
        *lock = fresh;
        return;
    }
    CHECK_OK(pthread_rwlockattr_init(&attr));
    CHECK_OK(pthread_rwlockattr_setkind_np(&attr, kind));
    CHECK_OK(pthread_rwlock_init(lock, &attr));
    CHECK_OK(pthread_rwlockattr_destroy(&attr));
}

void rw_make(pthread_rwlock_t *lock, int kind)
{
    initialise(lock, kind);
    meet(lock);
}

struct call {
    rw_call *call;
    pthread_rwlock_t *lock;
};

static void *call_and_release(void *argument)
{
    struct call *c = argument;
    int rc = c->call(c->lock);
    if (rc == 0 && c->call != pthread_rwlock_unlock) CHECK_OK(pthread_rwlock_unlock(c->lock));
    return (void *)(intptr_t)rc;
}

int rw_elsewhere(rw_call *call, pthread_rwlock_t *lock)
{
    struct call c = {call, lock};
    return (intptr_t)thread_join(thread_start(call_and_release, &c));
}

void rw_is_free(pthread_rwlock_t *lock)
{
    CHECK_OK(rw_elsewhere(pthread_rwlock_trywrlock, lock));
}

void rw_is_read(pthread_rwlock_t *lock)
{
    CHECK_RC(rw_elsewhere(pthread_rwlock_trywrlock, lock), EBUSY);
    CHECK_OK(rw_elsewhere(pthread_rwlock_tryrdlock, lock));
}

void rw_is_written(pthread_rwlock_t *lock)
{
    CHECK_RC(rw_elsewhere(pthread_rwlock_trywrlock, lock), EBUSY);
    CHECK_RC(rw_elsewhere(pthread_rwlock_tryrdlock, lock), EBUSY);
}

static void *use(void *argument)
{
    struct rw_user *user = argument;
    atomic_store(&user->tid, gettid());
    CHECK_OK(user->call(user->lock));
    gate_open(&user->got);
    gate_wait(&user->release, 1);
    CHECK_OK(pthread_rwlock_unlock(user->lock));
    return NULL;
}

static void start(struct rw_user *user, pthread_rwlock_t *lock, rw_call *call)
{
    *user = (struct rw_user){.lock = lock, .call = call};
    user->thread = thread_start(use, user);
}

void rw_start(struct rw_user *user, pthread_rwlock_t *lock, rw_call *call)
{
    start(user, lock, call);
    while (!atomic_load(&user->tid)) nap_us(50);
    settle(user->tid);
}

void rw_start_held(struct rw_user *user, pthread_rwlock_t *lock, rw_call *call)
{
    start(user, lock, call);
    gate_wait(&user->got, 1);
}

bool rw_has_it(struct rw_user *user)
{
    return gate_count(&user->got) > 0;
}

void rw_finish(struct rw_user *user)
{
    gate_open(&user->release);
    thread_join(user->thread);
}

void rw_finish_all(struct rw_user *users, int count)
{
    for (int i = 0; i < count; i++) gate_open(&users[i].release);
    for (int i = 0; i < count; i++) thread_join(users[i].thread);
}

/* ---- Exclusion ---- */

struct pair {
    pthread_rwlock_t *lock;
    rw_call *rdlock, *wrlock;
    struct timespec end;
    atomic_int tickets;
    atomic_long written;
    volatile long first, second;
};

static void write_pair(struct pair *p, unsigned round)
{
    HOT_OK(p->wrlock(p->lock));
    long seen = p->first;
    if (seen != p->second) FAIL("a writer found %ld and %ld", seen, p->second);
    p->first = seen + 1;
    if (round % 64 == 0) sched_yield();
    p->second = seen + 1;
    HOT_OK(pthread_rwlock_unlock(p->lock));
    atomic_fetch_add_explicit(&p->written, 1, memory_order_relaxed);
}

static void read_pair(struct pair *p, unsigned round)
{
    HOT_OK(p->rdlock(p->lock));
    long first = p->first;
    if (round % 64 == 0) sched_yield();
    long second = p->second;
    if (first != second) FAIL("a reader saw %ld and %ld", first, second);
    HOT_OK(pthread_rwlock_unlock(p->lock));
}

static void *work(void *argument)
{
    struct pair *p = argument;
    uint32_t random = 77 + atomic_fetch_add(&p->tickets, 1);
    write_pair(p, 0); /* where readers are preferred, there may be no other */
    for (unsigned round = 0; round % 16 || !time_reached(CLOCK_MONOTONIC, p->end); round++) {
        if (random_next(&random) % 4 == 0)
            write_pair(p, round);
        else
            read_pair(p, round);
    }
    return NULL;
}

void rw_check_excludes(pthread_rwlock_t *lock, int threads, int ms, rw_call *rdlock, rw_call *wrlock)
{
    struct pair p = {.lock = lock, .rdlock = rdlock, .wrlock = wrlock, .end = time_after_ms(CLOCK_MONOTONIC, ms)};
    threads_run(threads, work, &p);
    CHECK_EQ(p.first, atomic_load(&p.written));
}
