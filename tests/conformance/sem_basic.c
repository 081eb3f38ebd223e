/* Semaphores: return codes, values, overflow, errno, shared and named ones, permits counted under load. */
#include "sem.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

/* ---- Codes and values ---- */

static void check_answers(sem_t *sem)
{
    struct timespec past = {0, 0}, far = time_far(CLOCK_REALTIME);
    CHECK_EQ(sem_value(sem), 0);
    CHECK_RC(sem_code(sem_trywait(sem)), EAGAIN);
    CHECK_RC(sem_code(sem_timedwait(sem, &past)), ETIMEDOUT);
    CHECK_RC(sem_code(sem_clockwait(sem, CLOCK_MONOTONIC, &past)), ETIMEDOUT);
    for (int i = 0; i < 4; i++) CHECK_OK(sem_post(sem));
    CHECK_EQ(sem_value(sem), 4);
    CHECK_OK(sem_wait(sem));
    CHECK_OK(sem_trywait(sem));
    CHECK_OK(sem_timedwait(sem, &past)); /* there is one: the deadline does not matter */
    CHECK_OK(sem_clockwait(sem, CLOCK_REALTIME, &far));
    CHECK_EQ(sem_value(sem), 0);
    CHECK_RC(sem_code(sem_trywait(sem)), EAGAIN);
}

CHECK(sem, answers)
{
    sem_t sem[3];
    memset(sem, 0xa5, sizeof sem);
    CHECK_OK(sem_init(&sem[1], 0, 0)); /* whatever was there before */
    check_answers(&sem[1]);
    CHECK_OK(sem_destroy(&sem[1]));
    CHECK_OK(sem_init(&sem[1], 0, 3));
    CHECK_EQ(sem_value(&sem[1]), 3);
    for (int i = 0; i < 3; i++) CHECK_OK(sem_wait(&sem[1]));
    check_answers(&sem[1]);
    CHECK_OK(sem_destroy(&sem[1]));
    for (size_t i = 0; i < sizeof *sem; i++) {
        CHECK_EQ(((unsigned char *)&sem[0])[i], 0xa5);
        CHECK_EQ(((unsigned char *)&sem[2])[i], 0xa5);
    }
}

CHECK(sem, values_and_overflow)
{
    sem_t sem;
    CHECK_RC(sem_code(sem_init(&sem, 0, SEM_VALUE_MAX + 1u)), EINVAL);
    CHECK_RC(sem_code(sem_init(&sem, 0, UINT_MAX)), EINVAL);
    CHECK_RC(sem_code(sem_init(&sem, 1, SEM_VALUE_MAX + 1u)), EINVAL);
    for (int shared = 0; shared < 2; shared++) {
        CHECK_OK(sem_init(&sem, shared, SEM_VALUE_MAX));
        CHECK_EQ(sem_value(&sem), SEM_VALUE_MAX);
        CHECK_RC(sem_code(sem_post(&sem)), EOVERFLOW);
        CHECK_EQ(sem_value(&sem), SEM_VALUE_MAX);
        CHECK_OK(sem_wait(&sem));
        CHECK_OK(sem_post(&sem));
        CHECK_RC(sem_code(sem_post(&sem)), EOVERFLOW);
        CHECK_OK(sem_destroy(&sem));
    }
}

CHECK(sem, errno_is_kept_by_success)
{
    sem_t sem;
    struct timespec far = time_far(CLOCK_REALTIME);
    errno = 4711;
    CHECK_OK(sem_init(&sem, 0, 3));
    CHECK_OK(sem_wait(&sem));
    CHECK_OK(sem_trywait(&sem));
    CHECK_OK(sem_timedwait(&sem, &far));
    CHECK_OK(sem_post(&sem));
    CHECK_EQ(sem_value(&sem), 1);
    CHECK_OK(sem_destroy(&sem));
    CHECK_EQ(errno, 4711);
}

CHECK(sem, invalid_deadlines_and_clocks)
{
    static const long nsec[] = {-1, 1000000000, LONG_MIN, LONG_MAX};
    sem_t sem;
    for (int permits = 0; permits < 2; permits++) { /* an error even where nothing must be waited for */
        CHECK_OK(sem_init(&sem, 0, permits));
        for (int i = 0; i < 4; i++) {
            struct timespec time = {time_far(CLOCK_REALTIME).tv_sec, nsec[i]};
            CHECK_RC(sem_code(sem_timedwait(&sem, &time)), EINVAL);
            CHECK_RC(sem_code(sem_clockwait(&sem, CLOCK_MONOTONIC, &time)), EINVAL);
        }
        struct timespec far = time_far(CLOCK_REALTIME);
        CHECK_RC(sem_code(sem_clockwait(&sem, CLOCK_PROCESS_CPUTIME_ID, &far)), EINVAL);
        CHECK_RC(sem_code(sem_clockwait(&sem, 4711, &far)), EINVAL);
        CHECK_EQ(sem_value(&sem), permits);
        CHECK_OK(sem_destroy(&sem));
    }
}

