// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Objects between guard pages. A lock that touches its memory after letting the next owner in crashes here at once,
// instead of corrupting something now and then.
#include "torture.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// Freed pages stay inaccessible for a while, so that their addresses do not come back as another object's valid memory.
enum { QUARANTINE = 64 };

static _Thread_local struct {
    char *base[QUARANTINE];
    unsigned next;
} quarantine;

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

void *guarded_new(size_t size, bool at_end)
{
    size_t page = page_bytes();
    char *base = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED || mprotect(base + page, page, PROT_READ | PROT_WRITE))
        fail("guarded memory: %s", strerror(errno));
    size_t offset = at_end ? (page - size) & ~(size_t)7 : 0;
    return base + page + offset;
}

void guarded_free(void *object, bool unmap)
{
    size_t page = page_bytes();
    char *base = (char *)((uintptr_t)object & ~(page - 1)) - page;
    if (unmap) {
        munmap(base, 3 * page);
        return;
    }
    if (mprotect(base + page, page, PROT_NONE))
        fail("guarded memory: %s", strerror(errno));
    char **place = &quarantine.base[quarantine.next++ % QUARANTINE];
    if (*place)
        munmap(*place, 3 * page);
    *place = base;
}
