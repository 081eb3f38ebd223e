/*
 * The runner. Each check is this program executed again with --one NAME, in a process group of its own, so that a hang,
 * a crash or a process left behind costs that check alone.
 */
#include "conformance.h"
#include "report.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern const struct check *__start_checks[], *__stop_checks[];

enum verdict { PASSED, FAILED, SKIPPED };
enum { TICK_US = 100000 }; /* the runner's longest sleep */
enum { HANGS = 3, IMPATIENT = 20 }; /* after so many hangs, so many seconds for each check: all is lost already */

struct job {
    const struct check *check;
    pid_t pid; /* 0: not started, -1: over */
    int64_t started_us, took_us, cpu_us, charged_us;
    bool overdue;
    struct report *report;
    enum verdict verdict;
    char reason[1200];
};

static struct options {
    int jobs, timeout;
    const char *json;
    char **globs;
    int globs_count;
} options = {.jobs = 2, .timeout = 600};

static const char usage[] =
    "usage: conformance [--jobs N] [--timeout SECONDS] [--json FILE] [GLOB...]\n"
    "       conformance --list [GLOB...]\n"
    "Runs the checks whose names (area.title) match a GLOB, or all. Exit status: 0 all passed, 1 some\n"
    "failed, 2 wrong usage. --timeout is against hangs only (600). order.* (wake order, which POSIX leaves open)\n"
    "needs CONFORMANCE_FIFO=1. CONFORMANCE_EXCEPTED=1: under glibc, also checks that glibc is known to fail.\n";

static _Noreturn void usage_error(const char *what, const char *which)
{
    fprintf(stderr, "conformance: %s: %s\n%s", what, which, usage);
    exit(2);
}

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

/* ---- Choosing ---- */

static int by_place(const void *a, const void *b)
{
    const struct check *left = *(const struct check *const *)a, *right = *(const struct check *const *)b;
    int files = strcmp(left->file, right->file), lines = left->line - right->line;
    return files ? files : lines ? lines : strcmp(left->name, right->name);
}

static bool is_offered(const struct check *check)
{
    const char *fifo = getenv("CONFORMANCE_FIFO");
    return strncmp(check->name, "order.", 6) != 0 || (fifo && strcmp(fifo, "1") == 0);
}

static bool is_chosen(const struct check *check)
{
    for (int i = 0; i < options.globs_count; i++)
        if (fnmatch(options.globs[i], check->name, 0) == 0) return true;
    return options.globs_count == 0;
}

static void check_globs(void)
{
    for (int i = 0; i < options.globs_count; i++) {
        bool found = false;
        for (const struct check **c = __start_checks; c < __stop_checks; c++)
            found |= is_offered(*c) && fnmatch(options.globs[i], (*c)->name, 0) == 0;
        if (!found) usage_error("no check matches (see --list)", options.globs[i]);
    }
}

/* ---- Running one check, in its own process ---- */

/* Where each instruction has its turn, there is more to repeat. */
#define THOROUGH "slow_motion."

static _Noreturn void run_one(const char *name, int report_fd)
{
    for (const struct check **c = __start_checks; c < __stop_checks; c++) {
        if (strcmp((*c)->name, name) != 0) continue;
        report_open(report_fd);
        if (strncmp(name, THOROUGH, strlen(THOROUGH)) == 0) repeat_for_longer(2);
        time_is_short(); /* starts its clock */
        (*c)->run();
        report_passed();
        exit(0);
    }
    usage_error("no such check (see --list)", name);
}

/* ---- Running many ---- */

static _Noreturn void become_check(const struct check *check, int fd)
{
    char number[12];
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fcntl(fd, F_SETFD, 0);
    dup2(2, 1); /* what a check prints must not look like a verdict */
    snprintf(number, sizeof number, "%d", fd);
    execl("/proc/self/exe", "conformance", "--one", check->name, "--report", number, (char *)NULL);
    perror("conformance: cannot execute itself");
    _exit(127);
}

