/*
 * A mutex of the default kind in memory that two processes map. POSIX wants PTHREAD_PROCESS_SHARED for that; without it
 * glibc's works as long as the processes do not contend for it, and programs rely on that. Here they take turns.
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

/*
 * A process forks, and its children, one after the other, use mutexes of every kind: two in memory that all of them
 * map, and one of their own. No two contend. glibc's test of robust mutexes and fork does the same; it hung under locks
 * that made a side block at the first use, because the second child took the first one's name of it for its own.
 */

enum { SHARED = 1, ROBUST = 2, INHERITS = 4, CHECKS = 8, ALL_KINDS = 16 };

static void make_of_kind(pthread_mutex_t *mutex, int kind)
{
    pthread_mutexattr_t a;
    CHECK_OK(pthread_mutexattr_init(&a));
    if (kind & SHARED) CHECK_OK(pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED));
    if (kind & ROBUST) CHECK_OK(pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST));
    if (kind & INHERITS) CHECK_OK(pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT));
    if (kind & CHECKS) CHECK_OK(pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK));
    CHECK_OK(pthread_mutex_init(mutex, &a));
    CHECK_OK(pthread_mutexattr_destroy(&a));
}

struct case_of_kinds {
    int parents, childrens, own; /* kinds */
    bool first_locks_childrens;  /* the second child always does; a robust one is left locked, for it to recover */
    bool parent_holds_own;       /* so that a child makes it anew */
};

struct of_children {
    pthread_mutex_t parents, childrens;
};

static void be_first_child(struct case_of_kinds c, struct of_children *shared, pthread_mutex_t *own)
{
    if (c.first_locks_childrens) CHECK_OK(pthread_mutex_lock(&shared->childrens));
    if (c.parent_holds_own) make_of_kind(own, c.own);
    CHECK_OK(pthread_mutex_lock(own));
    if (c.first_locks_childrens && !(c.childrens & ROBUST)) CHECK_OK(pthread_mutex_unlock(&shared->childrens));
}

static void be_second_child(struct case_of_kinds c, struct of_children *shared)
{
    bool is_left = c.first_locks_childrens && c.childrens & ROBUST;
    if (c.parents & SHARED) CHECK_RC(pthread_mutex_trylock(&shared->parents), EBUSY);
    if (is_left && !(c.childrens & SHARED)) return; /* the thread that died with it was of another process */
    CHECK_RC(pthread_mutex_lock(&shared->childrens), is_left ? EOWNERDEAD : 0);
    if (is_left) CHECK_OK(pthread_mutex_consistent(&shared->childrens));
    CHECK_OK(pthread_mutex_unlock(&shared->childrens));
}

/* The parent holds `parents` throughout. */
static void children_in_turn(struct case_of_kinds c)
{
    pthread_mutex_t own;
    struct of_children *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK_TRUE(shared != MAP_FAILED, "mmap");
    make_of_kind(&shared->parents, c.parents);
    make_of_kind(&shared->childrens, c.childrens);
    make_of_kind(&own, c.own);
    CHECK_OK(pthread_mutex_lock(&shared->parents));
    if (c.parent_holds_own) CHECK_OK(pthread_mutex_lock(&own));
    for (int child = 0; child < 2; child++) {
        pid_t pid = fork();
        if (pid == 0) {
            if (child == 0) be_first_child(c, shared, &own);
            else be_second_child(c, shared);
            _exit(0);
        }
        CHECK_EQ(process_status(pid), 0);
    }
    if (c.parent_holds_own) CHECK_OK(pthread_mutex_unlock(&own));
    CHECK_OK(pthread_mutex_unlock(&shared->parents));
    CHECK_OK(pthread_mutex_destroy(&shared->parents));
    if (!(c.childrens & ROBUST)) CHECK_OK(pthread_mutex_destroy(&shared->childrens));
    CHECK_OK(pthread_mutex_destroy(&own));
    CHECK_EQ(munmap(shared, 4096), 0);
}

/* Each kind that the children share, beside several of the parent's; and each that is a child's own. */
CHECK(mapped, children_use_mutexes_of_every_kind_in_turn)
{
    for (int flags = 0; flags < 4; flags++) {
        struct case_of_kinds c = {.first_locks_childrens = flags & 1, .parent_holds_own = flags & 2};
        for (c.childrens = 0; c.childrens < ALL_KINDS; c.childrens++)
            for (c.parents = 0; c.parents < ALL_KINDS; c.parents += flags == 3 ? 3 : ALL_KINDS) children_in_turn(c);
        c.parents = c.childrens = 0;
        for (c.own = 0; c.own < ALL_KINDS; c.own++) children_in_turn(c);
    }
}
