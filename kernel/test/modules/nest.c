// SPDX-License-Identifier: GPL-2.0
/*
 * Contended spinlocks on all four levels of nesting
 *
 * On each CPU a thread, a timer's soft interrupt, a timer's hard interrupt and
 * an NMI take a lock of their level again and again. While the thread waits in
 * the queue of its lock, the soft interrupt may come, and while that one waits,
 * the hard one, and the NMI. So a CPU waits in up to four queues at a time, with
 * a queue node for each.
 *
 * A holder waits a little, so that others queue even where one CPU after the
 * other is simulated. What it counts is counted again per CPU: if the two
 * differ, a lock did not exclude.
 */
#include <linux/cpumask.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/nmi.h>
#include <linux/percpu.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <asm/apic.h>
#include <asm/nmi.h>

enum level { TASK, SOFT, HARD, NMI, LEVELS };

static const char * const names[LEVELS] = { "task", "soft", "hard", "nmi" };

/* In ns. The periods differ so that the levels meet at all phases. */
#define SOFT_PERIOD	310000
#define HARD_PERIOD	230000
#define NMI_EVERY	3	/* hard interrupts of the first CPU */
#define PAUSES		30	/* of a holder */

struct nest {
	struct task_struct	*task;
	struct hrtimer		soft;
	struct hrtimer		hard;
	unsigned long		taken[LEVELS];
	unsigned long		called;		/* NMIs that are on their way */
	unsigned int		ticks;
};

static DEFINE_PER_CPU(struct nest, nests);

static struct {
	raw_spinlock_t	lock;
	unsigned long	taken;
} ____cacheline_aligned_in_smp levels[LEVELS];

static void take(enum level level)
{
	struct nest *cpu = this_cpu_ptr(&nests);
	int pauses;

	raw_spin_lock(&levels[level].lock);
	levels[level].taken++;
	cpu->taken[level]++;
	for (pauses = 0; pauses < PAUSES; pauses++)
		cpu_relax();
	raw_spin_unlock(&levels[level].lock);
}

static int task(void *unused)
{
	while (!kthread_should_stop()) {
		preempt_disable();
		take(TASK);
		preempt_enable();
		cond_resched();
	}

	return 0;
}

static enum hrtimer_restart soft(struct hrtimer *timer)
{
	take(SOFT);
	hrtimer_forward_now(timer, ns_to_ktime(SOFT_PERIOD));
	return HRTIMER_RESTART;
}

static enum hrtimer_restart hard(struct hrtimer *timer)
{
	struct nest *me = this_cpu_ptr(&nests);
	int cpu;

	if (++me->ticks % NMI_EVERY == 0 &&
	    smp_processor_id() == cpumask_first(cpu_online_mask)) {
		for_each_online_cpu(cpu)
			WRITE_ONCE(per_cpu(nests, cpu).called, 1);
		apic->send_IPI_mask(cpu_online_mask, NMI_VECTOR);
	}

	take(HARD);
	hrtimer_forward_now(timer, ns_to_ktime(HARD_PERIOD));
	return HRTIMER_RESTART;
}

static int nmi(unsigned int type, struct pt_regs *regs)
{
	if (!xchg(&this_cpu_ptr(&nests)->called, 0))
		return NMI_DONE;

	take(NMI);
	return NMI_HANDLED;
}

static void start_timers(void *unused)
{
	struct nest *me = this_cpu_ptr(&nests);

	hrtimer_init(&me->soft, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_SOFT);
	me->soft.function = soft;
	hrtimer_start(&me->soft, ns_to_ktime(SOFT_PERIOD), HRTIMER_MODE_REL_PINNED_SOFT);

	hrtimer_init(&me->hard, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	me->hard.function = hard;
	hrtimer_start(&me->hard, ns_to_ktime(HARD_PERIOD), HRTIMER_MODE_REL_PINNED_HARD);
}

static void stop(void)
{
	enum level level;
	int cpu;

	for_each_online_cpu(cpu) {
		struct nest *it = &per_cpu(nests, cpu);

		if (!IS_ERR_OR_NULL(it->task))
			kthread_stop(it->task);
		if (it->hard.function) {
			hrtimer_cancel(&it->hard);
			hrtimer_cancel(&it->soft);
		}
	}
	unregister_nmi_handler(NMI_LOCAL, "nest");

	for (level = TASK; level < LEVELS; level++) {
		unsigned long sum = 0, least = ULONG_MAX;

		for_each_online_cpu(cpu) {
			unsigned long taken = per_cpu(nests, cpu).taken[level];

			sum += taken;
			least = min(least, taken);
		}
		pr_info("nest: %s %lu of %lu, %lu at least: %s\n",
			names[level], levels[level].taken, sum, least,
			levels[level].taken == sum ? "excluded" : "NOT EXCLUDED");
	}
}

static int __init nest_init(void)
{
	enum level level;
	int cpu, err;

	for (level = TASK; level < LEVELS; level++)
		raw_spin_lock_init(&levels[level].lock);

	err = register_nmi_handler(NMI_LOCAL, nmi, 0, "nest");
	if (err)
		return err;

	for_each_online_cpu(cpu) {
		struct task_struct *task_of_cpu = kthread_create_on_cpu(task, NULL, cpu, "nest/%u");

		if (IS_ERR(task_of_cpu)) {
			stop();
			return PTR_ERR(task_of_cpu);
		}
		per_cpu(nests, cpu).task = task_of_cpu;
		wake_up_process(task_of_cpu);
	}
	on_each_cpu(start_timers, NULL, 1);
	return 0;
}

static void __exit nest_exit(void)
{
	stop();
}

module_init(nest_init);
module_exit(nest_exit);
MODULE_DESCRIPTION("contended spinlocks on all levels of nesting");
MODULE_LICENSE("GPL");