static void job_start(struct job *job)
{
    int fd = memfd_create("conformance-report", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof *job->report) < 0 ||
        (job->report = mmap(NULL, sizeof *job->report, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED) {
        perror("conformance: cannot make a report page");
        exit(2);
    }
    job->started_us = now_us();
    job->pid = fork();
    if (job->pid == 0) become_check(job->check, fd);
    if (job->pid < 0) {
        perror("conformance: cannot fork");
        exit(2);
    }
    setpgid(job->pid, job->pid);
    close(fd);
}

/* Why it failed, when the check itself could not say. */
static void explain(struct job *job, int status)
{
    struct report *report = job->report;
    char what[80];
    if (job->overdue)
        snprintf(what, sizeof what, "still running after %lld s", (long long)job->charged_us / 1000000);
    else if (WIFSIGNALED(status))
        snprintf(what, sizeof what, "killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(what, sizeof what, "ended early with status %d", WEXITSTATUS(status));
    if (atomic_load(&report->progress_line) > 0)
        snprintf(job->reason, sizeof job->reason, "%s; last good at %s:%d (%s:%d)", what, report->progress_file,
                 report->progress_line, job->check->file, job->check->line);
    else
        snprintf(job->reason, sizeof job->reason, "%s (%s:%d)", what, job->check->file, job->check->line);
}

static int64_t cpu_us(const struct rusage *usage)
{
    return (usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000LL + usage->ru_utime.tv_usec +
           usage->ru_stime.tv_usec;
}

static void job_end(struct job *job, int status, const struct rusage *usage)
{
    kill(-job->pid, SIGKILL); /* whatever it left behind */
    job->pid = -1;
    job->took_us = now_us() - job->started_us;
    job->cpu_us = cpu_us(usage);
    int state = atomic_load(&job->report->state);
    bool clean = !job->overdue && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (state == REPORT_FAILED || state == REPORT_SKIPPED)
        snprintf(job->reason, sizeof job->reason, "%s", job->report->text);
    else if (state != REPORT_PASSED || !clean)
        explain(job, status);
    job->verdict = state == REPORT_SKIPPED           ? SKIPPED
                   : state == REPORT_PASSED && clean ? PASSED
                                                     : FAILED;
    munmap(job->report, sizeof *job->report);

    static const char *const words[] = {"ok", "not ok", "skip"};
    printf("%s %s", words[job->verdict], job->check->name);
    if (job->verdict != PASSED) printf(": %s", job->reason);
    putchar('\n');
    fflush(stdout);
}

/* Charges the time since the last call to the running jobs and ends what is overdue. */
static void enforce_timeouts(struct job *jobs, int count)
{
    static int64_t last_us;
    static int hangs;
    int64_t now = now_us(), passed = last_us ? now - last_us : 0;
    last_us = now;
    if (passed > 2 * TICK_US) passed = 2 * TICK_US; /* the machine stood still: not the checks' fault */
    for (int i = 0; i < count; i++) {
        struct job *job = &jobs[i];
        if (job->pid <= 0 || job->overdue) continue;
        job->charged_us += passed;
        int limit = hangs >= HANGS && options.timeout > IMPATIENT ? IMPATIENT : options.timeout;
        if (job->charged_us < limit * 1000000LL) continue;
        job->overdue = true;
        hangs++;
        kill(-job->pid, SIGKILL);
    }
}

static int reap(struct job *jobs, int count)
{
    int ended = 0, status;
    pid_t pid;
    struct rusage usage;
    while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
        for (int i = 0; i < count; i++) {
            if (jobs[i].pid != pid) continue;
            job_end(&jobs[i], status, &usage);
            ended++;
            break;
        }
    }
    return ended;
}

static void run_jobs(struct job *jobs, int count)
{
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    for (int started = 0, running = 0; started < count || running > 0;) {
        while (started < count && running < options.jobs) {
            job_start(&jobs[started++]);
            running++;
        }
        struct timespec tick = {0, TICK_US * 1000};
        sigtimedwait(&child, NULL, &tick);
        running -= reap(jobs, started);
        enforce_timeouts(jobs, started);
    }
}

/* ---- Results ---- */

static void print_json_string(FILE *file, const char *text)
{
    putc('"', file);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') putc('\\', file);
        if ((unsigned char)*text < ' ')
            fprintf(file, "\\u%04x", *text);
        else
            putc(*text, file);
    }
    putc('"', file);
}

static void write_json(const struct job *jobs, int count)
{
    static const char *const words[] = {"passed", "failed", "skipped"};
    FILE *file = fopen(options.json, "w");
    if (!file) {
        fprintf(stderr, "conformance: cannot write %s: %s\n", options.json, strerror(errno));
        exit(2);
    }
    fprintf(file, "{\"format\": \"conformance/1\", \"checks\": [");
    for (int i = 0; i < count; i++) {
        fprintf(file, "%s\n  {\"name\": ", i ? "," : "");
        print_json_string(file, jobs[i].check->name);
        fprintf(file, ", \"verdict\": \"%s\", \"ms\": %lld, \"cpu_ms\": %lld, \"reason\": ",
                words[jobs[i].verdict], (long long)jobs[i].took_us / 1000, (long long)jobs[i].cpu_us / 1000);
        print_json_string(file, jobs[i].reason);
        fprintf(file, "}");
    }
    fprintf(file, "\n]}\n");
    if (fclose(file) != 0) {
        fprintf(stderr, "conformance: cannot write %s: %s\n", options.json, strerror(errno));
        exit(2);
    }
}

static int run_chosen(void)
{
    int count = 0, verdicts[3] = {0};
    struct job *jobs = calloc(__stop_checks - __start_checks, sizeof *jobs);
    for (const struct check **c = __start_checks; c < __stop_checks; c++)
        if (is_offered(*c) && is_chosen(*c)) jobs[count++].check = *c;
    run_jobs(jobs, count);
    for (int i = 0; i < count; i++) verdicts[jobs[i].verdict]++;
    if (options.json) write_json(jobs, count);
    free(jobs);
    printf("%d passed, %d failed", verdicts[PASSED], verdicts[FAILED]);
    if (verdicts[SKIPPED]) printf(", %d skipped", verdicts[SKIPPED]);
    putchar('\n');
    return verdicts[FAILED] ? 1 : 0;
}

/* ---- Command line ---- */

static const char *operand(char **arguments, int *i)
{
    if (!arguments[*i + 1]) usage_error("option needs a value", arguments[*i]);
    return arguments[++*i];
}

static int positive_number(char **arguments, int *i)
{
    const char *option = arguments[*i];
    char *end;
    long value = strtol(operand(arguments, i), &end, 10);
    if (*end || value < 1 || value > 100000) usage_error("needs a number from 1 to 100000", option);
    return value;
}

int main(int count, char **arguments)
{
    const char *one = NULL;
    bool list = false;
    int report_fd = -1;
    options.globs = calloc(count, sizeof *options.globs);
    for (int i = 1; i < count; i++) {
        const char *a = arguments[i];
        if (!strcmp(a, "--help")) return fputs(usage, stdout) < 0;
        else if (!strcmp(a, "--list")) list = true;
        else if (!strcmp(a, "--one")) one = operand(arguments, &i);
        else if (!strcmp(a, "--report")) report_fd = positive_number(arguments, &i);
        else if (!strcmp(a, "--jobs")) options.jobs = positive_number(arguments, &i);
        else if (!strcmp(a, "--timeout")) options.timeout = positive_number(arguments, &i);
        else if (!strcmp(a, "--json")) options.json = operand(arguments, &i);
        else if (a[0] == '-') usage_error("unknown option", a);
        else options.globs[options.globs_count++] = arguments[i];
    }
    if (one) run_one(one, report_fd);
    check_globs();
    qsort(__start_checks, __stop_checks - __start_checks, sizeof *__start_checks, by_place);
    if (!list) return run_chosen();
    for (const struct check **c = __start_checks; c < __stop_checks; c++)
        if (is_offered(*c) && is_chosen(*c)) puts((*c)->name);
    return 0;
}
