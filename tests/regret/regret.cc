// SPDX-License-Identifier: MIT OR Apache-2.0
//
// regret: one lock, N threads, one kind of critical section, some work outside it. This file is compiled once for each
// rival: `-include rival-NAME.h` says which lock it is. So all rivals run the same loop, and each pays one plain call
// for `lock` and one for `unlock`, as a pthread mutex does. It prints one line of JSON. `cargo xtask regret` runs it
// and compares.
//
// What is measured, in a window after a warm-up:
//   ops              operations that all threads finished; min_ops, max_ops: of the least and of the most successful
//                    thread
//   wall_ms          how long the window was
//   cpu_ms           user and system time of the process; switches: its context switches
//   others_ms        CPU time of other programs on the CPUs that this one may use, to about 10 ms; not that of --hog
//   longest_wait_us  the longest time in `lock`, until the last thread is out. One acquisition in 16 is timed by the
//                    CPU's counter. Each other one is compared with a coarse clock, which the main thread sets every
//                    4 ms: two loads from a line that rarely changes. Such a wait counts from 8 ms on, and is known to
//                    about 4 ms.
// The section counts on its own, without atomic instructions: it reads the count at its beginning and writes it at its
// end. If the count is not that of the threads, the lock does not exclude, and the exit status is 1.
//
// With one thread, too, the process has two: while it has one, glibc's mutex leaves out atomic instructions.
//
// In the sections called turns, queue and barrier, threads also wait on condition variables, those of the same rival.
// longest_wait_us is then that of `lock` alone, not of waiting on a condition variable. A rival that has none defines
// RIVAL_NO_COND.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <pthread.h>
#include <sched.h>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr size_t LINE = 64, APART = 2 * LINE;
constexpr unsigned TIMED_EVERY = 16, TICK_MS = 4;
// The section called mix: so many ns, and one in so many takes longer.
constexpr uint64_t MIX_NS = 300, MIX_LONG_NS = 100000, MIX_LONG_EVERY = 500;
// Items that the section called queue has room for.
constexpr uint64_t QUEUE_ROOM = 16;

[[noreturn]] void die(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
void die(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    std::fputs("regret: ", stderr);
    std::vfprintf(stderr, format, args);
    std::fputc('\n', stderr);
    va_end(args);
    std::exit(status);
}

uint64_t now_ns()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec);
}

// The cheapest clock there is; how fast it ticks is measured over the window.
inline uint64_t ticks()
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t t;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
    return t;
#else
    return now_ns();
#endif
}

// A chain of dependent additions: it reads no clock and touches no memory.
inline void work(uint64_t iterations)
{
    uint64_t x = 0;
    for (uint64_t i = 0; i < iterations; i++) {
        x += 1;
        __asm__ volatile("" : "+r"(x));
    }
}

// Iterations of `work` in a µs. The fastest of many runs is the one that nobody interrupted.
double calibrate()
{
    constexpr uint64_t ITERATIONS = 1000000;
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 200; i++) {
        uint64_t start = now_ns();
        work(ITERATIONS);
        uint64_t took = now_ns() - start;
        best = took < best ? took : best;
    }
    return static_cast<double>(ITERATIONS) * 1000 / static_cast<double>(best);
}

struct alignas(LINE) Line {
    uint64_t value;
};

struct Options {
    std::string section;
    unsigned threads = 0;
    uint64_t outside_ns = 0, ms = 0, warm_ms = 10;
    double per_us = 0;
    bool hog = false;
} opt;

struct alignas(APART) Thread {
    std::atomic<uint64_t> ops;
    uint64_t longest_ticks, longest_coarse_ms;
    pthread_t id;
};

// Each on lines of its own: the lock must not share one with what the section touches.
struct alignas(APART) Shared {
    rival_mutex mutex;
    // Milliseconds by the coarse clock, times two; odd: stop.
    alignas(APART) std::atomic<uint64_t> clock;
    alignas(APART) Line *lines;
    uint64_t line_count, inside, inside_long, outside;  // the last three in iterations of `work`
    pthread_barrier_t start;
    std::atomic<unsigned> ready;
} shared;

uint64_t iterations(uint64_t ns)
{
    return static_cast<uint64_t>(static_cast<double>(ns) * opt.per_us / 1000);
}

