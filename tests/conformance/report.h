/* The page between the runner and a check. Only main.c and report.c know its layout. */
#ifndef REPORT_H
#define REPORT_H

#include <stdatomic.h>

enum { REPORT_RUNNING, REPORT_WRITING, REPORT_PASSED, REPORT_FAILED, REPORT_SKIPPED };

struct report {
    _Atomic int state;
    _Atomic int progress_line;
    char progress_file[60];
    char text[1024];
};

#endif
