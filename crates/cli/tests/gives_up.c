/* Waits that do not end with an acquisition: four threads wait for a mutex that is never released. `gives_up` waits for
 * 5 x 100 ms each; `gives_up never` until the program is killed. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static atomic_int ready;

static void *times_out(void *unused)
{
    for (int i = 0; i < 5; i++) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 100000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_mutex_timedlock(&held, &until);
    }
    return unused;
}

static void *waits(void *unused)
{
    atomic_fetch_add(&ready, 1);
    pthread_mutex_lock(&held);
    return unused;
}

int main(int argc, char **argv)
{
    int never = argc > 1 && strcmp(argv[1], "never") == 0;
    pthread_t threads[4];
    pthread_mutex_lock(&held);
    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, never ? waits : times_out, NULL)) return 1;
    if (never) {
        while (atomic_load(&ready) < 4) usleep(1000);
        sleep(1);
        raise(SIGTERM);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    return 0;
}
