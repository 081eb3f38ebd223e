/* Threads wait for a mutex only at the end of their waits on a condition variable. A broadcast wakes eight, and each
 * holds the mutex for 2 ms. So in a round, the last one waits for 14 ms, and all together for 56 ms. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { THREADS = 8, ROUNDS = 10 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t begun = PTHREAD_COND_INITIALIZER;
static int round_of_all;
static atomic_int waits;

static void *takes_part(void *unused)
{
    pthread_mutex_lock(&mutex);
    for (int mine = 0; mine < ROUNDS; mine++) {
        atomic_fetch_add(&waits, 1);
        while (round_of_all == mine) pthread_cond_wait(&begun, &mutex);
        usleep(2000);
    }
    atomic_fetch_add(&waits, 1);
    pthread_mutex_unlock(&mutex);
    return unused;
}

/* The mutex is free soon after. So main() hardly ever waits for it. */
static void until_so_many_wait(int number)
{
    while (atomic_load(&waits) < number) usleep(1000);
    usleep(2000);
}

int main(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, takes_part, NULL)) return 1;
        until_so_many_wait(i + 1);
    }
    for (int i = 1; i <= ROUNDS; i++) {
        pthread_mutex_lock(&mutex);
        round_of_all++;
        pthread_cond_broadcast(&begun);
        pthread_mutex_unlock(&mutex);
        until_so_many_wait(THREADS * (i + 1));
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}
