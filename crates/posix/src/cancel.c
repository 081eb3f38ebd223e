/* A wait on a semaphore that is a cancellation point. If the thread is cancelled there, `cleanup(arg)` runs with the
 * callers' frames intact. Then the thread goes on to unwind from here.
 *
 * A raw futex call is not a cancellation point. Allowing asynchronous cancellation around one is not sound: the
 * canceller's signal may arrive after the wait has ended successfully. glibc handles that case, but only around its own
 * system calls.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

/* `wait` is glibc's own function, passed in because its name resolves to ours. Returns 0 if woken, ETIMEDOUT if the
 * deadline has passed, EINTR if a signal handler has run. Does not change errno. */
int flashlock_wait_cancellable(int (*wait)(sem_t *, clockid_t, const struct timespec *), sem_t *semaphore,
			       clockid_t clock, const struct timespec *until, void (*cleanup)(void *), void *arg)
{
	/* Volatile, because pthread_cleanup_push may be a setjmp. */
	volatile int saved = errno, result = 0;

	pthread_cleanup_push(cleanup, arg);
	if (wait(semaphore, clock, until) == -1)
		result = errno;
	pthread_cleanup_pop(0);
	errno = saved;
	return result;
}

/* Calls `call(arg)`, during which the thread may be cancelled; if so, `cleanup(arg)` runs. */
int flashlock_call_cancellable(int (*call)(void *), void (*cleanup)(void *), void *arg)
{
	volatile int result = 0;

	pthread_cleanup_push(cleanup, arg);
	result = call(arg);
	pthread_cleanup_pop(0);
	return result;
}