/* ---- Others' semaphores ---- */

struct pair {
    sem_t there, back;
    int count;
};

static void play(sem_t *mine, sem_t *other, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        CHECK_OK(sem_wait(mine));
        CHECK_OK(sem_post(other));
    }
}

CHECK(sem, shared_between_processes)
{
    struct pair *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK_TRUE(p != MAP_FAILED, "mmap: %s", code_name(errno));
    CHECK_OK(sem_init(&p->there, 1, 0));
    CHECK_OK(sem_init(&p->back, 1, 1));
    pid_t pid = fork();
    if (pid == 0) {
        play(&p->there, &p->back, 500);
        _exit(0);
    }
    play(&p->back, &p->there, 500);
    CHECK_EQ(process_status(pid), 0);
    CHECK_EQ(sem_value(&p->back), 1);
    CHECK_OK(sem_destroy(&p->there));
    CHECK_OK(sem_destroy(&p->back));
}

CHECK(sem, named)
{
    char name[40];
    snprintf(name, sizeof name, "/flashlock-conformance-%d", (int)getpid());
    sem_t *one = sem_open(name, O_CREAT | O_EXCL, 0600, 2);
    if (one == SEM_FAILED) SKIP("no named semaphores here");
    sem_t *same = sem_open(name, 0);
    CHECK_TRUE(same != SEM_FAILED, "sem_open: %s", code_name(errno));
    CHECK_OK(sem_unlink(name));
    CHECK_OK(sem_wait(one));
    CHECK_OK(sem_wait(same));
    CHECK_RC(sem_code(sem_trywait(one)), EAGAIN);
    check_answers(same);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK_OK(sem_wait(one));
        _exit(0);
    }
    CHECK_OK(sem_post(same));
    CHECK_EQ(process_status(pid), 0);
    CHECK_OK(sem_close(one));
    CHECK_OK(sem_close(same));
}

