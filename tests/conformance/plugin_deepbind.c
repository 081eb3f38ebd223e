/* Opened with RTLD_DEEPBIND: its calls bind to the C library, whatever the program itself calls. */
#include <pthread.h>
#include <time.h>

int plugin_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes);
int plugin_lock(pthread_mutex_t *mutex);
int plugin_trylock(pthread_mutex_t *mutex);
int plugin_timedlock(pthread_mutex_t *mutex, const struct timespec *deadline);
int plugin_unlock(pthread_mutex_t *mutex);
int plugin_destroy(pthread_mutex_t *mutex);
/* Which function plugin_lock calls. */
void *plugin_lock_target(void);

int plugin_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    return pthread_mutex_init(mutex, attributes);
}

int plugin_lock(pthread_mutex_t *mutex)
{
    return pthread_mutex_lock(mutex);
}

int plugin_trylock(pthread_mutex_t *mutex)
{
    return pthread_mutex_trylock(mutex);
}

int plugin_timedlock(pthread_mutex_t *mutex, const struct timespec *deadline)
{
    return pthread_mutex_timedlock(mutex, deadline);
}

int plugin_unlock(pthread_mutex_t *mutex)
{
    return pthread_mutex_unlock(mutex);
}

int plugin_destroy(pthread_mutex_t *mutex)
{
    return pthread_mutex_destroy(mutex);
}

void *plugin_lock_target(void)
{
    return (void *)pthread_mutex_lock;
}
