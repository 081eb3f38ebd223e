/*
 * A mutex of the default kind in memory that two processes map. POSIX wants PTHREAD_PROCESS_SHARED for that; without it glibc's works as long as
 * the processes do not contend for it, and programs rely on that. Here they take turns.
 */
#include "conformance.h"

#include <sys/mman.h>

struct mapped {
    pthread_mutex_t mutex;
    atomic_int turn;
    long counter;
};

static struct mapped *map(int kind)
{
    struct mapped *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK_TRUE(m != MAP_FAILED, "mmap");
    mutex_make(&m->mutex, kind);
    return m;
}

/* Process `me` of two has its turns, each with a section. */
static void take_turns(struct mapped *m, int me, int turns)
{
    for (int turn = 0; turn < turns; turn++) {
        while (atomic_load(&m->turn) % 2 != me) nap_us(50);
        CHECK_OK(turn % 3 == 2 ? pthread_mutex_trylock(&m->mutex) : pthread_mutex_lock(&m->mutex));
        m->counter++;
        CHECK_OK(pthread_mutex_unlock(&m->mutex));
        atomic_fetch_add(&m->turn, 1);
    }
}

static void takes_turns(int kind, bool used_before)
{
    struct mapped *m = map(kind);
    if (used_before) {
        CHECK_OK(pthread_mutex_lock(&m->mutex));
        CHECK_OK(pthread_mutex_unlock(&m->mutex));
    }
    pid_t pid = fork();
    if (pid == 0) {
        take_turns(m, 1, 50);
        _exit(0);
    }
    take_turns(m, 0, 50);
    CHECK_EQ(process_status(pid), 0);
    CHECK_EQ(m->counter, 100);
}

/* Two children, which have the parent in common and nothing else. */
static void siblings_take_turns(int kind)
{
    struct mapped *m = map(kind);
    pid_t pids[2];
    for (int me = 0; me < 2; me++) {
        pids[me] = fork();
        if (pids[me] == 0) {
            take_turns(m, me, 50);
            _exit(0);
        }
    }
    for (int me = 0; me < 2; me++) CHECK_EQ(process_status(pids[me]), 0);
    CHECK_EQ(m->counter, 100);
}

/* The threads of one process contend; then it is the other one's turn; and so on. */
static void contends_in_turn(int kind)
{
    struct mapped *m = map(kind);
    pid_t pid = fork();
    int me = pid == 0;
    for (int turn = 0; turn < 6; turn++) {
        while (atomic_load(&m->turn) % 2 != me) nap_us(50);
        check_excludes(&m->mutex);
        CHECK_OK(pthread_mutex_lock(&m->mutex));
        CHECK_OK(pthread_mutex_unlock(&m->mutex));
        atomic_fetch_add(&m->turn, 1);
    }
    if (pid == 0) _exit(0);
    CHECK_EQ(process_status(pid), 0);
}

#define MAPPED(title, kind)                                                                 \
    CHECK(mapped, title##_two_processes_take_turns) { takes_turns(kind, false); }           \
    CHECK(mapped, title##_two_processes_take_turns_after_use) { takes_turns(kind, true); }  \
    CHECK(mapped, title##_siblings_take_turns) { siblings_take_turns(kind); }
MAPPED(default, KIND_DEFAULT)
MAPPED(adaptive, PTHREAD_MUTEX_ADAPTIVE_NP)

CHECK(mapped, default_processes_contend_in_turn) { contends_in_turn(KIND_DEFAULT); }
