/*
 * Verdicts: one page shared by the runner, the check and every process the check forks. The first verdict stands.
 */
#include "conformance.h"
#include "report.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

static struct report standalone;
static struct report *report = &standalone;

void report_open(int fd)
{
    if (fd < 0) return;
    void *page = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        perror("conformance: cannot map the report");
        _exit(2);
    }
    close(fd);
    report = page;
}

void report_progress(const char *file, int line)
{
    static const char *_Atomic last;
    if (atomic_load_explicit(&last, memory_order_relaxed) != file) {
        atomic_store_explicit(&last, file, memory_order_relaxed);
        strncpy(report->progress_file, file, sizeof report->progress_file - 1);
    }
    if (atomic_load_explicit(&report->progress_line, memory_order_relaxed) != line)
        atomic_store_explicit(&report->progress_line, line, memory_order_relaxed);
}

/* Claims the right to speak for the check. A loser has nothing to add and waits for the winner to end it. */
static void claim(void)
{
    int running = REPORT_RUNNING;
    if (atomic_compare_exchange_strong(&report->state, &running, REPORT_WRITING)) return;
    nap_ms(200);
    _exit(1);
}

static _Noreturn void conclude(int state)
{
    atomic_store(&report->state, state);
    if (report == &standalone) dprintf(2, "%s: %s\n", state == REPORT_SKIPPED ? "skip" : "not ok", report->text);
    _exit(state == REPORT_SKIPPED ? 0 : 1);
}

void report_passed(void)
{
    int running = REPORT_RUNNING;
    atomic_compare_exchange_strong(&report->state, &running, REPORT_PASSED);
}

void check_failed(const char *file, int line, const char *format, ...)
{
    claim();
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(report->text, sizeof report->text, format, arguments);
    va_end(arguments);
    if (length >= 0 && (size_t)length < sizeof report->text)
        snprintf(report->text + length, sizeof report->text - length, " (%s:%d)", file, line);
    conclude(REPORT_FAILED);
}

void check_skipped(const char *file, int line, const char *reason)
{
    claim();
    snprintf(report->text, sizeof report->text, "%s (%s:%d)", reason, file, line);
    conclude(REPORT_SKIPPED);
}

const char *code_name(int code)
{
    static _Thread_local char buffers[3][32];
    static _Thread_local int turn;
    char *buffer = buffers[turn++ % 3];
    const char *name = NULL;
#if __GLIBC_PREREQ(2, 32)
    if (code != 0) name = strerrorname_np(code);
#endif
    if (name)
        snprintf(buffer, sizeof buffers[0], "%d (%s)", code, name);
    else
        snprintf(buffer, sizeof buffers[0], "%d", code);
    return buffer;
}
