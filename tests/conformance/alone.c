/*
 * A process that has one thread, and the moment at which it gets a second one, or loses it. Locks may leave out atomic
 * instructions while there is one: what they leave behind must be what any number of threads understands.
 */
#include "slow_motion.h"

#include <semaphore.h>
#include <sys/wait.h>

/* ---- Between two calls ---- */

static pthread_mutex_t mutex;
static int counter;

static void *add_one(void *unused)
{
    CHECK_OK(pthread_mutex_lock(&mutex));
    counter++;
    CHECK_OK(pthread_mutex_unlock(&mutex));
    return unused;
}

static void *nothing(void *unused)
{
    return unused;
}

/* Each in a process of its own, in which no threads have been made. */
static void in_a_child(void (*body)(int), int argument)
{
    pid_t child = fork();
    CHECK_TRUE(child >= 0, "cannot fork");
    if (child == 0) {
        body(argument);
        _exit(0);
    }
    CHECK_EQ(process_status(child), 0);
}

static void begins_while_it_is_held(int kind)
{
    mutex_make(&mutex, kind);
    CHECK_OK(pthread_mutex_lock(&mutex));
    pthread_t thread = thread_start(add_one, NULL);
    nap_ms(2);
    CHECK_EQ(counter, 0);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    thread_join(thread);
    CHECK_EQ(counter, 1);
    check_excludes(&mutex);
    CHECK_OK(pthread_mutex_destroy(&mutex));
}

