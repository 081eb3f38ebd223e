// SPDX-License-Identifier: GPL-2.0
/*
 * contend LOOP THREADS SECONDS: threads that meet at one of the kernel's spinlocks, one on each CPU
 *
 *   flock   file locks: each thread locks and unlocks a region of its own in one file (the inode's lock list)
 *   open    each thread opens and closes a file of its own in one directory (the file table, which they share)
 *   mutex   one pthread mutex, with a short section: the threads sleep and wake through one futex hash bucket
 *
 * Prints what each thread did and, as its last line, `contend: LOOP total N least M`. Fails if a call fails, if a
 * thread did nothing, or if the mutex did not exclude.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 64

static atomic_bool stop;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned long guarded;
static int shared_file;

struct thread {
	pthread_t id;
	int number;
	unsigned long done;
} __attribute__((aligned(128)));

static struct thread threads[MOST];

static void once_flock(struct thread *me)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = me->number, .l_len = 1 };

	/* Of an open file description: those of a process would be one owner's, and its threads would not meet. */
	if (fcntl(shared_file, F_OFD_SETLKW, &lock))
		err(1, "lock");
	lock.l_type = F_UNLCK;
	if (fcntl(shared_file, F_OFD_SETLK, &lock))
		err(1, "unlock");
}

static void once_open(struct thread *me)
{
	char name[32];
	int file;

	snprintf(name, sizeof(name), "/tmp/contend-%d", me->number);
	file = open(name, O_RDWR | O_CREAT, 0600);
	if (file < 0)
		err(1, "%s", name);
	close(file);
}

/* Where one CPU after the other is simulated, this is what lets the next one go on. */
static void pause_a_little(void)
{
	for (int i = 0; i < 20; i++)
		__builtin_ia32_pause();
}

static void once_mutex(struct thread *me)
{
	(void)me;
	pthread_mutex_lock(&mutex);
	guarded++;
	pause_a_little();
	pthread_mutex_unlock(&mutex);
	pause_a_little();
}

static const struct {
	const char *name;
	void (*once)(struct thread *me);
} loops[] = { { "flock", once_flock }, { "open", once_open }, { "mutex", once_mutex } };

static void (*once)(struct thread *me);

static void *run(void *argument)
{
	struct thread *me = argument;
	cpu_set_t cpu;

	CPU_ZERO(&cpu);
	CPU_SET(me->number, &cpu);
	if (sched_setaffinity(0, sizeof(cpu), &cpu))
		err(1, "cannot run on CPU %d", me->number);
	while (!stop) {
		once(me);
		me->done++;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned long total = 0, least = ~0ul;
	int count, i;

	if (argc != 4)
		errx(2, "usage: contend flock|open|mutex THREADS SECONDS");
	for (i = 0; i < (int)(sizeof(loops) / sizeof(loops[0])); i++) {
		if (!strcmp(argv[1], loops[i].name))
			once = loops[i].once;
	}
	count = atoi(argv[2]);
	if (!once || count < 1 || count > MOST)
		errx(2, "usage: contend flock|open|mutex THREADS SECONDS, with 1 to %d threads", MOST);
	shared_file = open("/tmp/contend", O_RDWR | O_CREAT, 0600);
	if (shared_file < 0)
		err(1, "/tmp/contend");

	for (i = 0; i < count; i++) {
		threads[i].number = i;
		if (pthread_create(&threads[i].id, NULL, run, &threads[i]))
			errx(1, "cannot start a thread");
	}
	sleep(atoi(argv[3]));
	stop = 1;
	for (i = 0; i < count; i++) {
		pthread_join(threads[i].id, NULL);
		total += threads[i].done;
		if (threads[i].done < least)
			least = threads[i].done;
	}
	if (once == once_mutex && guarded != total)
		errx(1, "the mutex did not exclude: %lu of %lu", guarded, total);
	printf("contend: %s total %lu least %lu\n", argv[1], total, least);
	return least == 0;
}
