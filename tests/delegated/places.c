/* Which server runs which lock: the variables and the file. Each check has a process of its own, and so its own. */
#include "conformance.h"

#include <flashlock_rcl.h>
#include <fcntl.h>
#include <stdio.h>

static char path[4096];

/* Writes the file and names it in the variable. */
static void configure(const char *text)
{
    const char *directory = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    snprintf(path, sizeof path, "%s/flashlock-rcl-%d.toml", directory, (int)getpid());
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK_EQ(write(file, text, strlen(text)), (long long)strlen(text));
    CHECK_OK(close(file));
    CHECK_OK(setenv("FLASHLOCK_RCL_CONFIG", path, 1));
}

/* The number of the server of a lock that its program makes so. */
static uint32_t server_of(int kind, const char *name)
{
    flashlock_rcl_t lock;
    CHECK_OK(flashlock_rcl_init(&lock, kind, name));
    return flashlock_rcl_server_of(&lock);
}

static uint32_t number(const char *name)
{
    flashlock_rcl_server_t *server;
    CHECK_OK(flashlock_rcl_server_named(&server, name));
    return flashlock_rcl_server_number(server);
}

CHECK(places, a_file_says_where_locks_are)
{
    configure("[servers.hot]\nthreads = 2\n[servers.cool]\n"
              "[locks]\nindex = \"hot\"\nlog = \"ordinary\"\n\"c.*\" = \"cool\"\n");
    CHECK_EQ(server_of(FLASHLOCK_RCL_ORDINARY, "index"), number("hot"));
    CHECK_EQ(server_of(FLASHLOCK_RCL_DELEGATED, "c.7"), number("cool"));
    CHECK_EQ(server_of(FLASHLOCK_RCL_DELEGATED, "log"), 0);
    CHECK_EQ(server_of(FLASHLOCK_RCL_DELEGATED, "other"), number("default"));
    CHECK_EQ(server_of(FLASHLOCK_RCL_ORDINARY, "other"), 0);
    CHECK_OK(unlink(path));
}

CHECK(places, a_list_says_where_locks_are)
{
    CHECK_OK(setenv("FLASHLOCK_RCL", "index=hot,log=ordinary", 1));
    CHECK_EQ(server_of(FLASHLOCK_RCL_ORDINARY, "index"), number("hot"));
    CHECK_EQ(server_of(FLASHLOCK_RCL_DELEGATED, "log"), 0);
}

/* An adaptive lock begins as an ordinary one; the list places it elsewhere, and makes others adaptive. */
CHECK(places, adaptive_locks)
{
    CHECK_OK(setenv("FLASHLOCK_RCL", "index=hot,log=adaptive", 1));
    CHECK_EQ(server_of(FLASHLOCK_RCL_ADAPTIVE, "other"), 0);
    CHECK_EQ(server_of(FLASHLOCK_RCL_ADAPTIVE, NULL), 0);
    CHECK_EQ(server_of(FLASHLOCK_RCL_ADAPTIVE, "index"), number("hot"));
    CHECK_EQ(server_of(FLASHLOCK_RCL_DELEGATED, "log"), 0);
}

static void *add(void *count)
{
    ++*(long *)count;
    return NULL;
}

/* Sections of an adaptive lock are run; it can be pinned, and made and destroyed again and again. */
CHECK(places, an_adaptive_lock_works)
{
    long count = 0;
    for (int round = 0; round < 100; ++round) {
        flashlock_rcl_t lock;
        CHECK_OK(flashlock_rcl_init(&lock, FLASHLOCK_RCL_ADAPTIVE, "mine"));
        for (int i = 0; i < 200; ++i) CHECK_OK(flashlock_rcl_exec(&lock, add, &count, NULL));
        flashlock_rcl_server_t *server;
        CHECK_OK(flashlock_rcl_server_named(&server, "pin"));
        CHECK_OK(flashlock_rcl_assign(&lock, server));
        CHECK_OK(flashlock_rcl_exec(&lock, add, &count, NULL));
        CHECK_EQ(flashlock_rcl_server_of(&lock), flashlock_rcl_server_number(server));
        CHECK_OK(flashlock_rcl_unpin(&lock));
        CHECK_OK(flashlock_rcl_exec(&lock, add, &count, NULL));
        CHECK_OK(flashlock_rcl_destroy(&lock));
    }
    CHECK_RC(flashlock_rcl_unpin(NULL), EINVAL);
    CHECK_EQ(count, 100 * 202);
}

/* A configuration that is wrong is told with every lock that has a name. */
static void refused(const char *words)
{
    flashlock_rcl_t lock;
    CHECK_RC(flashlock_rcl_init(&lock, FLASHLOCK_RCL_ORDINARY, "index"), EINVAL);
    CHECK_TRUE(strstr(flashlock_rcl_error(), words), "the words: %s", flashlock_rcl_error());
    CHECK_RC(flashlock_rcl_init(&lock, FLASHLOCK_RCL_DELEGATED, NULL), EINVAL);
    CHECK_OK(flashlock_rcl_init(&lock, FLASHLOCK_RCL_ORDINARY, NULL));
}

CHECK(places, a_wrong_file_is_told)
{
    configure("[servers.hot]\nthread = 2\n");
    refused("unknown field `thread`");
    CHECK_OK(unlink(path));
}

CHECK(places, a_server_that_is_not_described_is_told)
{
    configure("[locks]\nindex = \"hto\"\n");
    refused("add [servers.hto]");
    CHECK_OK(unlink(path));
}

CHECK(places, a_missing_file_is_told)
{
    CHECK_OK(setenv("FLASHLOCK_RCL_CONFIG", "/nonexistent/rcl.toml", 1));
    refused("FLASHLOCK_RCL_CONFIG=/nonexistent/rcl.toml: No such file");
}

CHECK(places, a_wrong_list_is_told)
{
    CHECK_OK(setenv("FLASHLOCK_RCL", "index", 1));
    refused("must be LOCK=SERVER");
}