static void begins_while_it_is_held_by_trylock(int kind)
{
    mutex_make(&mutex, kind);
    CHECK_OK(pthread_mutex_trylock(&mutex));
    CHECK_EQ(trylock_elsewhere(&mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_EQ(trylock_elsewhere(&mutex), 0);
}

static void ends_while_it_is_held(int kind)
{
    mutex_make(&mutex, kind);
    pthread_t thread = thread_start(nothing, NULL);
    CHECK_OK(pthread_mutex_lock(&mutex));
    thread_join(thread);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_OK(pthread_mutex_lock(&mutex));
    CHECK_EQ(trylock_elsewhere(&mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(&mutex));
}

#define MUTEX_CHECKS(title, kind)                                                                            \
    CHECK(alone, a_thread_begins_while_a_##title##_mutex_is_held) { in_a_child(begins_while_it_is_held, kind); }  \
    CHECK(alone, a_thread_begins_while_a_##title##_mutex_is_held_by_trylock)                                 \
    {                                                                                                        \
        in_a_child(begins_while_it_is_held_by_trylock, kind);                                                \
    }                                                                                                        \
    CHECK(alone, a_thread_ends_while_a_##title##_mutex_is_held) { in_a_child(ends_while_it_is_held, kind); }

KINDS(MUTEX_CHECKS)

static sem_t sem;

static void *wait_for_a_permit(void *unused)
{
    CHECK_OK(sem_wait(&sem));
    return unused;
}

static void posts_to_a_new_thread(int permits)
{
    CHECK_OK(sem_init(&sem, 0, (unsigned)permits));
    for (int i = 0; i < permits; i++) CHECK_OK(sem_wait(&sem));
    pthread_t thread = thread_start(wait_for_a_permit, NULL);
    nap_ms(2);
    CHECK_OK(sem_post(&sem));
    thread_join(thread);
}

CHECK(alone, a_thread_waits_for_a_semaphore_used_alone) { in_a_child(posts_to_a_new_thread, 3); }

static volatile sig_atomic_t posts;

static void post(int unused)
{
    (void)unused;
    posts++;
    sem_post(&sem);
}

/* A handler posts between any two instructions of a wait and a post; no permit may be lost. */
static void posts_in_a_handler(int unused)
{
    (void)unused;
    CHECK_OK(sem_init(&sem, 0, 0));
    struct sigaction action = {.sa_handler = post};
    CHECK_EQ(sigaction(SIGALRM, &action, NULL), 0);
    for (long delay = 1; delay < 200; delay++) {
        int before = posts;
        CHECK_EQ(ualarm((useconds_t)delay, 0), 0);
        while (posts == before) {
            HOT_OK(sem_post(&sem));
            while (sem_wait(&sem) != 0) CHECK_EQ(errno, EINTR);
        }
    }
    int value = -1;
    CHECK_OK(sem_getvalue(&sem, &value));
    CHECK_EQ(value, posts);
}

CHECK(alone, a_handler_that_posts_loses_no_permit) { in_a_child(posts_in_a_handler, 0); }

static pthread_rwlock_t rwlock;

static void *add_one_as_writer(void *unused)
{
    CHECK_OK(pthread_rwlock_wrlock(&rwlock));
    counter++;
    CHECK_OK(pthread_rwlock_unlock(&rwlock));
    return unused;
}

static void writer_meets(int writes)
{
    CHECK_OK(pthread_rwlock_init(&rwlock, NULL));
    CHECK_OK(writes ? pthread_rwlock_wrlock(&rwlock) : pthread_rwlock_rdlock(&rwlock));
    pthread_t thread = thread_start(add_one_as_writer, NULL);
    nap_ms(2);
    CHECK_EQ(counter, 0);
    CHECK_OK(pthread_rwlock_unlock(&rwlock));
    thread_join(thread);
    CHECK_EQ(counter, 1);
}

CHECK(alone, a_writer_begins_beside_a_reader) { in_a_child(writer_meets, 0); }
CHECK(alone, a_writer_begins_beside_a_writer) { in_a_child(writer_meets, 1); }

/* ---- Between two instructions. POSIX does not let a handler make threads; programs do. ---- */

static long make_it_at;
static pthread_t company;
static struct gate is_there, go_on;
static void *(*what_it_does)(void *);
static bool handler_waits; /* until the thread says that it is there */

static void make_company(void)
{
    if (slow_steps() != make_it_at) return;
    company = thread_start(what_it_does, NULL);
    if (handler_waits)
        gate_wait(&is_there, 1);
    else
        nap_ms(2);
}

enum { NO_MORE_STEPS = 3 };

/* Makes a thread that `does` this in a handler at one instruction after another of `act`, each time in a process that
   has none yet, with a mutex that it alone has used. */
static void at_each_instruction(int kind, void (*act)(void), void *(*does)(void *), bool waits)
{
    what_it_does = does;
    handler_waits = waits;
    for (make_it_at = 1; !time_is_short(); make_it_at++) {
        pid_t child = fork();
        CHECK_TRUE(child >= 0, "cannot fork");
        if (child == 0) {
            mutex_make(&mutex, kind);
            /* Once at full speed: lazy binding is none of our business. */
            CHECK_OK(pthread_mutex_lock(&mutex));
            CHECK_OK(pthread_mutex_unlock(&mutex));
            act();
            _exit(company ? 0 : NO_MORE_STEPS);
        }
        int status = process_status(child);
        if (status == NO_MORE_STEPS) return;
        CHECK_EQ(status, 0);
    }
}

/* If it is free. */
static void *take_it_and_give_it_back(void *unused)
{
    int rc = pthread_mutex_trylock(&mutex);
    if (rc == 0)
        CHECK_OK(pthread_mutex_unlock(&mutex));
    else
        CHECK_RC(rc, EBUSY);
    gate_open(&is_there);
    gate_wait(&go_on, 1); /* alive, so that the process has company */
    return unused;
}

static volatile bool is_inside;

static void *take_it_and_hold_it(void *unused)
{
    CHECK_OK(pthread_mutex_lock(&mutex));
    is_inside = true;
    nap_ms(5);
    is_inside = false;
    CHECK_OK(pthread_mutex_unlock(&mutex));
    return unused;
}

static void *wait_for_it(void *unused)
{
    CHECK_OK(pthread_mutex_lock(&mutex));
    gate_wait(&go_on, 1);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    return unused;
}

static void lock_slowly(void)
{
    slow_begin(make_company);
    int rc = pthread_mutex_lock(&mutex);
    slow_end();
    CHECK_OK(rc);
    if (!company) return;
    CHECK_EQ(trylock_elsewhere(&mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_EQ(trylock_elsewhere(&mutex), 0);
    gate_open(&go_on);
    thread_join(company);
}

static void unlock_slowly(void)
{
    CHECK_OK(pthread_mutex_lock(&mutex));
    slow_begin(make_company);
    int rc = pthread_mutex_unlock(&mutex);
    slow_end();
    CHECK_OK(rc);
    gate_open(&go_on);
    if (!company) return;
    thread_join(company);
    CHECK_EQ(trylock_elsewhere(&mutex), 0);
}

#define SLOW_CHECKS(title, kind)                                                                  \
    CHECK(alone, a_thread_takes_and_gives_a_##title##_mutex_at_any_instruction_of_lock)           \
    {                                                                                             \
        at_each_instruction(kind, lock_slowly, take_it_and_give_it_back, true);                   \
    }                                                                                             \
    CHECK(alone, a_thread_tries_a_##title##_mutex_at_any_instruction_of_unlock)                   \
    {                                                                                             \
        at_each_instruction(kind, unlock_slowly, take_it_and_give_it_back, true);                 \
    }

KINDS(SLOW_CHECKS)

static void lock_slowly_against_a_holder(void)
{
    slow_begin(make_company);
    int rc = pthread_mutex_lock(&mutex);
    slow_end();
    CHECK_OK(rc);
    CHECK_TRUE(!is_inside, "two threads hold the mutex");
    CHECK_OK(pthread_mutex_unlock(&mutex));
    if (company) thread_join(company);
}

CHECK(alone, a_thread_holds_a_mutex_from_any_instruction_of_lock_on)
{
    if (locks_are_glibcs()) SKIP("glibc's looks at the mutex, and stores");
    at_each_instruction(KIND_DEFAULT, lock_slowly_against_a_holder, take_it_and_hold_it, false);
}

CHECK(alone, a_thread_begins_to_wait_at_any_instruction_of_unlock)
{
    if (locks_are_glibcs()) SKIP("glibc's wakes nobody then");
    at_each_instruction(KIND_DEFAULT, unlock_slowly, wait_for_it, false);
}