/* Made by glibc's own init, past any replacement; then used by the usual names. */
CHECK(sem, initialised_by_glibc)
{
    sem_t sem;
    void *libc = dlopen(LOCKS_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    CHECK_TRUE(libc, "%s is not there", LOCKS_LIBRARY);
    int (*init)(sem_t *, int, unsigned) = (int (*)(sem_t *, int, unsigned))dlsym(libc, "sem_init");
    for (int shared = 0; shared < 2; shared++) {
        memset(&sem, 0xa5, sizeof sem);
        CHECK_OK(init(&sem, shared, 0));
        check_answers(&sem);
        CHECK_OK(sem_destroy(&sem));
    }
    /* In a place where one of ours was. */
    CHECK_OK(sem_init(&sem, 0, 5));
    CHECK_OK(sem_destroy(&sem));
    CHECK_OK(init(&sem, 0, 0));
    check_answers(&sem);
    CHECK_OK(sem_destroy(&sem));
}

/* ---- Load ---- */

struct shop {
    sem_t free, full, mutex;
    int stock, most;
    atomic_int left_to_make, taken;
};

static void *make(void *argument)
{
    struct shop *s = argument;
    while (atomic_fetch_sub(&s->left_to_make, 1) > 0) {
        HOT_OK(sem_wait(&s->free));
        HOT_OK(sem_wait(&s->mutex));
        s->stock++;
        if (s->stock > s->most) FAIL("%d in stock", s->stock);
        HOT_OK(sem_post(&s->mutex));
        HOT_OK(sem_post(&s->full));
    }
    return NULL;
}

static void *take(void *argument)
{
    struct shop *s = argument;
    for (;;) {
        HOT_OK(sem_wait(&s->full));
        HOT_OK(sem_wait(&s->mutex));
        if (s->stock == 0) { /* told to go */
            HOT_OK(sem_post(&s->mutex));
            return NULL;
        }
        s->stock--;
        HOT_OK(sem_post(&s->mutex));
        HOT_OK(sem_post(&s->free));
        atomic_fetch_add(&s->taken, 1);
    }
}

static void shop(int makers, int takers, int most)
{
    enum { ITEMS = 20000 };
    struct shop s = {.most = most, .left_to_make = ITEMS};
    pthread_t threads[64];
    CHECK_OK(sem_init(&s.free, 0, most));
    CHECK_OK(sem_init(&s.full, 0, 0));
    CHECK_OK(sem_init(&s.mutex, 0, 1));
    for (int i = 0; i < makers + takers; i++) threads[i] = thread_start(i < makers ? make : take, &s);
    for (int i = 0; i < makers; i++) thread_join(threads[i]);
    while (atomic_load(&s.taken) < ITEMS) nap_us(100);
    for (int i = 0; i < takers; i++) CHECK_OK(sem_post(&s.full));
    for (int i = 0; i < takers; i++) thread_join(threads[makers + i]);
    CHECK_EQ(s.stock, 0);
    CHECK_EQ(sem_value(&s.free), most);
    CHECK_EQ(sem_value(&s.full), 0);
    CHECK_EQ(sem_value(&s.mutex), 1);
    CHECK_OK(sem_destroy(&s.free));
    CHECK_OK(sem_destroy(&s.full));
    CHECK_OK(sem_destroy(&s.mutex));
}

CHECK(sem, one_maker_one_taker) { shop(1, 1, 1); }

CHECK(sem, four_makers_four_takers) { shop(4, 4, 3); }

CHECK(sem, many_takers) { shop(2, 40, 5); }

/* Each thread passes what it got on to the next: all of them must get there. */
struct ring {
    sem_t sems[32];
    atomic_int next;
    int rounds;
};

static void *pass_on(void *argument)
{
    struct ring *r = argument;
    int me = atomic_fetch_add(&r->next, 1);
    for (int i = 0; i < r->rounds; i++) {
        HOT_OK(sem_wait(&r->sems[me]));
        HOT_OK(sem_post(&r->sems[(me + 1) % 32]));
    }
    return NULL;
}

CHECK(sem, ring_of_threads)
{
    struct ring r = {.rounds = 100};
    for (int i = 0; i < 32; i++) CHECK_OK(sem_init(&r.sems[i], 0, i < 3));
    threads_run(32, pass_on, &r);
    int permits = 0;
    for (int i = 0; i < 32; i++) permits += sem_value(&r.sems[i]);
    CHECK_EQ(permits, 3);
}

/* ---- Destroyed as soon as a wait has returned ---- */

static void *post_to_page(void *sem)
{
    HOT_OK(sem_post(sem));
    return NULL;
}

/* The post may still be on its way out. */
CHECK(sem, destroyed_right_after_wait)
{
    for (int i = 0; i < 300 && !time_is_short(); i++) {
        sem_t *sem = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK_TRUE(sem != MAP_FAILED, "mmap: %s", code_name(errno));
        HOT_OK(sem_init(sem, 0, 0));
        pthread_t thread = thread_start(post_to_page, sem);
        if (i % 3 == 0) nap_us(100);
        HOT_OK(sem_wait(sem));
        HOT_OK(sem_destroy(sem));
        CHECK_EQ(munmap(sem, 4096), 0);
        thread_join(thread);
    }
}

/* ---- Memory that was a semaphore ---- */

static sem_t was_one;
static int (*foreign_wait)(sem_t *);

static void *wait_foreignly(void *tid)
{
    atomic_store((_Atomic pid_t *)tid, gettid());
    HOT_OK(foreign_wait(&was_one));
    return NULL;
}

/* It becomes the C library's own, initialised past any interposition: a post to it wakes the thread that waits
 * there. */
static void becomes_the_c_librarys(bool destroyed)
{
    void *libc = dlopen(LOCKS_LIBRARY, RTLD_NOW);
    CHECK_TRUE(libc, "%s", dlerror());
    int (*foreign_init)(sem_t *, int, unsigned) = (int (*)(sem_t *, int, unsigned))dlsym(libc, "sem_init");
    foreign_wait = (int (*)(sem_t *))dlsym(libc, "sem_wait");
    for (int shared = 0; shared < 2; shared++) {
        _Atomic pid_t tid = 0;
        CHECK_OK(sem_init(&was_one, 0, 0));
        CHECK_OK(sem_post(&was_one));
        CHECK_OK(sem_wait(&was_one));
        if (destroyed) CHECK_OK(sem_destroy(&was_one));
        CHECK_OK(foreign_init(&was_one, shared, 0));
        pthread_t thread = thread_start(wait_foreignly, &tid);
        while (atomic_load(&tid) == 0) sched_yield();
        settle(tid);
        CHECK_OK(sem_post(&was_one));
        thread_join(thread); /* or hangs */
        CHECK_EQ(sem_value(&was_one), 0);
    }
}

CHECK(sem, destroyed_memory_becomes_the_c_librarys) { becomes_the_c_librarys(true); }

/* Programs may leave sem_destroy out, and free the memory. */
CHECK(sem, memory_that_was_not_destroyed_becomes_the_c_librarys) { becomes_the_c_librarys(false); }
