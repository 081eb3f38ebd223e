/*
 * Locks before main: in .preinit_array (before any library's constructor has run), in the program's early constructors,
 * in constructors of libraries loaded then or later; and locks of libraries that come and go.
 *
 * The early code runs only in the process that was started for its check.
 */
#include "conformance.h"

#include <dlfcn.h>
#include <stdio.h>

/* ---- What is done early ---- */

static pthread_mutex_t early_default = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t early_recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t early_errorcheck = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_mutex_t early_held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t early_cond = PTHREAD_COND_INITIALIZER;
static struct sleepers early_sleepers = SLEEPERS_INITIALIZER;
static pthread_mutex_t *early_made;
static int early_runs;

static void early_locks(void)
{
    for (int i = 0; i < 1000; i++) {
        CHECK_OK(pthread_mutex_lock(&early_default));
        CHECK_RC(pthread_mutex_trylock(&early_default), EBUSY);
        CHECK_OK(pthread_mutex_unlock(&early_default));
        CHECK_OK(pthread_mutex_lock(&early_recursive));
        CHECK_OK(pthread_mutex_lock(&early_recursive));
        CHECK_OK(pthread_mutex_unlock(&early_recursive));
        CHECK_OK(pthread_mutex_unlock(&early_recursive));
        CHECK_RC(pthread_mutex_unlock(&early_recursive), EPERM);
        CHECK_OK(pthread_mutex_lock(&early_errorcheck));
        CHECK_RC(pthread_mutex_lock(&early_errorcheck), EDEADLK);
        CHECK_OK(pthread_mutex_unlock(&early_errorcheck));
    }
    CHECK_OK(pthread_mutex_lock(&early_held)); /* until main */
    early_made = calloc(1, sizeof *early_made);
    CHECK_OK(pthread_mutex_init(early_made, NULL));
    CHECK_OK(pthread_mutex_lock(early_made));
    early_runs++;
}

static void early_timeouts(void)
{
    struct timespec deadline = time_after_ms(CLOCK_REALTIME, 5);
    int rc;
    CHECK_OK(pthread_mutex_lock(&early_default));
    CHECK_RC(pthread_mutex_timedlock(&early_default, &deadline), ETIMEDOUT);
    CHECK_REACHED(CLOCK_REALTIME, deadline);
    deadline = time_after_ms(CLOCK_MONOTONIC, 5);
    CHECK_RC(pthread_mutex_clocklock(&early_default, CLOCK_MONOTONIC, &deadline), ETIMEDOUT);
    while ((rc = pthread_cond_clockwait(&early_cond, &early_default, CLOCK_MONOTONIC, &deadline)) == 0)
        ;
    CHECK_RC(rc, ETIMEDOUT);
    deadline = time_after_ms(CLOCK_REALTIME, 5);
    while ((rc = pthread_cond_timedwait(&early_cond, &early_default, &deadline)) == 0)
        ;
    CHECK_RC(rc, ETIMEDOUT);
    CHECK_REACHED(CLOCK_REALTIME, deadline);
    CHECK_OK(pthread_cond_signal(&early_cond));
    CHECK_OK(pthread_mutex_unlock(&early_default));
    early_runs++;
}

static void early_threads(void)
{
    check_excludes(&early_default);
    check_excludes(&early_recursive);
    sleepers_start(&early_sleepers, 4); /* they wait until main */
    early_runs++;
}

/* ---- When ---- */

static const struct {
    const char *check;
    void (*action)(void);
    bool preinit;
} early_actions[] = {
    {"constructors.preinit_locks", early_locks, true},
    {"constructors.preinit_timeouts", early_timeouts, true},
    {"constructors.preinit_threads", early_threads, true},
    {"constructors.constructor_locks", early_locks, false},
    {"constructors.constructor_timeouts", early_timeouts, false},
    {"constructors.constructor_threads", early_threads, false},
};

static void act_early(int count, char **arguments, bool preinit)
{
    if (count < 3 || strcmp(arguments[1], "--one") != 0) return;
    for (size_t i = 0; i < sizeof early_actions / sizeof *early_actions; i++)
        if (early_actions[i].preinit == preinit && strcmp(early_actions[i].check, arguments[2]) == 0)
            early_actions[i].action();
}

/* The C library passes the arguments of main to both. */
static void at_preinit(int count, char **arguments, char **environment)
{
    (void)environment;
    act_early(count, arguments, true);
}

static void (*const preinit_entry)(int, char **, char **)
    __attribute__((used, section(".preinit_array"))) = at_preinit;

__attribute__((constructor(101))) static void at_construction(int count, char **arguments, char **environment)
{
    (void)environment;
    act_early(count, arguments, false);
}

