/* Objects of every kind. Each is acquired a known number of times, and waited for once: its holder releases it when the
 * other thread sleeps. So nothing depends on speed. `contended many` uses more objects than the statistics can tell
 * apart. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <threads.h>
#include <unistd.h>

pthread_mutex_t the_static_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int before;
    pthread_rwlock_t lock;
} the_table = {0, PTHREAD_RWLOCK_INITIALIZER};
static sem_t *permits;
static pthread_mutex_t *on_the_heap;
static pthread_spinlock_t spinlock;
static mtx_t *of_c11;
static atomic_int stage, sleeper;

__attribute__((noinline)) static void make_objects(void)
{
    on_the_heap = malloc(sizeof *on_the_heap);
    permits = malloc(sizeof *permits);
    of_c11 = malloc(sizeof *of_c11);
    if (pthread_mutex_init(on_the_heap, NULL) || sem_init(permits, 0, 0) || pthread_spin_init(&spinlock, 0)
        || mtx_init(of_c11, mtx_plain) != thrd_success)
        abort();
}

/* Lets the other thread wait for the next object, which this thread holds. Returns when it sleeps. It has set `sleeper`
 * before, and does nothing else that sleeps. */
static void let_it_wait(void)
{
    char path[64], text[256];
    atomic_fetch_add(&stage, 1);
    while (atomic_load(&sleeper) == 0) usleep(100);
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&sleeper));
    for (int looks = 0; looks < 3; usleep(1000)) {
        FILE *file = fopen(path, "r");
        size_t got = file ? fread(text, 1, sizeof text - 1, file) : 0;
        text[got] = 0;
        if (file) fclose(file);
        const char *name_end = strrchr(text, ')');
        looks = name_end && name_end[2] == 'S' ? looks + 1 : 0;
    }
    atomic_store(&sleeper, 0);
}

static void may_wait_now(int for_what)
{
    while (atomic_load(&stage) < for_what) usleep(100);
    atomic_store(&sleeper, (int)syscall(SYS_gettid));
}

static void *waits(void *unused)
{
    (void)unused;
    may_wait_now(1);
    pthread_mutex_lock(&the_static_mutex);
    pthread_mutex_unlock(&the_static_mutex);
    may_wait_now(2);
    pthread_rwlock_rdlock(&the_table.lock);
    pthread_rwlock_unlock(&the_table.lock);
    may_wait_now(3);
    pthread_rwlock_wrlock(&the_table.lock);
    pthread_rwlock_unlock(&the_table.lock);
    may_wait_now(4);
    sem_wait(permits);
    return NULL;
}

static void many(void)
{
    enum { MUTEXES = 200000 };
    pthread_mutex_t *mutexes = calloc(MUTEXES, sizeof *mutexes);
    for (int i = 0; i < MUTEXES; i++) {
        pthread_mutex_lock(&mutexes[i]);
        pthread_mutex_unlock(&mutexes[i]);
    }
    free(mutexes);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "many") == 0) {
        many();
        return 0;
    }
    pthread_t thread;
    make_objects();
    for (int i = 0; i < 10; i++) {
        pthread_mutex_lock(on_the_heap);
        pthread_mutex_unlock(on_the_heap);
        pthread_spin_lock(&spinlock);
        pthread_spin_unlock(&spinlock);
        mtx_lock(of_c11);
        mtx_unlock(of_c11);
    }
    for (int i = 0; i < 1000; i++) {
        sem_post(permits);
        sem_wait(permits);
    }
    if (pthread_create(&thread, NULL, waits, NULL)) return 1;
    pthread_mutex_lock(&the_static_mutex);
    let_it_wait();
    pthread_mutex_unlock(&the_static_mutex);
    pthread_rwlock_wrlock(&the_table.lock);
    let_it_wait();
    pthread_rwlock_unlock(&the_table.lock);
    pthread_rwlock_rdlock(&the_table.lock);
    let_it_wait();
    pthread_rwlock_unlock(&the_table.lock);
    let_it_wait();
    sem_post(permits);
    return pthread_join(thread, NULL);
}
