/* Sections of delegated locks, from C: what they are given, what comes back, where they run, what is refused. */
#include "conformance.h"

#include <flashlock_rcl.h>
#include <stdio.h>
#include <sys/syscall.h>

/* What a section of these checks works on. Nothing but the lock protects it. */
struct work {
    flashlock_rcl_t lock, other;
    flashlock_rcl_server_t *server;
    long count;
    pid_t thread;
};

enum { THREADS = 4, ROUNDS = 5000 };

static pid_t here(void)
{
    return (pid_t)syscall(SYS_gettid);
}

static void *add(void *context)
{
    struct work *work = context;
    work->thread = here();
    return (void *)(intptr_t)++work->count;
}

static void *add_often(void *context)
{
    struct work *work = context;
    for (int round = 0; round < ROUNDS; round++) {
        void *result;
        HOT_OK(flashlock_rcl_exec(&work->lock, add, work, &result));
        if ((intptr_t)result < 1 || (intptr_t)result > THREADS * ROUNDS)
            FAIL("a result is %ld", (long)(intptr_t)result);
    }
    return NULL;
}

/* All increments survive, and the section runs where it should. */
static void excludes(int kind)
{
    struct work work = {0};
    CHECK_OK(flashlock_rcl_init(&work.lock, kind, NULL));
    threads_run(THREADS, add_often, &work);
    CHECK_EQ(work.count, THREADS * ROUNDS);
    CHECK_OK(flashlock_rcl_exec(&work.lock, add, &work, NULL));
    CHECK_EQ(work.thread == here(), kind == FLASHLOCK_RCL_ORDINARY);
    CHECK_EQ(flashlock_rcl_server_of(&work.lock) == 0, kind == FLASHLOCK_RCL_ORDINARY);
    CHECK_OK(flashlock_rcl_destroy(&work.lock));
}

CHECK(sections, ordinary)
{
    excludes(FLASHLOCK_RCL_ORDINARY);
}

CHECK(sections, delegated)
{
    excludes(FLASHLOCK_RCL_DELEGATED);
}

CHECK(sections, a_static_initialiser_is_an_ordinary_lock)
{
    static flashlock_rcl_t lock = FLASHLOCK_RCL_INITIALIZER;
    struct work work = {0};
    CHECK_OK(flashlock_rcl_exec(&lock, add, &work, NULL));
    CHECK_EQ(work.thread, here());
    CHECK_EQ(flashlock_rcl_server_of(&lock), 0);
}

static atomic_bool over;

static void *move_about(void *context)
{
    struct work *work = context;
    flashlock_rcl_server_t *second;
    CHECK_OK(flashlock_rcl_server_named(&second, "second"));
    for (unsigned turn = 0; !over; turn++) {
        flashlock_rcl_server_t *there[] = {work->server, NULL, second};
        HOT_OK(flashlock_rcl_assign(&work->lock, there[turn % 3]));
    }
    return NULL;
}

CHECK(sections, locks_move_while_they_are_used)
{
    struct work work = {0};
    CHECK_OK(flashlock_rcl_server_open(&work.server, NULL));
    pthread_t mover = thread_start(move_about, &work);
    threads_run(THREADS, add_often, &work);
    over = true;
    thread_join(mover);
    CHECK_EQ(work.count, THREADS * ROUNDS);
    CHECK_OK(flashlock_rcl_server_close(work.server));
    CHECK_OK(flashlock_rcl_exec(&work.lock, add, &work, NULL));
    CHECK_OK(flashlock_rcl_destroy(&work.lock));
}

CHECK(sections, a_closed_servers_lock_is_ordinary)
{
    struct work work = {0};
    CHECK_OK(flashlock_rcl_server_open(&work.server, NULL));
    CHECK_OK(flashlock_rcl_assign(&work.lock, work.server));
    CHECK_OK(flashlock_rcl_exec(&work.lock, add, &work, NULL));
    CHECK_TRUE(work.thread != here(), "the section ran in its client");
    CHECK_OK(flashlock_rcl_server_close(work.server));
    CHECK_OK(flashlock_rcl_exec(&work.lock, add, &work, NULL));
    CHECK_EQ(work.thread, here());
    CHECK_EQ(work.count, 2);
}

