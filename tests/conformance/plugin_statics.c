/* A library with static mutexes of its own, of every kind, destroyed only by its unloading. */
#include <pthread.h>
#include <sched.h>

enum { COUNT = 5 };

static pthread_mutex_t mutexes[COUNT] = {
    PTHREAD_MUTEX_INITIALIZER,
    PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
    PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP,
    PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP,
};
static volatile long counters[COUNT];

int statics_hammer(int rounds);
long statics_total(void);

int statics_hammer(int rounds)
{
    for (int i = 0; i < rounds * COUNT; i++) {
        int at = i % COUNT;
        int rc = pthread_mutex_lock(&mutexes[at]);
        if (rc) return rc;
        long seen = counters[at];
        if (i % 32 == 0) sched_yield();
        counters[at] = seen + 1;
        rc = pthread_mutex_unlock(&mutexes[at]);
        if (rc) return rc;
    }
    return 0;
}

long statics_total(void)
{
    long total = 0;
    for (int i = 0; i < COUNT; i++) total += counters[i];
    return total;
}