/* ---- And what main finds ---- */

static void after_locks(void)
{
    struct locker waiter;
    CHECK_EQ(early_runs, 1);
    CHECK_RC(trylock_elsewhere(&early_held), EBUSY);
    CHECK_RC(trylock_elsewhere(early_made), EBUSY);
    locker_start(&waiter, &early_held, NULL, NULL);
    CHECK_OK(pthread_mutex_unlock(&early_held));
    locker_join(&waiter);
    CHECK_OK(pthread_mutex_unlock(early_made));
    check_excludes(&early_held);
    check_excludes(&early_default);
    check_excludes(&early_recursive);
    check_excludes(early_made);
    CHECK_OK(pthread_mutex_destroy(early_made));
    free(early_made);
}

static void after_timeouts(void)
{
    CHECK_EQ(early_runs, 1);
    check_excludes(&early_default);
    CHECK_OK(pthread_cond_destroy(&early_cond));
}

static void after_threads(void)
{
    CHECK_EQ(early_runs, 1);
    sleepers_give(&early_sleepers, 4);
    CHECK_OK(pthread_cond_broadcast(&early_sleepers.cond));
    sleepers_join(&early_sleepers);
    check_excludes(&early_default);
}

CHECK(constructors, preinit_locks) { after_locks(); }

CHECK(constructors, preinit_timeouts) { after_timeouts(); }

CHECK(constructors, preinit_threads) { after_threads(); }

CHECK(constructors, constructor_locks) { after_locks(); }

CHECK(constructors, constructor_timeouts) { after_timeouts(); }

CHECK(constructors, constructor_threads) { after_threads(); }

/* ---- Libraries ---- */

static void *open_plugin(const char *name)
{
    void *plugin = dlopen(beside_program(name), RTLD_NOW | RTLD_LOCAL);
    if (!plugin) FAIL("%s", dlerror());
    return plugin;
}

static void *function(void *plugin, const char *name)
{
    void *address = dlsym(plugin, name);
    if (!address) FAIL("%s", dlerror());
    return address;
}

CHECK(constructors, library_constructor_locks)
{
    for (int i = 0; i < 10; i++) {
        void *plugin = open_plugin("plugin_ctor.so");
        int (*result)(void) = (int (*)(void))function(plugin, "ctor_result");
        CHECK_EQ(result(), 1); /* 0: did not run, else the line that failed */
        CHECK_EQ(dlclose(plugin), 0);
    }
}

/* Loaded at start: before the preloads it may be found next to, and after them. */
static void preloaded(bool first)
{
    const char *others = getenv("LD_PRELOAD");
    const char *plugin = beside_program("plugin_ctor.so");
    char list[2 * PATH_MAX];
    if (!others) others = "";
    snprintf(list, sizeof list, "%s %s", first ? plugin : others, first ? others : plugin);
    pid_t pid = fork();
    if (pid == 0) {
        setenv("LD_PRELOAD", list, 1);
        setenv("CONFORMANCE_ABORT", "1", 1);
        execl("/proc/self/exe", "conformance", "--one", "constructors.preinit_locks", (char *)NULL);
        _exit(127);
    }
    CHECK_EQ(process_status(pid), 0);
}

CHECK(constructors, preloaded_library_constructor_locks_first) { preloaded(true); }

CHECK(constructors, preloaded_library_constructor_locks_last) { preloaded(false); }

static int (*hammer)(int rounds);

static void *hammer_plugin(void *unused)
{
    CHECK_OK(hammer(300));
    return unused;
}

CHECK(constructors, library_with_static_mutexes_comes_and_goes)
{
    for (int i = 0; i < 50 && !time_is_short(); i++) {
        void *plugin = open_plugin("plugin_statics.so");
        hammer = (int (*)(int))function(plugin, "statics_hammer");
        long (*total)(void) = (long (*)(void))function(plugin, "statics_total");
        threads_run(4, hammer_plugin, NULL);
        CHECK_EQ(total(), 4 * 300 * 5); /* from zero each time: it was really gone */
        CHECK_EQ(dlclose(plugin), 0);
    }
}

CHECK(constructors, library_opened_by_threads_at_once)
{
    void *plugin = open_plugin("plugin_statics.so");
    hammer = (int (*)(int))function(plugin, "statics_hammer");
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = thread_start(hammer_plugin, NULL);
    for (int i = 0; i < 200 && !time_is_short(); i++) {
        void *other = open_plugin("plugin_ctor.so");
        CHECK_EQ(dlclose(other), 0);
    }
    for (int i = 0; i < 4; i++) thread_join(threads[i]);
    CHECK_EQ(dlclose(plugin), 0);
}
