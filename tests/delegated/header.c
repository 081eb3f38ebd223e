/* The header alone, and each thing that it declares: compiled as every C from C11 on, and as C++, with all warnings. */
#include <flashlock_rcl.h>

static void *section(void *context)
{
    return context;
}

int main(void)
{
    static flashlock_rcl_t lock = FLASHLOCK_RCL_INITIALIZER;
    flashlock_rcl_cond_t cond = FLASHLOCK_RCL_COND_INITIALIZER;
    struct flashlock_rcl_server_options options = FLASHLOCK_RCL_SERVER_OPTIONS;
    struct flashlock_rcl_statistics statistics;
    flashlock_rcl_server_t *server, *named;
    struct timespec then = {1, 0};
    void *result = 0;
    int kind = 7, wrong = 0;

    wrong += flashlock_rcl_init(&lock, FLASHLOCK_RCL_ORDINARY, 0) != 0;
    wrong += flashlock_rcl_server_open(&server, &options) != 0;
    wrong += flashlock_rcl_server_named(&named, "named") != 0;
    wrong += flashlock_rcl_assign(&lock, server) != 0;
    wrong += flashlock_rcl_server_of(&lock) != flashlock_rcl_server_number(server);
    wrong += flashlock_rcl_exec(&lock, section, &kind, &result) != 0 || result != &kind;
    wrong += flashlock_rcl_cond_wait(&cond, &lock) == 0;
    wrong += flashlock_rcl_cond_clockwait(&cond, &lock, 1, &then) == 0;
    wrong += flashlock_rcl_error()[0] == 0;
    wrong += flashlock_rcl_cond_signal(&cond) != 0;
    wrong += flashlock_rcl_cond_broadcast(&cond) != 0;
    wrong += flashlock_rcl_server_statistics(server, &statistics, sizeof statistics) != 0;
    wrong += flashlock_rcl_server_close(server) != 0;
    wrong += flashlock_rcl_destroy(&lock) != 0;
    return wrong;
}
