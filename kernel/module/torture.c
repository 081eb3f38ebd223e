// SPDX-License-Identifier: GPL-2.0
/*
 * Torture of one lock, from insmod to rmmod
 *
 * A thread on each CPU takes the lock again and again, and waits for a while,
 * which is drawn, between two turns. A section checks that nobody else is
 * inside. With a readers-writer lock, most turns are reads. rmmod prints one
 * line:
 *
 *	flocks: LOCK threads N writes W reads R least L wait NS turn NS
 *		local H of H parked P time NS: excluded | NOT EXCLUDED
 *
 * (in one line): how many turns there were; the fewest of a thread; the longest
 * wait for a write and the longest time from one write to the next; how many of
 * the turns stayed on the NUMA node of the one before; how often waiters slept.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/prandom.h>
#include <linux/slab.h>
#include <linux/string.h>
#include "flocks.h"

static char *lock = "stock-spin";
module_param(lock, charp, 0444);
MODULE_PARM_DESC(lock, "Which lock: stock, mcs, cna or shfl, and -spin, -mutex or -rw");

static unsigned int threads;
module_param(threads, uint, 0444);
MODULE_PARM_DESC(threads, "How many threads (0: one on each CPU)");

static unsigned int hold = 20;
module_param(hold, uint, 0444);
MODULE_PARM_DESC(hold, "How many pause instructions are executed with the lock held");

static unsigned int hold_us;
module_param(hold_us, uint, 0444);
MODULE_PARM_DESC(hold_us, "For how long the lock is held in addition, in microseconds");

static unsigned int pauses = 5;
module_param(pauses, uint, 0444);
MODULE_PARM_DESC(pauses, "How many pause instructions are executed between two turns, on average");

static unsigned int reads = 80;
module_param(reads, uint, 0444);
MODULE_PARM_DESC(reads, "How many turns of 100 are reads, with a readers-writer lock");

unsigned int threshold_us = 1000;
module_param(threshold_us, uint, 0444);
MODULE_PARM_DESC(threshold_us, "For how long cna and shfl pass a waiter over, in microseconds");

/* A mutex is held by a thread that sleeps now and then. */
#define TURNS_PER_NAP	256

struct flk_thread {
	struct flk_node		node;
	struct task_struct	*task;
	unsigned long		writes;
	unsigned long		reads;
	unsigned long		overlaps;
	u64			longest_wait;
};

static const struct flk_ops *ops;
static struct flk_thread *all;
static struct flk_lock the_lock ____cacheline_aligned_in_smp;
static u64 started;

/* Guarded by the lock. Two counts, so that a reader sees a half-done write. */
static struct {
	unsigned long	begun;
	unsigned long	done;
	bool		inside;
	atomic_t	readers;
	u64		last;
	u64		longest_turn;
	int		last_nid;
	unsigned long	local;
} guarded ____cacheline_aligned_in_smp = { .last_nid = NUMA_NO_NODE };

static void hold_it(void)
{
	u64 now = local_clock();
	unsigned int left;

	for (left = hold; left; left--)
		cpu_relax();
	while (local_clock() - now < 1000ull * hold_us)
		cpu_relax();
}

static void write_section(struct flk_thread *me, u64 came)
{
	u64 now = local_clock();

	if (READ_ONCE(guarded.inside) || atomic_read(&guarded.readers))
		me->overlaps++;
	WRITE_ONCE(guarded.inside, true);
	WRITE_ONCE(guarded.begun, guarded.begun + 1);

	/* The clocks of two CPUs may differ by a tick. */
	if (now > came)
		me->longest_wait = max(me->longest_wait, now - came);
	if (guarded.last && now > guarded.last)
		guarded.longest_turn = max(guarded.longest_turn, now - guarded.last);
	guarded.last = now;
	guarded.local += guarded.last_nid == numa_node_id();
	guarded.last_nid = numa_node_id();

	hold_it();
	if (ops->parks && guarded.begun % TURNS_PER_NAP == 0)
		usleep_range(50, 100);

	if (!READ_ONCE(guarded.inside))
		me->overlaps++;
	WRITE_ONCE(guarded.done, guarded.done + 1);
	WRITE_ONCE(guarded.inside, false);
}

