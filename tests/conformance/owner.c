/*
 * Which thread holds a mutex: debuggers read it in the object, where glibc writes it, whatever the kind.
 */
#include "conformance.h"

#include <sys/syscall.h>

static pthread_mutex_t mutex;

static void held_among_others(void)
{
    if (!glibc_is_at_least(34)) SKIP("this glibc does not tell a library where a thread's id is");
    CHECK_EQ(mutex.__data.__owner, syscall(SYS_gettid));
    CHECK_OK(pthread_mutex_unlock(&mutex));
}

/* No other thread wants it. */
static void held(void)
{
    held_among_others();
    CHECK_EQ(mutex.__data.__owner, 0);
}

static void *in_every_way(void *unused)
{
    struct timespec far = time_far(CLOCK_REALTIME), soon = time_after_ms(CLOCK_REALTIME, 1);
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    CHECK_OK(pthread_mutex_lock(&mutex));
    held();
    CHECK_OK(pthread_mutex_trylock(&mutex));
    held();
    CHECK_OK(pthread_mutex_timedlock(&mutex, &far));
    held();
    CHECK_OK(pthread_mutex_lock(&mutex));
    CHECK_RC(pthread_cond_timedwait(&cond, &mutex, &soon), ETIMEDOUT);
    held();
    return unused;
}

static void names(int kind)
{
    mutex_make(&mutex, kind);
    in_every_way(NULL);
    thread_join(thread_start(in_every_way, NULL));
    pid_t child = fork();
    if (child == 0) {
        in_every_way(NULL);
        _exit(0);
    }
    CHECK_EQ(process_status(child), 0);
}

#define OWNER_CHECK(title, kind) \
    CHECK(owner, a_##title##_mutex_names_its_holder) { names(kind); }

KINDS(OWNER_CHECK)

static void *wait_for_broadcast(void *argument)
{
    struct gate *waits = argument;
    static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    static bool go;
    CHECK_OK(pthread_mutex_lock(&mutex));
    if (!waits) {
        go = true;
        CHECK_OK(pthread_cond_broadcast(&cond)); /* with the mutex held: waiters may be moved to its queue */
        CHECK_OK(pthread_mutex_unlock(&mutex));
        return NULL;
    }
    gate_open(waits);
    while (!go) CHECK_OK(pthread_cond_wait(&cond, &mutex));
    held_among_others();
    return NULL;
}

CHECK(owner, is_whoever_a_broadcast_gives_it_to)
{
    enum { CROWD = 8 };
    struct gate waits = {0};
    pthread_t threads[CROWD];
    mutex_make(&mutex, KIND_DEFAULT);
    for (int i = 0; i < CROWD; i++) threads[i] = thread_start(wait_for_broadcast, &waits);
    gate_wait(&waits, CROWD);
    wait_for_broadcast(NULL);
    for (int i = 0; i < CROWD; i++) thread_join(threads[i]);
}
