/* Locks in poor circumstances: one CPU, real-time waiters, no memory left, no file descriptors. */
#include "conformance.h"

#include <sys/resource.h>
#include <sys/syscall.h>

static void pin_to_one_cpu(void)
{
    cpu_set_t allowed, one;
    CHECK_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        CPU_SET(cpu, &one);
        break;
    }
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0); /* inherited by the threads to come */
}

CHECK(threads, all_on_one_cpu)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pin_to_one_cpu();
    check_excludes(&mutex);
}

/* A waiter that outranks the holder on its only CPU must sleep, or the holder never runs. */
static void wait_as_real_time(int rounds)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct sched_param priority = {.sched_priority = 10};
    for (int i = 0; i < rounds; i++) {
        struct locker waiter;
        CHECK_OK(pthread_mutex_lock(&mutex));
        locker_start(&waiter, &mutex, NULL, NULL);
        if (pthread_setschedparam(waiter.thread, SCHED_FIFO, &priority) != 0) SKIP("may not use SCHED_FIFO");
        nap_ms(2);
        CHECK_OK(pthread_mutex_unlock(&mutex));
        locker_join(&waiter);
    }
}

CHECK(threads, real_time_waiter_lets_the_holder_run)
{
    pin_to_one_cpu();
    wait_as_real_time(20);
}

/* ---- No memory ---- */

struct hungry {
    pthread_mutex_t mutexes[64];
    pthread_cond_t cond;
    long counts[64];
    int turn;
    atomic_int tickets;
    struct gate ready, go;
};

static void *work_without_memory(void *argument)
{
    struct hungry *h = argument;
    int me = atomic_fetch_add(&h->tickets, 1);
    volatile char touched[16 * 1024];
    memset((char *)touched, 0, sizeof touched); /* the stack it will need */
    gate_open(&h->ready);
    gate_wait(&h->go, 1);
    for (int i = 0; i < 2000; i++) {
        int at = (i / 8) % 63;
        HOT_OK(pthread_mutex_lock(&h->mutexes[at]));
        HOT_OK(pthread_mutex_lock(&h->mutexes[at + 1]));
        h->counts[at]++;
        HOT_OK(pthread_mutex_unlock(&h->mutexes[at]));
        HOT_OK(pthread_mutex_unlock(&h->mutexes[at + 1]));
    }
    for (int i = 0; i < 300; i++) {
        HOT_OK(pthread_mutex_lock(&h->mutexes[0]));
        while (h->turn % 4 != me) HOT_OK(pthread_cond_wait(&h->cond, &h->mutexes[0]));
        h->turn++;
        HOT_OK(pthread_cond_broadcast(&h->cond));
        HOT_OK(pthread_mutex_unlock(&h->mutexes[0]));
    }
    return NULL;
}

/* ENOMEM is no answer that locking or waiting may give: with no page to be had, contention must still be possible. */
CHECK(threads, address_space_exhausted)
{
    static struct hungry h;
    pthread_t threads[4];
    volatile char touched[64 * 1024];
    memset((char *)touched, 0, sizeof touched);
    for (int i = 0; i < 4; i++) threads[i] = thread_start(work_without_memory, &h);
    gate_wait(&h.ready, 4);
    struct rlimit none = {1 << 20, 1 << 20}; /* far less than is mapped: no mmap, no brk */
    CHECK_EQ(setrlimit(RLIMIT_AS, &none), 0);
    gate_open(&h.go);
    for (int i = 0; i < 4; i++) thread_join(threads[i]);
    long sum = 0;
    for (int i = 0; i < 63; i++) sum += h.counts[i];
    CHECK_EQ(sum, 4 * 2000);
    CHECK_EQ(h.turn, 4 * 300);
}

/* ---- No descriptors ---- */

/* Daemons close everything they did not open. */
CHECK(threads, all_file_descriptors_closed)
{
    struct sleepers s = SLEEPERS_INITIALIZER;
    struct rlimit none = {0, 0};
    syscall(__NR_close_range, 3, ~0U, 0);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    check_excludes(&s.mutex);
    sleepers_start(&s, 4);
    sleepers_give(&s, 4);
    CHECK_OK(pthread_cond_broadcast(&s.cond));
    sleepers_join(&s);
}

CHECK(threads, environment_cleared)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    CHECK_EQ(clearenv(), 0);
    check_excludes(&mutex);
}
