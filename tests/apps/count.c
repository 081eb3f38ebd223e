/* count, a library: how often a program really calls the lock functions, and how often it had to wait.
 *
 * Preloaded into the reference run of each application, under glibc. An application that takes its locks inside libc or
 * from a static library would pass under every lock without ever meeting one: this is how such a test is found out.
 *
 * COUNT_FILE names a file of at least SLOTS * 8 bytes. It is mapped shared, so that all processes of an application
 * add to the same numbers and none is lost when a process is killed. Order of the counters: enum slot below.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum slot {
	MUTEX_LOCK, MUTEX_WAITED, MUTEX_SHARED, MUTEX_TRYLOCK, COND_WAIT, COND_WAKE, RW_LOCK, RW_WAITED, SEM_WAIT, SEM_WAITED,
	SLOTS
};

/* In glibc's __kind. */
enum { PROCESS_SHARED = 0x80 };

/* Locks are taken before any constructor runs; until the file is mapped the counts go here and are then carried
 * over. */
static uint64_t early[SLOTS];
static uint64_t *counters = early;

static void count(enum slot slot)
{
	__atomic_fetch_add(&__atomic_load_n(&counters, __ATOMIC_ACQUIRE)[slot], 1, __ATOMIC_RELAXED);
}

static void map_counters(void)
{
	const char *path = getenv("COUNT_FILE");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	if (fd < 0)
		return;
	uint64_t *mapped = mmap(NULL, sizeof early, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (mapped == MAP_FAILED)
		return;
	for (int slot = 0; slot < SLOTS; slot++)
		__atomic_fetch_add(&mapped[slot], early[slot], __ATOMIC_RELAXED);
	__atomic_store_n(&counters, mapped, __ATOMIC_RELEASE);
}

/* The functions called here, and their symbol version where there are several: the older condition variables have
 * another layout. */
#define FUNCTIONS(FUNCTION)                                      \
	FUNCTION(pthread_mutex_lock, NULL)                       \
	FUNCTION(pthread_mutex_trylock, NULL)                    \
	FUNCTION(pthread_cond_wait, "GLIBC_2.3.2")               \
	FUNCTION(pthread_cond_timedwait, "GLIBC_2.3.2")          \
	FUNCTION(pthread_cond_clockwait, NULL)                   \
	FUNCTION(pthread_cond_signal, "GLIBC_2.3.2")             \
	FUNCTION(pthread_cond_broadcast, "GLIBC_2.3.2")          \
	FUNCTION(pthread_rwlock_rdlock, NULL)                    \
	FUNCTION(pthread_rwlock_tryrdlock, NULL)                 \
	FUNCTION(pthread_rwlock_wrlock, NULL)                    \
	FUNCTION(pthread_rwlock_trywrlock, NULL)                 \
	FUNCTION(sem_wait, NULL)                                 \
	FUNCTION(sem_trywait, NULL)                              \
	FUNCTION(sem_timedwait, NULL)                            \
	FUNCTION(sem_clockwait, NULL)

#define DECLARE(name, version) __typeof__(&name) name;
static struct { FUNCTIONS(DECLARE) } next;
static int is_ready;

/* All at once and early: a thread that looked up its first function late could wait for one that is inside dlopen. Two
 * threads that both come here store the same values. */
static void look_up(void)
{
#define LOOK_UP(name, version)                                                                                  \
	{                                                                                                       \
		const char *wanted = version;                                                                   \
		next.name = wanted ? dlvsym(RTLD_NEXT, #name, wanted) : dlsym(RTLD_NEXT, #name);                \
	}
	FUNCTIONS(LOOK_UP)
	__atomic_store_n(&is_ready, 1, __ATOMIC_RELEASE);
}

#define NEXT(name)                                                                                              \
	({                                                                                                      \
		if (!__atomic_load_n(&is_ready, __ATOMIC_ACQUIRE))                                              \
			look_up();                                                                              \
		next.name;                                                                                      \
	})

__attribute__((constructor)) static void start(void)
{
	look_up();
	map_counters();
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	count(MUTEX_LOCK);
	if (mutex->__data.__kind & PROCESS_SHARED)
		count(MUTEX_SHARED);
	int first = NEXT(pthread_mutex_trylock)(mutex);
	if (first != EBUSY)
		return first;
	count(MUTEX_WAITED);
	return NEXT(pthread_mutex_lock)(mutex);
}

int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
	count(MUTEX_TRYLOCK);
	return NEXT(pthread_mutex_trylock)(mutex);
}

int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	count(COND_WAIT);
	return NEXT(pthread_cond_wait)(cond, mutex);
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *deadline)
{
	count(COND_WAIT);
	return NEXT(pthread_cond_timedwait)(cond, mutex, deadline);
}

int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
			   const struct timespec *deadline)
{
	count(COND_WAIT);
	return NEXT(pthread_cond_clockwait)(cond, mutex, clock, deadline);
}

int pthread_cond_signal(pthread_cond_t *cond)
{
	count(COND_WAKE);
	return NEXT(pthread_cond_signal)(cond);
}

int pthread_cond_broadcast(pthread_cond_t *cond)
{
	count(COND_WAKE);
	return NEXT(pthread_cond_broadcast)(cond);
}

int pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
	count(RW_LOCK);
	int first = NEXT(pthread_rwlock_tryrdlock)(lock);
	if (first != EBUSY)
		return first;
	count(RW_WAITED);
	return NEXT(pthread_rwlock_rdlock)(lock);
}

int pthread_rwlock_wrlock(pthread_rwlock_t *lock)
{
	count(RW_LOCK);
	int first = NEXT(pthread_rwlock_trywrlock)(lock);
	if (first != EBUSY)
		return first;
	count(RW_WAITED);
	return NEXT(pthread_rwlock_wrlock)(lock);
}

int sem_wait(sem_t *sem)
{
	int saved = errno;

	count(SEM_WAIT);
	if (NEXT(sem_trywait)(sem) == 0)
		return 0;
	errno = saved;
	count(SEM_WAITED);
	return NEXT(sem_wait)(sem);
}

int sem_trywait(sem_t *sem)
{
	count(SEM_WAIT);
	return NEXT(sem_trywait)(sem);
}

int sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *deadline)
{
	count(SEM_WAIT);
	return NEXT(sem_clockwait)(sem, clock, deadline);
}

int sem_timedwait(sem_t *sem, const struct timespec *deadline)
{
	count(SEM_WAIT);
	return NEXT(sem_timedwait)(sem, deadline);
}
