/*
 * flashlock_rcl.h: locks whose critical sections a server thread can run.
 *
 * A section is a function. flashlock_rcl_exec() runs it under a lock: in the calling thread while the lock is ordinary,
 * in a thread of a server while the lock is delegated. One server runs all sections of its locks, so that the data that
 * the locks protect stay in its cache. Delegate a lock if it is hot, its sections are short and touch several shared
 * cache lines, and the machine has a CPU to spare for the server. Leave other locks ordinary.
 *
 * C11 to C23, Linux, glibc 2.35 or later. For C++ see flashlock_rcl.hpp. Link with the flags that
 * `pkg-config --cflags --libs flashlock_rcl` prints.
 *
 * What differs inside a section of a delegated lock: it runs in a thread of the server. There
 *   - gettid(), pthread_self(), thread-local variables, errno, the signal mask, the scheduling policy and the CPU set
 *     are that thread's. Pass what a section needs through its context; hand errno back through the context or the
 *     result.
 *   - the stack is that thread's: 2 MiB. A pointer to the client's stack is valid until the section has ended.
 *   - a signal that is sent to the client's thread is handled there, while the section goes on in the server.
 *   - all signals are blocked, except those that the kernel sends to the thread that causes them (SIGSEGV, SIGBUS,
 *     SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPIPE, SIGXFSZ), and SIGABRT. So raise() of another signal has no effect.
 *   - sections of other locks may be run. Those of the same server run in place, in the same thread.
 *   - a section may block. After a time-out another thread of the server goes on with other locks.
 *
 * What is forbidden inside any section:
 *   - A section of the same lock: EDEADLK. (If a section of a lock of another server is in between, both wait for
 *     ever.)
 *   - To leave the section other than by returning: longjmp(), pthread_exit(), cancellation, a C++ exception. The
 *     program ends with a message if the stack is unwound; after longjmp() the lock stays held.
 *   - flashlock_rcl_exec() in a signal handler: the handler may have interrupted a section.
 *   - To go on in the child of a fork() that was made inside a section: the child has the server's thread and no
 *     client.
 *
 * A thread that waits for a section, or for a condition variable in one, is not cancelled by pthread_cancel(): the
 * calls of this header are no cancellation points, and the cancellation takes effect after the section. Asynchronous
 * cancelability (PTHREAD_CANCEL_ASYNCHRONOUS) is forbidden in all of them.
 *
 * A child that was forked outside of sections has no servers: there, a delegated lock becomes ordinary when it is next
 * used. If another thread was running a section of a lock at the fork, that lock stays held in the child, as a mutex
 * does.
 *
 * All functions that return int return 0 or an error number, and do not change errno. After an error,
 * flashlock_rcl_error() says in words what was wrong.
 */
#ifndef FLASHLOCK_RCL_H
#define FLASHLOCK_RCL_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A lock. Do not copy or move it while it is in use. All-zero is an ordinary, free lock. */
typedef struct flashlock_rcl {
    uint64_t opaque_[8];
} flashlock_rcl_t;

/* A condition variable for sections. All-zero is a condition variable without waiters. */
typedef struct flashlock_rcl_cond {
    uint64_t opaque_[2];
} flashlock_rcl_cond_t;

/* A server. */
typedef struct flashlock_rcl_server flashlock_rcl_server_t;

/* A section: called with its context. What it returns goes back to the caller of flashlock_rcl_exec(). */
typedef void *flashlock_rcl_section_t(void *context);

/* clang-format off */
#define FLASHLOCK_RCL_INITIALIZER {{0, 0, 0, 0, 0, 0, 0, 0}}
#define FLASHLOCK_RCL_COND_INITIALIZER {{0, 0}}
/* clang-format on */

/* What a lock is, unless the configuration says otherwise. */
enum flashlock_rcl_kind {
    FLASHLOCK_RCL_ORDINARY = 0,  /* the calling thread runs its sections */
    FLASHLOCK_RCL_DELEGATED = 1, /* a server runs its sections */
    FLASHLOCK_RCL_ADAPTIVE = 2,  /* ordinary; goes to a server when that pays, and comes back */
};

/* ---- Locks -------------------------------------------------------------------------------------------------- */

/*
 * Makes a lock. `name` may be NULL. The user of the program can place a lock that has a name:
 * FLASHLOCK_RCL=index=hot,log=ordinary, or a TOML file that FLASHLOCK_RCL_CONFIG names (docs/delegation.md). A
 * delegated lock that is not placed so belongs to the server "default". Servers are opened when they are first needed.
 * An adaptive lock owns memory: destroy it.
 *
 * EINVAL: `lock` is NULL, the kind is invalid, the name is not UTF-8, or the configuration is wrong or cannot be read.
 * ENOMEM, EAGAIN, ENFILE: the server cannot be opened.
 */
int flashlock_rcl_init(flashlock_rcl_t *lock, int kind, const char *name);

/* Destroys a lock that is no longer used. EINVAL: `lock` is NULL. EBUSY: it is held. */
int flashlock_rcl_destroy(flashlock_rcl_t *lock);

/*
 * Runs section(context) under the lock, and waits for its end. No other section of that lock runs meanwhile. What it
 * returns is stored in *result, unless `result` is NULL. What the section wrote is visible to the caller, and to all
 * later sections.
 *
 * EINVAL: `lock` or `section` is NULL. EDEADLK: the calling thread runs a section of this lock.
 */
int flashlock_rcl_exec(flashlock_rcl_t *lock, flashlock_rcl_section_t *section, void *context, void **result);

