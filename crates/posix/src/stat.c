/* stat64 and fstat64 for Rust's standard library, which asks for them when it prints a backtrace. glibc exports them
 * since 2.33; before, they were part of every program. With these, which nobody outside this library sees, it loads on
 * glibc 2.31, too. On x86-64, the kernel's `struct stat` is the C library's.
 */
#include <sys/syscall.h>
#include <unistd.h>

struct stat;

__attribute__((visibility("hidden"))) int fstat64(int fd, struct stat *to) { return (int)syscall(SYS_fstat, fd, to); }

__attribute__((visibility("hidden"))) int stat64(const char *path, struct stat *to)
{
	return (int)syscall(SYS_stat, path, to);
}