// ---- Sections: each reads the first line at its beginning and writes it at its end. So no overlap goes unnoticed.

inline uint64_t count()
{
    return *static_cast<volatile uint64_t *>(&shared.lines[0].value);
}

inline void set_count(uint64_t value)
{
    *static_cast<volatile uint64_t *>(&shared.lines[0].value) = value;
}

struct Lines {
    static void run()
    {
        uint64_t before = count();
        for (uint64_t i = 1; i < shared.line_count; i++) {
            auto *value = static_cast<volatile uint64_t *>(&shared.lines[i].value);
            *value = *value + 1;
        }
        set_count(before + 1);
    }
};

struct Work {
    static void run()
    {
        uint64_t before = count();
        work(shared.inside);
        set_count(before + 1);
    }
};

// In each block of 500 sections exactly one is long, at a place that differs from block to block. So all rivals do the
// same work, and nothing is periodic.
struct Mix {
    static void run()
    {
        uint64_t before = count();
        uint64_t place = (before / MIX_LONG_EVERY * 0x9e3779b97f4a7c15ull >> 32) % MIX_LONG_EVERY;
        work(before % MIX_LONG_EVERY == place ? shared.inside_long : shared.inside);
        set_count(before + 1);
    }
};

// Acquires the mutex, with the wait timed as described above. `clock`: what the coarse clock said before.
inline void lock_timed(Thread *t, uint64_t ops, uint64_t clock, rival_guard *guard)
{
    if (ops % TIMED_EVERY == 0) {
        uint64_t before = ticks();
        rival_lock(&shared.mutex, guard);
        uint64_t took = ticks() - before;
        if (took > t->longest_ticks)
            t->longest_ticks = took;
    } else {
        rival_lock(&shared.mutex, guard);
        uint64_t late = (shared.clock.load(std::memory_order_relaxed) >> 1) - (clock >> 1);
        if (__builtin_expect(late > t->longest_coarse_ms, 0))
            t->longest_coarse_ms = late;
    }
}

template <class Section> void *thread_main(void *arg)
{
    auto *t = static_cast<Thread *>(arg);
    const uint64_t outside = shared.outside;
    uint64_t ops = 0;
    rival_guard guard;
    shared.ready.fetch_add(1);
    pthread_barrier_wait(&shared.start);
    for (;;) {
        uint64_t clock = shared.clock.load(std::memory_order_relaxed);
        if (clock & 1)
            return nullptr;
        lock_timed(t, ops, clock, &guard);
        Section::run();
        rival_unlock(&shared.mutex, &guard);
        t->ops.store(++ops, std::memory_order_relaxed);
        work(outside);
    }
}

#ifndef RIVAL_NO_COND
// ---- Sections in which threads wait for each other. All that they share is guarded by the mutex, and they signal
// while they hold it, as most programs do.

struct alignas(APART) Cond {
    rival_cond cond;
};

struct {
    uint64_t turn;            // the thread whose turn it is
    uint64_t items;           // in the queue
    uint64_t arrived, phase;  // at the barrier
    bool stop;
    Cond *conds;              // one for each thread
} meeting;

// Waits until `done`, or until the end.
template <class Done> inline void wait_until(rival_cond *cond, rival_guard *guard, Done done)
{
    while (!done() && !meeting.stop)
        rival_cond_wait(cond, &shared.mutex, guard);
}

// Each `run` returns whether it was an operation; it is none if the end came first.

// Threads take turns. Each has a condition variable of its own, on which the one before it signals.
struct Turns {
    static bool run(uint64_t me, rival_guard *guard)
    {
        wait_until(&meeting.conds[me].cond, guard, [me] { return meeting.turn == me; });
        if (meeting.stop)
            return false;
        set_count(count() + 1);
        meeting.turn = (me + 1) % opt.threads;
        rival_cond_signal(&meeting.conds[meeting.turn].cond);
        return true;
    }
};

// A queue of bounded length: threads with even numbers put, the others take. Two condition variables.
struct Queue {
    static bool run(uint64_t me, rival_guard *guard)
    {
        bool puts = me % 2 == 0;
        rival_cond *not_full = &meeting.conds[0].cond, *not_empty = &meeting.conds[1].cond;
        wait_until(puts ? not_full : not_empty, guard,
                   [puts] { return puts ? meeting.items < QUEUE_ROOM : meeting.items > 0; });
        if (meeting.stop)
            return false;
        set_count(count() + 1);
        meeting.items += puts ? 1 : -1;
        rival_cond_signal(puts ? not_empty : not_full);
        return true;
    }
};