/* ---- Inside a section ---------------------------------------------------------------------------------------- */

static void *nest(void *context)
{
    struct work *work = context;
    pid_t outer = here();
    CHECK_OK(flashlock_rcl_exec(&work->other, add, work, NULL));
    CHECK_EQ(work->thread, outer);
    return NULL;
}

CHECK(sections, nested_ones_of_a_server_run_in_place)
{
    struct work work = {0};
    CHECK_OK(flashlock_rcl_init(&work.lock, FLASHLOCK_RCL_DELEGATED, NULL));
    CHECK_OK(flashlock_rcl_init(&work.other, FLASHLOCK_RCL_DELEGATED, NULL));
    CHECK_OK(flashlock_rcl_exec(&work.lock, nest, &work, NULL));
    CHECK_EQ(work.count, 1);
}

static void *ask_again(void *context)
{
    struct work *work = context;
    CHECK_RC(flashlock_rcl_exec(&work->lock, add, work, NULL), EDEADLK);
    CHECK_TRUE(strstr(flashlock_rcl_error(), "wait for itself"), "the words: %s", flashlock_rcl_error());
    CHECK_RC(flashlock_rcl_assign(&work->lock, NULL), EDEADLK);
    CHECK_RC(flashlock_rcl_destroy(&work->lock), EBUSY);
    if (work->server) CHECK_RC(flashlock_rcl_server_close(work->server), EDEADLK);
    return NULL;
}

CHECK(sections, one_of_the_same_lock_inside_is_refused)
{
    struct work work = {0};
    CHECK_OK(flashlock_rcl_exec(&work.lock, ask_again, &work, NULL));
    CHECK_OK(flashlock_rcl_server_open(&work.server, NULL));
    CHECK_OK(flashlock_rcl_assign(&work.lock, work.server));
    CHECK_OK(flashlock_rcl_exec(&work.lock, ask_again, &work, NULL));
    CHECK_OK(flashlock_rcl_exec(&work.lock, add, &work, NULL));
    CHECK_EQ(work.count, 1);
}

static _Thread_local int own = 1;

static void *set_own(void *context)
{
    (void)context;
    own = 2;
    errno = ENOTTY;
    return &own;
}

CHECK(sections, thread_local_variables_and_errno_are_the_servers)
{
    flashlock_rcl_t lock;
    void *there;
    CHECK_OK(flashlock_rcl_init(&lock, FLASHLOCK_RCL_DELEGATED, NULL));
    errno = EXDEV;
    CHECK_OK(flashlock_rcl_exec(&lock, set_own, NULL, &there));
    CHECK_EQ(errno, EXDEV);
    CHECK_EQ(own, 1);
    CHECK_TRUE(there != &own, "the server's thread-local variable is the client's");
}

static void *leave(void *context)
{
    (void)context;
    pthread_exit(NULL);
}

CHECK(sections, whoever_does_not_return_ends_the_program)
{
    pid_t child = fork();
    if (child == 0) {
        flashlock_rcl_t lock = FLASHLOCK_RCL_INITIALIZER;
        flashlock_rcl_exec(&lock, leave, NULL, NULL);
        _exit(0);
    }
    CHECK_EQ(process_status(child), 256 + SIGABRT);
}

static atomic_int begun, goes;

static void *wait_and_add(void *context)
{
    begun = 1;
    while (!goes) nap_ms(1);
    return add(context);
}

static void *is_cancelled(void *context)
{
    struct work *work = context;
    void *result;
    HOT_OK(flashlock_rcl_exec(&work->lock, wait_and_add, work, &result));
    if ((intptr_t)result != 1)
        FAIL("the section's result is %ld", (long)(intptr_t)result);
    pthread_testcancel();
    return NULL;
}

