/* A futex wait that is a cancellation point.
 *
 * A raw system call is none. POSIX threads offer asynchronous cancellation instead, which acts at any instruction; it is enabled here
 * around the one system call and nothing else, so that it cannot strike while shared state is being changed. If the thread is
 * cancelled, `cleanup(arg)` runs, with the frames of the callers intact, and the thread goes on to unwind from there.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* 0: woken, or the word has changed, or a signal came. ETIMEDOUT: the deadline has passed. errno is left as it was. */
int flashlock_park_cancellable(uint32_t *word, uint32_t expected, int op, const struct timespec *until,
			       void (*cleanup)(void *), void *arg)
{
	/* Volatile, for pthread_cleanup_push may be a setjmp. */
	volatile int saved = errno, result = 0;
	int before;

	pthread_cleanup_push(cleanup, arg);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
	if (syscall(SYS_futex, word, op, expected, until, NULL, 0xffffffffu) == -1 && errno == ETIMEDOUT)
		result = ETIMEDOUT;
	pthread_setcanceltype(before, NULL);
	pthread_cleanup_pop(0);
	errno = saved;
	return result;
}
