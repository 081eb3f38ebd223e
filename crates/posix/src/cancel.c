/* A wait on a semaphore, which is a cancellation point. If the thread is cancelled there, `cleanup(arg)` runs, with the
 * frames of the callers intact, and the thread goes on to unwind from here.
 *
 * A raw futex call is no cancellation point, and to allow asynchronous cancellation around one is not sound: the
 * canceller's signal may arrive after the wait has ended well. Inside glibc that is taken care of, but only around its
 * own system calls.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

/* `wait` is glibc's own: the names are ours. 0: woken; ETIMEDOUT: the deadline has passed; EINTR: a signal handler has
 * run. errno is left as it was. */
int flashlock_wait_cancellable(int (*wait)(sem_t *, clockid_t, const struct timespec *), sem_t *semaphore,
			       clockid_t clock, const struct timespec *until, void (*cleanup)(void *), void *arg)
{
	/* Volatile, for pthread_cleanup_push may be a setjmp. */
	volatile int saved = errno, result = 0;

	pthread_cleanup_push(cleanup, arg);
	if (wait(semaphore, clock, until) == -1)
		result = errno;
	pthread_cleanup_pop(0);
	errno = saved;
	return result;
}

/* `call(arg)`, in which the thread may be cancelled; then `cleanup(arg)` runs, too. */
int flashlock_call_cancellable(int (*call)(void *), void (*cleanup)(void *), void *arg)
{
	volatile int result = 0;

	pthread_cleanup_push(cleanup, arg);
	result = call(arg);
	pthread_cleanup_pop(0);
	return result;
}
