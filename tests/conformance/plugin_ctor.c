/* A library whose constructor and destructor lock, wait with a deadline and run a thread. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int thread_came, result;

/* 1: ran and found nothing wrong. 0: has not run. Otherwise the line that failed. */
int ctor_result(void);

int ctor_result(void)
{
    return result;
}

static void *come(void *unused)
{
    pthread_mutex_lock(&mutex);
    thread_came = 1;
    pthread_cond_signal(&cond);
    pthread_mutex_unlock(&mutex);
    return unused;
}

static int lock_everything(void)
{
    struct timespec deadline;
    pthread_t thread;
    if (pthread_mutex_lock(&mutex)) return __LINE__;
    if (pthread_mutex_trylock(&mutex) != EBUSY) return __LINE__;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    if (pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &deadline) != ETIMEDOUT) return __LINE__;
    if (pthread_cond_clockwait(&cond, &mutex, CLOCK_MONOTONIC, &deadline) != ETIMEDOUT) return __LINE__;
    if (pthread_create(&thread, NULL, come, NULL)) return __LINE__;
    while (!thread_came)
        if (pthread_cond_wait(&cond, &mutex)) return __LINE__;
    if (pthread_mutex_unlock(&mutex)) return __LINE__;
    if (pthread_join(thread, NULL)) return __LINE__;
    for (int i = 0; i < 3; i++)
        if (pthread_mutex_lock(&recursive)) return __LINE__;
    for (int i = 0; i < 3; i++)
        if (pthread_mutex_unlock(&recursive)) return __LINE__;
    if (pthread_mutex_unlock(&recursive) != EPERM) return __LINE__;
    return 1;
}

__attribute__((constructor)) static void construct(void)
{
    result = lock_everything();
    if (result != 1 && getenv("CONFORMANCE_ABORT")) abort();
}

__attribute__((destructor)) static void destruct(void)
{
    if (lock_everything() != 1 || pthread_mutex_destroy(&mutex) || pthread_cond_destroy(&cond)) abort();
}