/* The thread posted its request before it was cancelled. Its section is done, and its client number is given back. */
CHECK(sections, a_thread_that_is_cancelled_while_it_waits)
{
    struct work work = {0};
    struct flashlock_rcl_statistics found;
    CHECK_OK(flashlock_rcl_server_open(&work.server, NULL));
    CHECK_OK(flashlock_rcl_assign(&work.lock, work.server));
    pthread_t client = thread_start(is_cancelled, &work);
    while (!begun) nap_ms(1);
    CHECK_OK(pthread_cancel(client));
    nap_ms(20);
    goes = 1;
    CHECK_TRUE(thread_join(client) == PTHREAD_CANCELED, "the thread was not cancelled");
    CHECK_EQ(work.count, 1);
    CHECK_OK(flashlock_rcl_exec(&work.lock, add, &work, NULL));
    CHECK_EQ(work.count, 2);
    CHECK_OK(flashlock_rcl_server_statistics(work.server, &found, sizeof found));
    CHECK_EQ(found.clients, 1);
    CHECK_OK(flashlock_rcl_server_close(work.server));
    CHECK_OK(flashlock_rcl_destroy(&work.lock));
}

CHECK(sections, a_forked_child_goes_on)
{
    struct work work = {0};
    CHECK_OK(flashlock_rcl_init(&work.lock, FLASHLOCK_RCL_DELEGATED, NULL));
    CHECK_OK(flashlock_rcl_exec(&work.lock, add, &work, NULL));
    pid_t child = fork();
    if (child == 0) {
        CHECK_OK(flashlock_rcl_exec(&work.lock, add, &work, NULL));
        CHECK_EQ(work.thread, here());
        CHECK_OK(flashlock_rcl_init(&work.other, FLASHLOCK_RCL_DELEGATED, NULL));
        CHECK_OK(flashlock_rcl_exec(&work.other, add, &work, NULL));
        CHECK_TRUE(work.thread != here(), "the child has no server of its own");
        _exit(0);
    }
    CHECK_EQ(process_status(child), 0);
}

/* ---- Errors and statistics -------------------------------------------------------------------------------------- */

CHECK(errors, null_and_nonsense_are_refused)
{
    struct work work = {0};
    flashlock_rcl_cond_t cond = FLASHLOCK_RCL_COND_INITIALIZER;
    struct timespec then = {0, -1};
    errno = 0;
    CHECK_RC(flashlock_rcl_init(NULL, FLASHLOCK_RCL_ORDINARY, NULL), EINVAL);
    CHECK_RC(flashlock_rcl_init(&work.lock, 77, NULL), EINVAL);
    CHECK_TRUE(strstr(flashlock_rcl_error(), "77"), "the words: %s", flashlock_rcl_error());
    CHECK_RC(flashlock_rcl_init(&work.lock, FLASHLOCK_RCL_ORDINARY, "\xff"), EINVAL);
    CHECK_RC(flashlock_rcl_destroy(NULL), EINVAL);
    CHECK_RC(flashlock_rcl_exec(NULL, add, &work, NULL), EINVAL);
    CHECK_RC(flashlock_rcl_exec(&work.lock, NULL, &work, NULL), EINVAL);
    CHECK_RC(flashlock_rcl_assign(NULL, NULL), EINVAL);
    CHECK_EQ(flashlock_rcl_server_of(NULL), 0);
    CHECK_RC(flashlock_rcl_cond_wait(NULL, &work.lock), EINVAL);
    CHECK_RC(flashlock_rcl_cond_wait(&cond, NULL), EINVAL);
    CHECK_RC(flashlock_rcl_cond_wait(&cond, &work.lock), EPERM);
    CHECK_RC(flashlock_rcl_cond_clockwait(&cond, &work.lock, CLOCK_MONOTONIC, &then), EINVAL);
    CHECK_RC(flashlock_rcl_cond_clockwait(&cond, &work.lock, CLOCK_MONOTONIC, NULL), EINVAL);
    CHECK_RC(flashlock_rcl_cond_clockwait(&cond, &work.lock, CLOCK_PROCESS_CPUTIME_ID, &then), EINVAL);
    CHECK_RC(flashlock_rcl_cond_signal(NULL), EINVAL);
    CHECK_RC(flashlock_rcl_cond_broadcast(NULL), EINVAL);
    CHECK_RC(flashlock_rcl_server_open(NULL, NULL), EINVAL);
    CHECK_RC(flashlock_rcl_server_named(&work.server, NULL), EINVAL);
    CHECK_RC(flashlock_rcl_server_close(NULL), EINVAL);
    CHECK_RC(flashlock_rcl_server_statistics(NULL, NULL, 0), EINVAL);
    CHECK_EQ(flashlock_rcl_server_number(NULL), 0);
    CHECK_EQ(errno, 0);
}

