// SPDX-License-Identifier: GPL-2.0
/*
 * How long waiters for a spinlock wait, and how long a turn takes
 *
 * A thread on each CPU takes one lock again and again and holds it for hold_us
 * microseconds. Between two turns it waits for a while, which is drawn, so that
 * now and then nobody is left in the main queue. A thread that finds another one
 * in the section counts that: the lock did not exclude. A turn is the time from
 * one acquisition to the next, by whichever thread. The longest wait and the
 * longest turn are what the bound in qspinlock_cna.h speaks of.
 */
#include <linux/cpumask.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/prandom.h>
#include <linux/sched/clock.h>
#include <linux/spinlock.h>

static unsigned int hold_us;
module_param(hold_us, uint, 0444);
MODULE_PARM_DESC(hold_us, "For how long the lock is held, in microseconds");

static unsigned int pauses = 5;
module_param(pauses, uint, 0444);
MODULE_PARM_DESC(pauses, "How many pause instructions are executed between two turns, on average");

static DEFINE_PER_CPU(struct task_struct *, tasks);
static DEFINE_PER_CPU(unsigned long, taken);

static DEFINE_RAW_SPINLOCK(lock);
/* Guarded by the lock. */
static u64 last, longest_turn, longest_wait;
static unsigned long turns, overlaps;
static bool inside;

static int wait_and_hold(void *unused)
{
	u32 drawn = raw_smp_processor_id() + 1;

	while (!kthread_should_stop()) {
		unsigned int left;
		u64 came, now;

		preempt_disable();
		came = local_clock();
		raw_spin_lock(&lock);
		now = local_clock();
		if (READ_ONCE(inside))
			overlaps++;
		WRITE_ONCE(inside, true);
		/* The clocks of two CPUs may differ by a tick. */
		if (last && now > last)
			longest_turn = max(longest_turn, now - last);
		last = now;
		longest_wait = max(longest_wait, now - came);
		turns++;
		while (local_clock() - now < 1000ull * hold_us)
			cpu_relax();
		WRITE_ONCE(inside, false);
		raw_spin_unlock(&lock);
		this_cpu_inc(taken);
		preempt_enable();
		drawn = next_pseudo_random32(drawn);
		for (left = (drawn >> 8) % (2 * pauses + 1); left; left--)
			cpu_relax();
		cond_resched();
	}

	return 0;
}

static void stop(void)
{
	unsigned long sum = 0, least = ULONG_MAX;
	int cpu;

	for_each_online_cpu(cpu) {
		if (per_cpu(tasks, cpu))
			kthread_stop(per_cpu(tasks, cpu));
	}
	for_each_online_cpu(cpu) {
		sum += per_cpu(taken, cpu);
		least = min(least, per_cpu(taken, cpu));
	}
	pr_info("bound: wait %llu turn %llu turns %lu least %lu: %s\n", longest_wait, longest_turn,
		turns, least, sum == turns && !overlaps ? "excluded" : "NOT EXCLUDED");
}

static int __init bound_init(void)
{
	int cpu;

	for_each_online_cpu(cpu) {
		struct task_struct *task;

		task = kthread_create_on_cpu(wait_and_hold, NULL, cpu, "bound/%u");
		if (IS_ERR(task)) {
			stop();
			return PTR_ERR(task);
		}
		per_cpu(tasks, cpu) = task;
	}
	for_each_online_cpu(cpu)
		wake_up_process(per_cpu(tasks, cpu));

	return 0;
}

static void __exit bound_exit(void)
{
	stop();
}

module_init(bound_init);
module_exit(bound_exit);
MODULE_DESCRIPTION("longest wait for a spinlock");
MODULE_LICENSE("GPL");