// Each waits until all have come; the last one wakes all others.
struct Barrier {
    static bool run(uint64_t, rival_guard *guard)
    {
        rival_cond *all_here = &meeting.conds[0].cond;
        if (meeting.stop)
            return false;
        set_count(count() + 1);
        if (++meeting.arrived == opt.threads) {
            meeting.arrived = 0;
            meeting.phase++;
            rival_cond_broadcast(all_here);
        } else {
            wait_until(all_here, guard, [phase = meeting.phase] { return meeting.phase != phase; });
        }
        return true;
    }
};

template <class Meeting> void *meeting_main(void *arg)
{
    auto *t = static_cast<Thread *>(arg);
    const uint64_t outside = shared.outside;
    rival_guard guard;
    uint64_t me = shared.ready.fetch_add(1), ops = 0;
    pthread_barrier_wait(&shared.start);
    for (bool goes_on = true; goes_on;) {
        lock_timed(t, ops, shared.clock.load(std::memory_order_relaxed), &guard);
        goes_on = Meeting::run(me, &guard);
        rival_unlock(&shared.mutex, &guard);
        if (goes_on)
            t->ops.store(++ops, std::memory_order_relaxed);
        work(outside);
    }
    return nullptr;
}

template <class Meeting> void *(*meet())(void *)
{
    if (opt.threads < 2)
        die(2, "--section %s: at least 2 threads", opt.section.c_str());
    meeting.conds = static_cast<Cond *>(std::aligned_alloc(APART, opt.threads * sizeof(Cond)));
    if (!meeting.conds)
        die(1, "out of memory");
    for (unsigned i = 0; i < opt.threads; i++)
        rival_cond_init(&meeting.conds[i].cond);
    return meeting_main<Meeting>;
}

// Whoever waits on a condition variable learns that it is the end.
void end_meeting()
{
    if (!meeting.conds)
        return;
    rival_guard guard;
    rival_lock(&shared.mutex, &guard);
    meeting.stop = true;
    for (unsigned i = 0; i < opt.threads; i++)
        rival_cond_broadcast(&meeting.conds[i].cond);
    rival_unlock(&shared.mutex, &guard);
}
#else
void end_meeting() {}
#endif

// "lines=16", "work=3000" (ns), "mix", "turns", "queue", "barrier"; what the threads run.
void *(*choose_section())(void *)
{
    const char *text = opt.section.c_str();
    shared.line_count = 1;
    if (!std::strncmp(text, "lines=", 6)) {
        shared.line_count = std::strtoull(text + 6, nullptr, 10);
        if (shared.line_count < 1 || shared.line_count > 1 << 20)
            die(2, "--section: lines=1 to lines=1048576");
        return thread_main<Lines>;
    }
    if (!std::strncmp(text, "work=", 5)) {
        shared.inside = iterations(std::strtoull(text + 5, nullptr, 10));
        return thread_main<Work>;
    }
    if (!std::strcmp(text, "mix")) {
        shared.inside = iterations(MIX_NS);
        shared.inside_long = iterations(MIX_LONG_NS);
        return thread_main<Mix>;
    }
#ifndef RIVAL_NO_COND
    if (!std::strcmp(text, "turns"))
        return meet<Turns>();
    if (!std::strcmp(text, "queue"))
        return meet<Queue>();
    if (!std::strcmp(text, "barrier"))
        return meet<Barrier>();
#endif
    die(2, "--section: lines=N, work=NS or mix; if the lock has condition variables, turns, queue or barrier; not `%s`",
        text);
}

// A process that computes beside this one, until this one ends.
pid_t start_hog()
{
    pid_t parent = getpid(), child = fork();
    if (child < 0)
        die(1, "cannot fork: %s", std::strerror(errno));
    if (child > 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == parent)
        work(1000000);
    _exit(0);
}