CHECK(errors, options_out_of_range_are_refused)
{
    flashlock_rcl_server_t *server = NULL;
    struct flashlock_rcl_server_options options = FLASHLOCK_RCL_SERVER_OPTIONS;
    options.threads = 4095;
    CHECK_RC(flashlock_rcl_server_open(&server, &options), EINVAL);
    CHECK_TRUE(strstr(flashlock_rcl_error(), "1 to 4094"), "the words: %s", flashlock_rcl_error());
    options = (struct flashlock_rcl_server_options)FLASHLOCK_RCL_SERVER_OPTIONS;
    options.cpu = -2;
    CHECK_RC(flashlock_rcl_server_open(&server, &options), EINVAL);
    CHECK_TRUE(server == NULL, "a server was opened");
}

CHECK(errors, a_named_server_is_never_closed)
{
    flashlock_rcl_server_t *server, *again;
    CHECK_OK(flashlock_rcl_server_named(&server, "hot"));
    CHECK_OK(flashlock_rcl_server_named(&again, "hot"));
    CHECK_TRUE(server == again, "two servers have the same name");
    CHECK_RC(flashlock_rcl_server_close(server), EINVAL);
}

CHECK(statistics, sections_are_counted)
{
    struct work work = {0};
    struct flashlock_rcl_server_options options = FLASHLOCK_RCL_SERVER_OPTIONS;
    struct flashlock_rcl_statistics statistics;
    options.real_time = 1;
    CHECK_OK(flashlock_rcl_server_open(&work.server, &options));
    CHECK_OK(flashlock_rcl_assign(&work.lock, work.server));
    threads_run(THREADS, add_often, &work);
    do { /* A scan counts when it ends, which may be after its last client has gone on. */
        CHECK_OK(flashlock_rcl_server_statistics(work.server, &statistics, sizeof statistics));
    } while (statistics.sections < THREADS * ROUNDS);
    CHECK_EQ(statistics.sections, THREADS * ROUNDS);
    CHECK_TRUE(statistics.use_rate > 0 && statistics.use_rate <= 1, "the use rate is %f", statistics.use_rate);
    CHECK_EQ(statistics.mixed_scans, 0);
    CHECK_EQ(flashlock_rcl_server_number(work.server), flashlock_rcl_server_of(&work.lock));
}

CHECK(statistics, older_and_newer_programs_get_what_they_know)
{
    flashlock_rcl_server_t *server;
    struct {
        struct flashlock_rcl_statistics known;
        uint64_t more;
    } newer;
    uint64_t older[2];
    memset(&newer, 0xff, sizeof newer);
    memset(older, 0xff, sizeof older);
    CHECK_OK(flashlock_rcl_server_open(&server, NULL));
    CHECK_OK(flashlock_rcl_server_statistics(server, &newer.known, sizeof newer));
    CHECK_EQ(newer.more, 0);
    CHECK_EQ(newer.known.sections, 0);
    CHECK_OK(flashlock_rcl_server_statistics(server, (struct flashlock_rcl_statistics *)(void *)older, 8));
    CHECK_EQ((long long)older[1], -1);
}
