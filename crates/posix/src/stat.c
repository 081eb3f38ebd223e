/* stat64 and fstat64 for Rust's standard library, which uses them to print a backtrace. glibc has exported them since
 * 2.33; before, they were linked into every program. With these, which are invisible outside this library, the library
 * also loads on glibc 2.31. On x86-64, the kernel's `struct stat` is the same as the C library's.
 */
#include <sys/syscall.h>
#include <unistd.h>

struct stat;

__attribute__((visibility("hidden"))) int fstat64(int fd, struct stat *to) { return (int)syscall(SYS_fstat, fd, to); }

__attribute__((visibility("hidden"))) int stat64(const char *path, struct stat *to)
{
	return (int)syscall(SYS_stat, path, to);
}
