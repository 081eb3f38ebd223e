/* Threads of every sort around locks: short-lived, ending with locks in their hands, small, many, starved. */
#include "conformance.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile long counter;

static void add_one(void)
{
    HOT_OK(pthread_mutex_lock(&mutex));
    long seen = counter;
    if (seen % 64 == 0) sched_yield();
    counter = seen + 1;
    HOT_OK(pthread_mutex_unlock(&mutex));
}

static void *add_once(void *unused)
{
    add_one();
    return unused;
}

CHECK(threads, three_thousand_short_lived)
{
    int batches = 0;
    for (; batches < 60 && !time_is_short(); batches++) threads_run(50, add_once, NULL);
    CHECK_EQ(counter, batches * 50);
}

/* More, one after another, than any table of thread numbers holds if they are not used again. */
CHECK(threads, ten_thousand_in_succession)
{
    CHECK_OK(pthread_mutex_lock(&mutex));
    pthread_t first = thread_start(add_once, NULL);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    thread_join(first);
    int threads = 1;
    for (; threads < 10000 && !time_is_short(); threads++) thread_join(thread_start(add_once, NULL));
    CHECK_EQ(counter, threads);
}

CHECK(threads, detached)
{
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK_OK(pthread_attr_init(&attributes));
    CHECK_OK(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED));
    for (int i = 0; i < 500; i++) {
        int rc;
        while ((rc = pthread_create(&thread, &attributes, add_once, NULL)) == EAGAIN) nap_ms(1);
        CHECK_OK(rc);
    }
    for (long seen = 0; seen < 500; nap_us(100)) {
        CHECK_OK(pthread_mutex_lock(&mutex));
        seen = counter;
        CHECK_OK(pthread_mutex_unlock(&mutex));
    }
}

/* ---- Locking while a thread is being torn down ---- */

static pthread_key_t keys[4];

/* Asks to be called again, as often as POSIX promises. */
static void lock_in_destructor(void *value)
{
    intptr_t count = (intptr_t)value;
    add_one();
    if (count % 8 > 1) CHECK_OK(pthread_setspecific(keys[count / 8], (void *)(count - 1)));
}

static void *leave_specific_data(void *unused)
{
    for (intptr_t i = 0; i < 4; i++)
        CHECK_OK(pthread_setspecific(keys[i], (void *)(i * 8 + PTHREAD_DESTRUCTOR_ITERATIONS)));
    add_one();
    return unused;
}

CHECK(threads, specific_data_destructors_lock)
{
    for (int i = 0; i < 4; i++) CHECK_OK(pthread_key_create(&keys[i], lock_in_destructor));
    for (int batch = 0; batch < 10; batch++) threads_run(16, leave_specific_data, NULL);
    CHECK_EQ(counter, 10 * 16 * (1 + 4 * PTHREAD_DESTRUCTOR_ITERATIONS));
}

/* What C++ compilers call for thread_local objects with destructors. */
extern int __cxa_thread_atexit_impl(void (*function)(void *), void *object, void *dso);
extern void *__dso_handle;

static void lock_in_cxx_destructor(void *unused)
{
    (void)unused;
    add_one();
}

static void *leave_thread_locals(void *unused)
{
    for (int i = 0; i < 3; i++)
        CHECK_EQ(__cxa_thread_atexit_impl(lock_in_cxx_destructor, NULL, &__dso_handle), 0);
    return unused;
}

CHECK(threads, thread_local_destructors_lock)
{
    for (int batch = 0; batch < 10; batch++) threads_run(16, leave_thread_locals, NULL);
    CHECK_EQ(counter, 10 * 16 * 3);
}

static void *wait_in_destructor_body(void *unused)
{
    CHECK_OK(pthread_setspecific(keys[0], &keys));
    return unused;
}

