/* Allocators built on a pthread mutex: locking may not allocate. Each scenario is a run of conformance_malloc. */
#include "conformance.h"

#include <fcntl.h>

static void run_scenario(const char *name)
{
    const char *program = beside_program("conformance_malloc");
    int output[2];
    char message[512] = "";
    CHECK_EQ(pipe2(output, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(output[1], 2);
        execl(program, "conformance_malloc", name, (char *)NULL);
        _exit(127);
    }
    close(output[1]);
    for (size_t length = 0; length < sizeof message - 1;) {
        ssize_t got = read(output[0], message + length, sizeof message - 1 - length);
        if (got <= 0) break;
        length += got;
    }
    message[strcspn(message, "\n")] = 0;
    int status = process_status(pid);
    CHECK_TRUE(status == 0, "conformance_malloc %s ended with status %d: %s", name, status, message);
}

CHECK(malloc, threads_allocate) { run_scenario("threads"); }

CHECK(malloc, condition_waits) { run_scenario("waits"); }

CHECK(malloc, timed_calls) { run_scenario("timed"); }

CHECK(malloc, libraries_come_and_go) { run_scenario("dlopen"); }

CHECK(malloc, many_libraries_have_thread_local_storage) { run_scenario("libraries"); }

CHECK(malloc, processes_fork) { run_scenario("fork"); }

CHECK(malloc, thread_ends_free) { run_scenario("destructors"); }

CHECK(malloc, cancelled_waits) { run_scenario("cancel"); }

CHECK(malloc, many_mutexes) { run_scenario("mutexes"); }