static void read_section(struct flk_thread *me)
{
	atomic_inc(&guarded.readers);
	if (READ_ONCE(guarded.inside))
		me->overlaps++;
	hold_it();
	if (READ_ONCE(guarded.begun) != READ_ONCE(guarded.done))
		me->overlaps++;
	atomic_dec(&guarded.readers);
}

static int torture(void *argument)
{
	struct flk_thread *me = argument;
	u32 drawn = me - all + 1;

	while (!kthread_should_stop()) {
		unsigned int left;

		drawn = next_pseudo_random32(drawn);
		if (!ops->parks)
			preempt_disable();
		if (ops->lock_read && (drawn >> 16) % 100 < reads) {
			ops->lock_read(&the_lock, &me->node);
			read_section(me);
			ops->unlock_read(&the_lock, &me->node);
			me->reads++;
		} else {
			u64 came = local_clock();

			ops->lock(&the_lock, &me->node);
			write_section(me, came);
			ops->unlock(&the_lock, &me->node);
			me->writes++;
		}
		if (!ops->parks)
			preempt_enable();

		for (left = (drawn >> 8) % (2 * pauses + 1); left; left--)
			cpu_relax();
		cond_resched();
	}

	return 0;
}

static const struct flk_ops *find(const char *name)
{
	static const struct flk_ops * const algorithms[] = {
		flk_stock, flk_mcs, flk_cna, flk_shfl
	};
	int algorithm, kind;

	for (algorithm = 0; algorithm < ARRAY_SIZE(algorithms); algorithm++) {
		for (kind = 0; kind < FLK_KINDS; kind++) {
			if (!strcmp(algorithms[algorithm][kind].name, name))
				return &algorithms[algorithm][kind];
		}
	}

	return NULL;
}

static void stop(void)
{
	unsigned int i;

	for (i = 0; i < threads; i++) {
		if (all[i].task)
			kthread_stop(all[i].task);
	}
}

static void print(void)
{
	unsigned long writes = 0, read = 0, overlaps = 0, least = ULONG_MAX;
	u64 wait = 0, time = local_clock() - started;
	bool excluded;
	unsigned int i;

	for (i = 0; i < threads; i++) {
		writes += all[i].writes;
		read += all[i].reads;
		overlaps += all[i].overlaps;
		least = min(least, all[i].writes + all[i].reads);
		wait = max(wait, all[i].longest_wait);
	}
	excluded = !overlaps && writes == guarded.begun && writes == guarded.done;
	pr_info("%s threads %u writes %lu reads %lu least %lu wait %llu turn %llu local %lu of %lu parked %lu time %llu: %s\n",
		ops->name, threads, writes, read, least, wait, guarded.longest_turn, guarded.local,
		writes, flk_parked(), time, excluded ? "excluded" : "NOT EXCLUDED");
}

static int __init flocks_init(void)
{
	int cpu = -1;
	unsigned int i;

	ops = find(lock);
	if (!ops) {
		pr_err("no lock %s: stock, mcs, cna or shfl, and -spin, -mutex or -rw\n", lock);
		return -EINVAL;
	}
	if (IS_ENABLED(CONFIG_PREEMPT_RT) && ops == &flk_stock[FLK_RW]) {
		pr_err("no %s with PREEMPT_RT: there it sleeps, and is held here with preemption disabled\n",
		       lock);
		return -EOPNOTSUPP;
	}
	if (!threads)
		threads = num_online_cpus();
	all = kcalloc(threads, sizeof(*all), GFP_KERNEL);
	if (!all)
		return -ENOMEM;
	ops->init(&the_lock);

	for (i = 0; i < threads; i++) {
		struct task_struct *task = kthread_create(torture, &all[i], "flocks/%u", i);

		if (IS_ERR(task)) {
			stop();
			kfree(all);
			return PTR_ERR(task);
		}
		cpu = cpumask_next(cpu, cpu_online_mask);
		if (cpu >= nr_cpu_ids)
			cpu = cpumask_first(cpu_online_mask);
		kthread_bind(task, cpu);
		all[i].task = task;
	}
	started = local_clock();
	for (i = 0; i < threads; i++)
		wake_up_process(all[i].task);

	return 0;
}

static void __exit flocks_exit(void)
{
	stop();
	print();
	kfree(all);
}

module_init(flocks_init);
module_exit(flocks_exit);
MODULE_DESCRIPTION("queue locks, tortured and compared with the kernel's own");
MODULE_LICENSE("GPL");
