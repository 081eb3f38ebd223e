/* Fails if a library is preloaded into it. */
#include <stdlib.h>

int main(void)
{
    const char *libraries = getenv("LD_PRELOAD");
    return libraries && *libraries;
}