static void wait_in_destructor(void *unused)
{
    static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    struct timespec deadline = time_after_ms(CLOCK_REALTIME, 2);
    int rc;
    (void)unused;
    CHECK_OK(pthread_mutex_lock(&mutex));
    while ((rc = pthread_cond_timedwait(&cond, &mutex, &deadline)) == 0)
        ;
    CHECK_RC(rc, ETIMEDOUT);
    CHECK_OK(pthread_mutex_unlock(&mutex));
}

static void *leave_nothing(void *unused)
{
    for (int i = 0; i < 1000; i++) add_one();
    return unused;
}

CHECK(threads, specific_data_destructors_wait)
{
    CHECK_OK(pthread_key_create(&keys[0], wait_in_destructor));
    for (int batch = 0; batch < 5; batch++) threads_run(8, wait_in_destructor_body, NULL);
}

/* As many as without a library that stands in for glibc's locks, which takes none. */
CHECK(threads, a_program_gets_all_thread_specific_keys)
{
    static pthread_key_t all[PTHREAD_KEYS_MAX];
    int made = 0;
    if (!glibc_is_at_least(34)) SKIP("this glibc's libdl takes a key once anybody has called dlsym");
    threads_run(8, leave_nothing, NULL);
    while (made < PTHREAD_KEYS_MAX && pthread_key_create(&all[made], NULL) == 0) made++;
    CHECK_EQ(made, PTHREAD_KEYS_MAX);
}

/* ---- Threads that end as holders ---- */

static void *lock_and_end(void *m)
{
    CHECK_OK(pthread_mutex_lock(m));
    return NULL;
}

CHECK(threads, holder_ends_and_another_releases)
{
    struct locker waiters[3];
    for (int i = 0; i < 10; i++) {
        thread_join(thread_start(lock_and_end, &mutex));
        CHECK_RC(pthread_mutex_trylock(&mutex), EBUSY);
        for (int w = 0; w < 3; w++) locker_start(&waiters[w], &mutex, NULL, NULL);
        /* Other threads come and go, perhaps as the dead one's namesake. */
        for (int t = 0; t < 20; t++) CHECK_RC(trylock_elsewhere(&mutex), EBUSY);
        for (int w = 0; w < 3; w++) CHECK_TRUE(!locker_got_it(&waiters[w]), "the holder's end released its mutex");
        CHECK_OK(pthread_mutex_unlock(&mutex));
        for (int w = 0; w < 3; w++) locker_join(&waiters[w]);
    }
    check_excludes(&mutex);
}

static void *queue_and_end(void *m)
{
    thread_join(thread_start(lock_and_end, m)); /* the holder has queue mates but is gone itself */
    return NULL;
}

CHECK(threads, contended_holder_ends_and_another_releases)
{
    for (int i = 0; i < 20; i++) {
        struct locker waiter;
        CHECK_OK(pthread_mutex_lock(&mutex));
        pthread_t thread = thread_start(queue_and_end, &mutex);
        nap_ms(1);
        CHECK_OK(pthread_mutex_unlock(&mutex));
        thread_join(thread);
        locker_start(&waiter, &mutex, NULL, NULL);
        CHECK_OK(pthread_mutex_unlock(&mutex));
        locker_join(&waiter);
    }
}

CHECK(threads, errorcheck_holder_ends)
{
    pthread_mutex_t checked = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    thread_join(thread_start(lock_and_end, &checked));
    struct timespec deadline = time_after_ms(CLOCK_REALTIME, 10);
    CHECK_RC(pthread_mutex_trylock(&checked), EBUSY);
    CHECK_RC(pthread_mutex_timedlock(&checked, &deadline), ETIMEDOUT);
    CHECK_RC(pthread_mutex_unlock(&checked), EPERM);
    CHECK_RC(pthread_mutex_destroy(&checked), EBUSY);
}

/* ---- Small, many ---- */

