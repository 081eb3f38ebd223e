/* Initialises objects of all kinds, most of which flashlock leaves to glibc; uses one of them. */
#include <pthread.h>

static pthread_mutex_t mutexes[6];
static pthread_cond_t conds[3];
static int made, refused;

static void make(int type, int robust, int protocol, int shared)
{
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_settype(&a, type);
    pthread_mutexattr_setrobust(&a, robust);
    pthread_mutexattr_setprotocol(&a, protocol);
    pthread_mutexattr_setpshared(&a, shared);
    if (pthread_mutex_init(&mutexes[made], &a) == 0) made++;
    else refused++;
}

int main(void)
{
    const int plain = PTHREAD_MUTEX_DEFAULT, stalled = PTHREAD_MUTEX_STALLED, robust = PTHREAD_MUTEX_ROBUST;
    const int none = PTHREAD_PRIO_NONE, mine = PTHREAD_PROCESS_PRIVATE;
    make(plain, stalled, PTHREAD_PRIO_INHERIT, mine); /* mutexes[0] */
    make(PTHREAD_MUTEX_RECURSIVE, stalled, none, mine);
    make(plain, robust, none, mine);
    make(plain, robust, PTHREAD_PRIO_INHERIT, PTHREAD_PROCESS_SHARED);
    make(plain, stalled, PTHREAD_PRIO_PROTECT, mine);
    make(plain, robust, PTHREAD_PRIO_PROTECT, mine); /* glibc has no such mutexes */
    make(plain, stalled, none, PTHREAD_PROCESS_SHARED);

    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_cond_init(&conds[0], NULL);
    pthread_cond_init(&conds[1], &a);
    pthread_condattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&conds[2], &a);

    pthread_mutex_lock(&mutexes[0]);
    pthread_mutex_unlock(&mutexes[0]);
    return made == 6 && refused == 1 ? 0 : 1;
}
