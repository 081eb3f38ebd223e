// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Preloaded, lets glibc not say that the process has one thread.
extern char __libc_single_threaded;

__attribute__((constructor)) static void untold(void)
{
    __libc_single_threaded = 0;
}