// CPU time of all programs on the CPUs that this one may use, in ms.
double busy_ms()
{
    cpu_set_t mine;
    FILE *stat = std::fopen("/proc/stat", "r");
    if (!stat || sched_getaffinity(0, sizeof mine, &mine))
        return 0;
    unsigned long long sum = 0, user, nice, system, idle, iowait, irq, softirq, steal;
    unsigned cpu;
    char line[512];
    while (std::fgets(line, sizeof line, stat))
        if (std::sscanf(line, "cpu%u %llu %llu %llu %llu %llu %llu %llu %llu", &cpu, &user, &nice, &system, &idle,
                        &iowait, &irq, &softirq, &steal) == 9 &&
            cpu < CPU_SETSIZE && CPU_ISSET(cpu, &mine))
            sum += user + nice + system + irq + softirq + steal;
    std::fclose(stat);
    return static_cast<double>(sum) * 1e3 / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// CPU time of a process, in ms; 0 of none.
double cpu_ms_of(pid_t process)
{
    clockid_t clock;
    timespec t;
    if (!process || clock_getcpuclockid(process, &clock) || clock_gettime(clock, &t))
        return 0;
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

struct Snapshot {
    double busy_ms, hog_ms;
    uint64_t ns, tick;
    std::vector<uint64_t> ops;
    rusage usage;
};

Snapshot snapshot(const Thread *threads, pid_t hog)
{
    Snapshot s;
    s.busy_ms = busy_ms();
    s.hog_ms = cpu_ms_of(hog);
    s.ns = now_ns();
    s.tick = ticks();
    for (unsigned i = 0; i < opt.threads; i++)
        s.ops.push_back(threads[i].ops.load(std::memory_order_relaxed));
    getrusage(RUSAGE_SELF, &s.usage);
    return s;
}

double cpu_ms(const rusage &u)
{
    return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
           static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

// Sets the coarse clock until so many ns after `epoch`.
void keep_clock(uint64_t epoch, uint64_t until)
{
    for (;;) {
        uint64_t passed = now_ns() - epoch;
        shared.clock.store(passed / 1000000 * 2, std::memory_order_relaxed);
        if (passed >= until)
            return;
        uint64_t left = until - passed, tick = TICK_MS * 1000000ull;
        timespec t = { 0, static_cast<long>(left < tick ? left : tick) };
        nanosleep(&t, nullptr);
    }
}

// As long as threads wait for their last turn, the clock goes on.
void join(Thread *threads, uint64_t epoch)
{
    for (unsigned i = 0; i < opt.threads; i++)
        for (;;) {
            timespec t;
            clock_gettime(CLOCK_REALTIME, &t);
            t.tv_nsec += TICK_MS * 1000000;
            if (t.tv_nsec >= 1000000000) {
                t.tv_sec++;
                t.tv_nsec -= 1000000000;
            }
            if (!pthread_timedjoin_np(threads[i].id, nullptr, &t))
                break;
            shared.clock.store((now_ns() - epoch) / 1000000 * 2 + 1, std::memory_order_relaxed);
        }
}

void measure(pid_t hog)
{
    auto *threads = static_cast<Thread *>(std::aligned_alloc(APART, opt.threads * sizeof(Thread)));
    auto *body = choose_section();
    void *lines = std::aligned_alloc(4096, (shared.line_count * sizeof(Line) + 4095) / 4096 * 4096);
    if (!threads || !lines)
        die(1, "out of memory");
    std::memset(static_cast<void *>(threads), 0, opt.threads * sizeof(Thread));
    std::memset(lines, 0, shared.line_count * sizeof(Line));
    shared.lines = static_cast<Line *>(lines);
    shared.outside = iterations(opt.outside_ns);
    rival_init(&shared.mutex);
    pthread_barrier_init(&shared.start, nullptr, opt.threads + 1);
    for (unsigned i = 0; i < opt.threads; i++)
        if (pthread_create(&threads[i].id, nullptr, body, &threads[i]))
            die(1, "cannot create thread %u", i + 1);
    while (shared.ready.load() < opt.threads)
        usleep(100);
    pthread_barrier_wait(&shared.start);
    uint64_t epoch = now_ns();
    keep_clock(epoch, opt.warm_ms * 1000000);
    Snapshot before = snapshot(threads, hog);
    // The window begins now, not when the warm-up should have ended: this thread may have got its CPU late.
    keep_clock(epoch, before.ns - epoch + opt.ms * 1000000);
    Snapshot after = snapshot(threads, hog);
    shared.clock.store(shared.clock.load() | 1, std::memory_order_relaxed);
    end_meeting();
    join(threads, epoch);

    uint64_t all = 0, ops = 0, least = UINT64_MAX, most = 0, longest_ticks = 0, coarse_ms = 0;
    for (unsigned i = 0; i < opt.threads; i++) {
        all += threads[i].ops;
        uint64_t mine = after.ops[i] - before.ops[i];
        ops += mine;
        least = mine < least ? mine : least;
        most = mine > most ? mine : most;
        longest_ticks = threads[i].longest_ticks > longest_ticks ? threads[i].longest_ticks : longest_ticks;
        coarse_ms = threads[i].longest_coarse_ms > coarse_ms ? threads[i].longest_coarse_ms : coarse_ms;
    }
    for (uint64_t i = 0; i < shared.line_count; i++)
        if (shared.lines[i].value != all)
            die(1, "the lock does not exclude: %llu sections, %llu counted in line %llu", (unsigned long long)all,
                (unsigned long long)shared.lines[i].value, (unsigned long long)i);
    double ns_per_tick = static_cast<double>(after.ns - before.ns) / static_cast<double>(after.tick - before.tick);
    double cpu = cpu_ms(after.usage) - cpu_ms(before.usage);
    double others = after.busy_ms - before.busy_ms - cpu - (after.hog_ms - before.hog_ms);
    double longest_us = static_cast<double>(longest_ticks) * ns_per_tick / 1e3;
    if (coarse_ms >= 2 * TICK_MS && static_cast<double>(coarse_ms) * 1e3 > longest_us)
        longest_us = static_cast<double>(coarse_ms) * 1e3;
    std::printf("{\"ops\":%llu,\"wall_ms\":%.3f,\"cpu_ms\":%.3f,\"longest_wait_us\":%.1f,\"switches\":%ld,"
                "\"min_ops\":%llu,\"max_ops\":%llu,\"others_ms\":%.1f}\n",
                (unsigned long long)ops, static_cast<double>(after.ns - before.ns) / 1e6,
                cpu, longest_us,
                after.usage.ru_nvcsw + after.usage.ru_nivcsw - before.usage.ru_nvcsw - before.usage.ru_nivcsw,
                (unsigned long long)least, (unsigned long long)most, others > 0 ? others : 0.0);
}

void usage()
{
    std::fputs("usage: regret --calibrate\n"
               "       regret --section lines=N|work=NS|mix|turns|queue|barrier --outside NS --threads N --ms MS\n"
               "              [--warm MS] --per-us ITERATIONS [--hog]\n"
               "  --per-us  iterations of the work loop in a µs, as --calibrate prints it\n"
               "  --hog     a process that computes runs beside\n",
               stderr);
    std::exit(2);
}

double number(const char *text, double least, double most)
{
    char *end;
    double value = std::strtod(text, &end);
    if (end == text || *end || !(value >= least && value <= most))
        die(2, "`%s` is not a number from %g to %g", text, least, most);
    return value;
}

}  // namespace

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        std::string option = argv[i];
        if (option == "--calibrate") {
            std::printf("%.3f\n", calibrate());
            return 0;
        }
        if (option == "--hog") {
            opt.hog = true;
            continue;
        }
        if (++i == argc)
            usage();
        if (option == "--section")
            opt.section = argv[i];
        else if (option == "--threads")
            opt.threads = static_cast<unsigned>(number(argv[i], 1, 4096));
        else if (option == "--outside")
            opt.outside_ns = static_cast<uint64_t>(number(argv[i], 0, 1e9));
        else if (option == "--ms")
            opt.ms = static_cast<uint64_t>(number(argv[i], 1, 1e6));
        else if (option == "--warm")
            opt.warm_ms = static_cast<uint64_t>(number(argv[i], 0, 1e6));
        else if (option == "--per-us")
            opt.per_us = number(argv[i], 1, 1e6);
        else
            usage();
    }
    if (opt.section.empty() || !opt.threads || !opt.ms || opt.per_us == 0)
        usage();
    pid_t hog = opt.hog ? start_hog() : 0;
    measure(hog);
    if (hog) {
        kill(hog, SIGKILL);
        waitpid(hog, nullptr, 0);
    }
    return 0;
}