/*
 * Makes the lock that server's, or ordinary if `server` is NULL. It waits for the lock. Requests that wait elsewhere go
 * there. An adaptive lock stays there. EINVAL: `lock` is NULL. EDEADLK: as above.
 */
int flashlock_rcl_assign(flashlock_rcl_t *lock, flashlock_rcl_server_t *server);

/* An adaptive lock that was assigned may move again. It becomes ordinary first. EINVAL: `lock` is NULL. */
int flashlock_rcl_unpin(flashlock_rcl_t *lock);

/* The number of the server that runs the lock's sections, or 0. It may change at any time. */
uint32_t flashlock_rcl_server_of(const flashlock_rcl_t *lock);

/* ---- Condition variables ------------------------------------------------------------------------------------ */

/*
 * In a section of `lock`: lets other sections in, waits for a signal, and has the lock again. Wake-ups may be spurious,
 * so call it in a loop. All waiters on `cond` must use the same lock. On a server, the section keeps its thread
 * meanwhile: as many sections can wait as the server may have threads, less one.
 *
 * EINVAL: a pointer is NULL. EPERM: the calling thread runs no section of this lock.
 */
int flashlock_rcl_cond_wait(flashlock_rcl_cond_t *cond, flashlock_rcl_t *lock);

/*
 * The same, until `until` on `clock` at most: CLOCK_MONOTONIC or CLOCK_REALTIME. ETIMEDOUT: that time came first; the
 * caller has the lock. EINVAL: also for another clock, and for nanoseconds that are not 0 to 999,999,999.
 */
int flashlock_rcl_cond_clockwait(flashlock_rcl_cond_t *cond, flashlock_rcl_t *lock, int clock,
                                 const struct timespec *until);

/* Wakes one waiter, or all. Callable inside sections and outside. EINVAL: `cond` is NULL. */
int flashlock_rcl_cond_signal(flashlock_rcl_cond_t *cond);
int flashlock_rcl_cond_broadcast(flashlock_rcl_cond_t *cond);

/* ---- Servers ------------------------------------------------------------------------------------------------ */

/* A server's options. Zero means the default, except for `cpu`: use FLASHLOCK_RCL_SERVER_OPTIONS. */
struct flashlock_rcl_server_options {
    int32_t cpu;         /* the CPU that its threads are bound to; -1: none */
    uint32_t threads;    /* threads at most, 1 to 4094 (256): one section fewer than that may block at once */
    uint64_t timeout_ns; /* after so long in one section, another thread goes on with others (10 ms) */
    int32_t real_time;   /* not 0: SCHED_FIFO, where the system allows it */
};
/* clang-format off */
#define FLASHLOCK_RCL_SERVER_OPTIONS {-1, 0, 0, 0}
/* clang-format on */

/*
 * Opens a server. `options` may be NULL. EINVAL: an option is out of range, or `server` is NULL. ENOMEM, EAGAIN: no
 * memory, no thread. ENFILE: the process has opened 4,095 servers.
 */
int flashlock_rcl_server_open(flashlock_rcl_server_t **server, const struct flashlock_rcl_server_options *options);

/*
 * The server of that name, with the options that the configuration gives it. It is opened if it is not yet open, and
 * never closed. Errors: as for flashlock_rcl_init().
 */
int flashlock_rcl_server_named(flashlock_rcl_server_t **server, const char *name);

/*
 * Closes a server, and waits until the sections that it runs have ended. Its locks become ordinary, and requests that
 * wait are run under these. EINVAL: NULL, or a named server. EDEADLK: the caller is a section of that server.
 */
int flashlock_rcl_server_close(flashlock_rcl_server_t *server);

/* Its number, as flashlock_rcl_server_of() returns it. 0: `server` is NULL. */
uint32_t flashlock_rcl_server_number(const flashlock_rcl_server_t *server);

/* What a server has done. */
struct flashlock_rcl_statistics {
    uint64_t scans;         /* scans of the clients' lines */
    uint64_t busy_scans;    /* scans in which sections were run */
    uint64_t mixed_scans;   /* scans in which sections of several locks were run */
    uint64_t sections;      /* sections that were run for clients */
    uint64_t elections;     /* times another thread took over, because one was stuck in a section */
    uint64_t threads_short; /* times a thread was needed and could not be made */
    double use_rate;        /* sections of a busy scan, divided by the clients */
    double false_serialization_rate; /* mixed scans, divided by busy scans */
    uint32_t threads;       /* its threads now */
    uint32_t clients;       /* its clients now */
    uint32_t real_time;     /* 1: its threads have SCHED_FIFO */
    uint32_t membarrier;    /* 1: requests and answers are free of fences */
    uint64_t waits_sampled; /* requests that were timed: one in 251 of each thread */
    uint64_t longest_wait_ns;   /* the longest time from such a request until its section began */
    double queueing_latency_ns; /* the average time */
};

/*
 * Fills `size` bytes at `statistics`: pass sizeof *statistics. Later versions add fields at the end. A program that
 * knows fewer fields gets those; for fields that the library does not know, a program gets zeros. EINVAL: a pointer is
 * NULL.
 */
int flashlock_rcl_server_statistics(const flashlock_rcl_server_t *server, struct flashlock_rcl_statistics *statistics,
                                    size_t size);

/* ---- Errors ------------------------------------------------------------------------------------------------- */

/*
 * What was wrong in the calling thread's last failed call, in words. Valid until its next failed call.
 */
const char *flashlock_rcl_error(void);

#ifdef __cplusplus
}
#endif

#endif
