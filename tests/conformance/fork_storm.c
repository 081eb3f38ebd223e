/* Making processes, in every way, while threads hammer mutexes. */
#include "conformance.h"

#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

extern char **environ;

/* ---- Threads that never rest ---- */

enum { HAMMERS = 3 };

static pthread_mutex_t guarded = PTHREAD_MUTEX_INITIALIZER;   /* taken by the atfork handlers */
static pthread_mutex_t unguarded = PTHREAD_MUTEX_INITIALIZER; /* not: unusable in the child */
static volatile long guarded_count, unguarded_count;
static atomic_bool stop;
static atomic_long strokes;
static pthread_t hammers[HAMMERS];

static void *hammer(void *unused)
{
    for (int i = 0; !atomic_load(&stop); i++) {
        HOT_OK(pthread_mutex_lock(&guarded));
        long seen = guarded_count;
        if (i % 100 == 0) sched_yield();
        guarded_count = seen + 1;
        HOT_OK(pthread_mutex_unlock(&guarded));
        HOT_OK(pthread_mutex_lock(&unguarded));
        unguarded_count++;
        HOT_OK(pthread_mutex_unlock(&unguarded));
        atomic_fetch_add(&strokes, 1);
        if (i % 64 == 0) nap_us(20); /* no lock promises the forking thread its turn */
    }
    return unused;
}

static void hammers_start(void)
{
    for (int i = 0; i < HAMMERS; i++) hammers[i] = thread_start(hammer, NULL);
}

static void hammers_stop(void)
{
    atomic_store(&stop, true);
    for (int i = 0; i < HAMMERS; i++) thread_join(hammers[i]);
    CHECK_EQ(guarded_count, atomic_load(&strokes));
    CHECK_EQ(unguarded_count, atomic_load(&strokes));
    CHECK_OK(trylock_elsewhere(&guarded));
    CHECK_OK(trylock_elsewhere(&unguarded));
}

/* ---- atfork handlers ---- */

static void lock_guarded(void)
{
    CHECK_OK(pthread_mutex_lock(&guarded));
}

static void unlock_guarded(void)
{
    CHECK_OK(pthread_mutex_unlock(&guarded));
}

static void remake_in_child(void)
{
    CHECK_OK(pthread_mutex_unlock(&guarded));
    CHECK_OK(pthread_mutex_init(&unguarded, NULL));
}

static void *use_guarded(void *unused)
{
    for (int i = 0; i < 50; i++) {
        CHECK_OK(pthread_mutex_lock(&guarded));
        guarded_count++;
        CHECK_OK(pthread_mutex_unlock(&guarded));
        CHECK_OK(pthread_mutex_lock(&unguarded));
        CHECK_OK(pthread_mutex_unlock(&unguarded));
    }
    return unused;
}

static _Noreturn void live_as_child(void)
{
    long before = guarded_count;
    use_guarded(NULL);
    threads_run(2, use_guarded, NULL);
    CHECK_EQ(guarded_count, before + 150);
    _exit(0);
}

CHECK(fork, storm_with_atfork_handlers)
{
    CHECK_OK(pthread_atfork(lock_guarded, unlock_guarded, remake_in_child));
    hammers_start();
    for (int i = 0; i < 100 && !time_is_short(); i++) {
        pid_t pid = fork();
        if (pid == 0) live_as_child();
        CHECK_EQ(process_status(pid), 0);
    }
    hammers_stop();
}

static void *fork_many(void *unused)
{
    for (int i = 0; i < 20 && !time_is_short(); i++) {
        pid_t pid = fork();
        if (pid == 0) live_as_child();
        CHECK_EQ(process_status(pid), 0);
    }
    return unused;
}

CHECK(fork, storm_by_three_threads_at_once)
{
    CHECK_OK(pthread_atfork(lock_guarded, unlock_guarded, remake_in_child));
    hammers_start();
    threads_run(3, fork_many, NULL);
    hammers_stop();
}