static pthread_t thread_start_small(void *(*body)(void *), void *argument)
{
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK_OK(pthread_attr_init(&attributes));
    CHECK_OK(pthread_attr_setstacksize(&attributes, sysconf(_SC_THREAD_STACK_MIN)));
    CHECK_OK(pthread_create(&thread, &attributes, body, argument));
    CHECK_OK(pthread_attr_destroy(&attributes));
    return thread;
}

static void *use_everything(void *argument)
{
    struct sleepers *s = argument;
    for (int i = 0; i < 200; i++) {
        struct timespec soon = time_after_ms(CLOCK_REALTIME, 1);
        HOT_OK(pthread_mutex_lock(&s->mutex));
        s->woken++;
        int rc = pthread_cond_timedwait(&s->cond, &s->mutex, &soon);
        if (rc != ETIMEDOUT) HOT_OK(rc);
        HOT_OK(pthread_cond_signal(&s->cond));
        HOT_OK(pthread_mutex_unlock(&s->mutex));
        rc = pthread_mutex_timedlock(&s->mutex, &soon);
        if (rc == 0) HOT_OK(pthread_mutex_unlock(&s->mutex));
    }
    return NULL;
}

CHECK(threads, smallest_stacks)
{
    struct sleepers s = SLEEPERS_INITIALIZER;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = thread_start_small(use_everything, &s);
    for (int i = 0; i < 4; i++) thread_join(threads[i]);
    CHECK_EQ(s.woken, 800);
}

CHECK(threads, four_hundred_blocked_on_one_mutex)
{
    pthread_t threads[400];
    CHECK_OK(pthread_mutex_lock(&mutex));
    for (int i = 0; i < 400; i++) threads[i] = thread_start_small(add_once, NULL);
    nap_ms(20);
    CHECK_EQ(counter, 0);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    for (int i = 0; i < 400; i++) thread_join(threads[i]);
    CHECK_EQ(counter, 400);
}

static pthread_cond_t go_cond = PTHREAD_COND_INITIALIZER;
static int waiting;
static bool go;

static void *wait_for_go(void *unused)
{
    CHECK_OK(pthread_mutex_lock(&mutex));
    waiting++;
    while (!go) CHECK_OK(pthread_cond_wait(&go_cond, &mutex));
    waiting--;
    CHECK_OK(pthread_mutex_unlock(&mutex));
    return unused;
}

CHECK(threads, four_hundred_waiting_on_one_condition)
{
    pthread_t threads[400];
    for (int i = 0; i < 400; i++) threads[i] = thread_start_small(wait_for_go, NULL);
    for (;; nap_us(200)) {
        CHECK_OK(pthread_mutex_lock(&mutex));
        if (waiting == 400) break;
        CHECK_OK(pthread_mutex_unlock(&mutex));
    }
    go = true;
    CHECK_OK(pthread_cond_broadcast(&go_cond));
    CHECK_OK(pthread_mutex_unlock(&mutex));
    for (int i = 0; i < 400; i++) thread_join(threads[i]);
    CHECK_EQ(waiting, 0);
}

/* ---- Coroutines ---- */

static ucontext_t main_context, other_context;

static void lock_on_other_stack(void)
{
    CHECK_OK(pthread_mutex_lock(&mutex));
    CHECK_EQ(swapcontext(&other_context, &main_context), 0);
    CHECK_OK(pthread_mutex_lock(&mutex));
}

/* One thread, two stacks: locked on one, released on the other, while a third party waits. */
CHECK(threads, locked_and_released_on_different_stacks)
{
    static char stack[64 * 1024];
    struct locker waiter;
    CHECK_EQ(getcontext(&other_context), 0);
    other_context.uc_stack.ss_sp = stack;
    other_context.uc_stack.ss_size = sizeof stack;
    other_context.uc_link = &main_context;
    makecontext(&other_context, lock_on_other_stack, 0);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(swapcontext(&main_context, &other_context), 0);
        locker_start(&waiter, &mutex, NULL, NULL);
        CHECK_OK(pthread_mutex_unlock(&mutex));
        locker_join(&waiter);
    }
    check_excludes(&mutex);
}