/* A mutex only this thread uses, while others are being fought over; held or not at the time of the fork. */
CHECK(fork, storm_leaves_a_quiet_mutex_usable)
{
    pthread_mutex_t quiet = PTHREAD_MUTEX_INITIALIZER;
    hammers_start();
    for (int i = 0; i < 40 && !time_is_short(); i++) {
        if (i % 2) CHECK_OK(pthread_mutex_lock(&quiet));
        pid_t pid = i % 4 < 2 ? fork() : raw_fork();
        if (i % 2) CHECK_OK(pthread_mutex_unlock(&quiet));
        if (pid == 0) {
            for (int lap = 0; lap < 1000; lap++) {
                CHECK_OK(pthread_mutex_lock(&quiet));
                CHECK_OK(pthread_mutex_unlock(&quiet));
            }
            CHECK_OK(trylock_elsewhere(&quiet));
            _exit(0);
        }
        CHECK_EQ(process_status(pid), 0);
    }
    hammers_stop();
}

/* ---- A condition variable that is in use at the time of the fork ---- */

static struct sleepers crowd = SLEEPERS_INITIALIZER;

static void *signal_and_time_out(void *unused)
{
    struct timespec past = {1, 0};
    for (int i = 0; !atomic_load(&stop); i++) {
        HOT_OK(pthread_cond_signal(&crowd.cond));
        HOT_OK(pthread_mutex_lock(&crowd.mutex));
        int rc = pthread_cond_timedwait(&crowd.cond, &crowd.mutex, &past);
        if (rc != 0) HOT_RC(rc, ETIMEDOUT); /* or it has had a signal */
        HOT_OK(pthread_mutex_unlock(&crowd.mutex));
        if (i % 16 == 0) HOT_OK(pthread_cond_broadcast(&crowd.cond));
        if (i % 64 == 0) nap_us(20);
    }
    return unused;
}

CHECK(fork, storm_leaves_a_condition_usable)
{
    GLIBC_CANNOT("a child of glibc's may find the internal lock of its condition variable held for ever");
    sleepers_start(&crowd, 2);
    for (int i = 0; i < HAMMERS; i++) hammers[i] = thread_start(signal_and_time_out, NULL);
    for (int i = 0; i < 200 && !time_is_short(); i++) {
        pid_t pid = i % 2 ? fork() : raw_fork();
        if (pid == 0) {
            sleepers_use_inherited(&crowd);
            _exit(0);
        }
        CHECK_EQ(process_status(pid), 0);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < HAMMERS; i++) thread_join(hammers[i]);
    sleepers_give(&crowd, crowd.count);
    CHECK_OK(pthread_cond_broadcast(&crowd.cond));
    sleepers_join(&crowd);
}

/* ---- New programs ---- */

CHECK(fork, vfork_and_exec)
{
    pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
    struct locker waiter;
    hammers_start();
    CHECK_OK(pthread_mutex_lock(&held));
    locker_start(&waiter, &held, NULL, NULL);
    for (int i = 0; i < 20 && !time_is_short(); i++) {
        pid_t pid = vfork();
        if (pid == 0) {
            execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
            _exit(127);
        }
        CHECK_EQ(process_status(pid), 7);
    }
    CHECK_OK(pthread_mutex_unlock(&held));
    locker_join(&waiter);
    hammers_stop();
}

CHECK(fork, posix_spawn)
{
    char *arguments[] = {"sh", "-c", "exit 7", NULL};
    hammers_start();
    for (int i = 0; i < 20 && !time_is_short(); i++) {
        pid_t pid;
        CHECK_OK(posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environ));
        CHECK_EQ(process_status(pid), 7);
    }
    hammers_stop();
}

CHECK(fork, system)
{
    hammers_start();
    for (int i = 0; i < 20 && !time_is_short(); i++) CHECK_EQ(WEXITSTATUS(system("exit 7")), 7);
    hammers_stop();
}

CHECK(fork, popen)
{
    hammers_start();
    for (int i = 0; i < 20 && !time_is_short(); i++) {
        char line[16] = "";
        FILE *pipe = popen("echo hello; exit 7", "r");
        CHECK_TRUE(pipe && fgets(line, sizeof line, pipe), "nothing came through the pipe");
        CHECK_EQ(strcmp(line, "hello\n"), 0);
        CHECK_EQ(WEXITSTATUS(pclose(pipe)), 7);
    }
    hammers_stop();
}

/* exec ends all threads, whatever they hold or wait for; the new program starts clean. */
CHECK(fork, exec_by_a_process_with_waiting_threads)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct locker waiters[4];
        hammers_start();
        CHECK_OK(pthread_mutex_lock(&guarded));
        for (int i = 0; i < 4; i++) locker_start(&waiters[i], &guarded, NULL, NULL);
        execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
        _exit(127);
    }
    CHECK_EQ(process_status(pid), 7);
}
